"""Privileges: checked, given up, and the priority of threads."""
