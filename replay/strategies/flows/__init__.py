"""Strategies that place whole flows."""
