"""Hosts: sending, recovery, congestion control."""
