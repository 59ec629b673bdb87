"""Counters of a host compared with the packets at a tap."""
