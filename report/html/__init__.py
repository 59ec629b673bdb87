"""Reports as one HTML file without scripts."""
