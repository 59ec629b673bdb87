"""Fabrics: switches, links, equal-cost groups, and their descriptions."""
