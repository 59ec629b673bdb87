"""What live capture needs of this host."""
