"""Sources of the packets of a session."""
