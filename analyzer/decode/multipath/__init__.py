"""Multipath headers: MRC and SRv6."""
