"""Capture files and streams in: bytes -> FrameBatch."""
