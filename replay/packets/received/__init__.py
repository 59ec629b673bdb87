"""Packets as seen by their receivers."""
