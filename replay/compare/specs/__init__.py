"""What the options of a replay say: patterns, models, transports and failures as texts."""
