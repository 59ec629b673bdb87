"""Links that fail while packets are replayed, and how routing follows."""
