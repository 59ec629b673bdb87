"""How hot loops are compiled, kept in libraries and called. Imports no other room."""


class LibraryError(Exception):
    """A library of compiled kernels that is missing, damaged or of another rocescope."""

    exit_code = 1
