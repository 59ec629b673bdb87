"""What `replay` and `sweep` show: strategies and seeds compared on one traffic."""
