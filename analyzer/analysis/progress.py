"""Progress of an analysis, for display."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """One progress report; the engine sends a few per second and one at the end."""

    path: str
    """The file being read."""
    bytes_done: int
    """Bytes of all input files read so far, as stored (possibly compressed)."""
    bytes_total: int | None
    """Bytes of all input files; None when unknown (standard input, a growing file)."""
    frames: int
    """Frames read so far."""
    packets: int
    """RoCE packets decoded so far."""
    compiling: bool = False
    """Kernels are being compiled; happens once per machine and takes some seconds."""
