"""Mirrors that stamp, number or duplicate packets: the packets as they were before."""
