"""Captures in, an Analysis out."""
