"""PacketTable -> flows: who talks to whom, in which order the PSNs came, who answers whom."""
