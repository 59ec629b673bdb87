"""Check and give up privileges, and what is still done with them; priority of threads."""
