"""FrameBatch -> PacketTable: every header from Ethernet to the BTH extension headers."""
