"""Traced paths that follow what switches change, while it happens."""
