"""PacketTable -> flows: endpoints, PSN order, and pairing into connections."""
