"""Live capture on hosts with eBPF: frames for the same analyzer."""
