"""Owner processes of queue pairs: uprobes on libibverbs, the kernel's resource table, ranks."""
