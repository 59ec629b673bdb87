"""The headless core of the terminal UI."""
