"""Faults that one tap shows: before it, after it, at it."""
