"""From C source to programs in the kernel."""
