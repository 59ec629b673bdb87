"""How hot loops are compiled: one decorator for every numba kernel."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])

BOUNDS_CHECK = os.environ.get("ROCESCOPE_BOUNDSCHECK") == "1"
"""Compile kernels with bounds checks: for the fuzz tests, several times slower."""


def kernel(function: F) -> F:
    """Compile `function` to machine code that releases the GIL and is cached on disk."""
    compiled: F = numba.njit(cache=True, nogil=True, boundscheck=BOUNDS_CHECK)(function)
    return compiled


def inlined(function: F) -> F:
    """Like `kernel`, for small helpers that LLVM should inline into their callers."""
    compiled: F = numba.njit(
        cache=True, nogil=True, boundscheck=BOUNDS_CHECK, forceinline=True
    )(function)
    return compiled
