"""The packets of chosen flows."""
