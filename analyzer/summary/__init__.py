"""Builds result records from the tracker and the measures."""
