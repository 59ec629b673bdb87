"""Parsers of the options of a replay: patterns, models, transports and failures."""
