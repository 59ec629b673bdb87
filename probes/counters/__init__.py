"""Flow counters in the kernel."""
