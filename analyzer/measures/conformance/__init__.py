"""Checks whether queue pairs follow the rules of the protocol, as far as a tap shows."""
