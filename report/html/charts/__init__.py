"""Charts of the reports: pure functions from results to SVG."""
