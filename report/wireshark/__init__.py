"""Captures with what the analysis found as comments of packets, for Wireshark."""
