"""Congestion control of hosts: an algorithm is one file and one line of the registry."""
