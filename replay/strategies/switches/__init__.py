"""Strategies by which switches choose a link for every packet."""
