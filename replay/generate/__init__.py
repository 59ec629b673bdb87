"""Generated traffic: patterns, queue pairs, packets as a pcap."""
