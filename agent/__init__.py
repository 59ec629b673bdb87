"""The exporter for a fleet: what the kernel counts on this host, for Prometheus."""
