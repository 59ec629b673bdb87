"""Headers of one frame, from Ethernet to the BTH extension headers."""
