"""The reports of the commands."""
