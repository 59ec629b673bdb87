"""What hosts offer: generated patterns, captured traffic."""
