"""What switches and hosts answered, and the fabric that follows from it."""
