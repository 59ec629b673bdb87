"""Hash functions, one per file."""
