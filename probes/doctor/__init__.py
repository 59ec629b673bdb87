"""Requirements of live capture on this host."""
