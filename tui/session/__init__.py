"""The headless heart of the terminal UI."""
