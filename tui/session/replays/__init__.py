"""Replays of the session's capture."""
