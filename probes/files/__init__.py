"""Capture files of live frames."""
