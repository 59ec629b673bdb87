"""Load-balancing strategies, one per file."""
