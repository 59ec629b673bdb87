"""Captured traffic through fabric models, hashes and load-balancing strategies."""
