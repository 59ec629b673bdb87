"""Commands that capture on interfaces of this host."""
