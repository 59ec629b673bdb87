"""How hot loops are compiled, cached and loaded. Imports no other room."""
