"""Strategies by which hosts choose the entropy value of every packet."""
