"""Hooks of programs: XDP, tcx, clsact, in any network namespace."""
