"""MRC traffic with its ground truth."""
