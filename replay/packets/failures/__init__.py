"""Link failures during a replay of packets, and convergence of routing."""
