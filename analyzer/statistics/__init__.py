"""Streaming statistics: histograms, densities, time windows, shares."""
