"""Counters of a host beside what a tap saw."""
