"""What a switch does with a gradient packet, one scheme per file."""
