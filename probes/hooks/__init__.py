"""Where programs are attached: XDP, tcx, clsact, in any network namespace."""
