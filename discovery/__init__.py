"""A fabric from what its switches and hosts answered, and the path of every flow on it."""
