"""The packet filter: Wireshark-like text compiled to masks over the packet table."""
