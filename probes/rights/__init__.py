"""Check and give up privileges; priority of threads."""
