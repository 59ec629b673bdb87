"""Communication patterns: senders, receivers, sizes and times. One file each."""
