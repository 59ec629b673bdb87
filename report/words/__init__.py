"""Numbers and findings in words, without a terminal."""
