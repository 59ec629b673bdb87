"""Messages: sizes, times, response latency, goodput."""
