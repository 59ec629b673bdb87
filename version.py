"""The version of rocescope, below every room: results and cached kernels name it."""

VERSION = "0.1.0"
