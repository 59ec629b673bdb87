"""Results as words on a terminal and as files for other programs."""
