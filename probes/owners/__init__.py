"""Which process owns a queue pair: uprobes on libibverbs, the kernel's resource table, ranks."""
