"""Options and helpers that several commands share."""
