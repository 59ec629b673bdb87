"""Kinds of fabrics in spec strings."""
