"""Hash seeds: swept, and recovered from captures."""
