"""One analysis on many processes or machines, in tasks that leave their results in files."""
