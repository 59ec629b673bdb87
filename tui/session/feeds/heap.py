"""How the C library gives out memory, for sessions that make and drop arrays for hours."""

from __future__ import annotations

import ctypes
from contextlib import suppress

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8  # of mallopt(3), glibc's
_LARGE_BYTES = 1 << 20
_ARENAS = 2


def give_back_large_arrays() -> None:
    """Let arrays from 1 MiB on have memory of their own, which goes back when they go.

    By itself the C library takes ever larger ones from heaps of each thread, once a large one
    was freed: snapshots of the past then keep twice their size from going back. Nothing
    happens where there is no mallopt.
    """
    with suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_M_ARENA_MAX, _ARENAS)


def give_back_freed() -> None:
    """Return what was freed to the system: the compiler of the probes leaves 20 MB behind."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
