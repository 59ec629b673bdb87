"""Jobs: computations and messages that wait for each other, on hosts of a fabric."""
