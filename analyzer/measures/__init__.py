"""Measures per flow: messages, latency, spraying, congestion, imbalance, time series."""
