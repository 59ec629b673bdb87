"""Readers of capture files and streams: bytes -> FrameBatch."""
