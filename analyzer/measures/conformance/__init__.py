"""Whether queue pairs keep the rules of the protocol, as far as a tap can tell."""
