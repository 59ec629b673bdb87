"""Settings of the C library's allocator, for sessions that allocate arrays for hours."""

from __future__ import annotations

import ctypes
from contextlib import suppress

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8  # of mallopt(3), glibc's
_LARGE_BYTES = 1 << 20
_ARENAS = 2


def give_back_large_arrays() -> None:
    """Allocate arrays of 1 MiB or more by mmap, so that freed arrays return to the system.

    By default the C library raises this threshold whenever a large array is freed, and takes
    larger arrays from the heaps of threads: snapshots of the past then hold twice their size.
    Without mallopt this function does nothing.
    """
    with suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_M_ARENA_MAX, _ARENAS)


def give_back_freed() -> None:
    """Return what was freed to the system, also between what is still in use."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
