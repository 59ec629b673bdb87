"""What hosts do: entropy values per packet, loss recovery, congestion control."""
