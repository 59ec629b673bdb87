"""Hops between taps: the way of every packet from tap to tap."""
