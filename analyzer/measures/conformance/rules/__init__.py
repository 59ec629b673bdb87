"""The rules of the protocol, judged packet by packet."""
