"""Rings that the probes write and one thread reads."""
