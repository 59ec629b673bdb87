"""Messages: sizes, times, latency of answers, goodput."""
