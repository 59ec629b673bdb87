"""Flows counted in the kernel."""
