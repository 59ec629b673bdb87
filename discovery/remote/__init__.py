"""Asking devices over SSH."""
