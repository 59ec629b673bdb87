"""Paths: spraying, parallel taps, imbalance, hops."""
