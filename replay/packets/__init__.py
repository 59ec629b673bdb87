"""Packet-level replay: queues, links and hosts, and the drivers that move packets through them."""
