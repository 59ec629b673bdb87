"""Numbers and findings as text, without a terminal."""
