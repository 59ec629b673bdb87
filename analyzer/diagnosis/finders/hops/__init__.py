"""Faults between taps: found from the way of every packet from tap to tap."""
