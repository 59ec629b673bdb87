"""Faults of queue pairs and hosts."""
