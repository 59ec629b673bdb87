"""Reports on a terminal, drawn with rich."""
