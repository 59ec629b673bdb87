"""The drivers that move packets: open loop and event driven."""
