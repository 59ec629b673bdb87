"""How hot loops are compiled: one decorator for every numba kernel."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])

BOUNDS_CHECK = os.environ.get("ROCESCOPE_BOUNDSCHECK") == "1"
"""Compile kernels with bounds checks: for the fuzz tests, several times slower."""


# numba's cache does not tell checked from unchecked code, so only one of them may use it.
_OPTIONS: dict[str, Any] = {
    "cache": not BOUNDS_CHECK,
    "nogil": True,
    "boundscheck": BOUNDS_CHECK,
}

# A helper owns no memory. Without numba's runtime it touches no array's reference count;
# with it, handing on a tuple of arrays costs two locked instructions per array and call,
# more than most helpers take for their work.
_HELPER: dict[str, Any] = {"_nrt": False, **_OPTIONS}


def kernel(function: F) -> F:
    """Compile `function` to machine code that releases the GIL and is cached on disk."""
    compiled: F = numba.njit(**_OPTIONS)(function)
    return compiled


def subkernel(function: F) -> F:
    """Like `kernel`, for what kernels call, again and again: it cannot allocate arrays."""
    compiled: F = numba.njit(**_HELPER)(function)
    return compiled


def inlined(function: F) -> F:
    """Like `subkernel`, for small helpers that LLVM should inline into their callers."""
    compiled: F = numba.njit(forceinline=True, **_HELPER)(function)
    return compiled
