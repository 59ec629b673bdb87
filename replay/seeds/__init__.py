"""Hash seeds: sweeps, and recovery from captures."""
