"""Whole flows on a fabric: placement, link loads, fair shares."""
