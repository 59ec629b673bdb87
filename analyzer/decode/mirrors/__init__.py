"""Restores packets that mirrors timestamp, number or duplicate."""
