"""Results as reports on a terminal and as files for other programs."""
