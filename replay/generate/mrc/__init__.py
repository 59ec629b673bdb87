"""MRC traffic with the truth about it."""
