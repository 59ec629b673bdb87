"""Where a session's packets come from."""
