"""MRC: entropy values, planes, path feedback, round trips, windows."""
