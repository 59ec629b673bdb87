"""How hot loops are compiled, and where the machine code is kept for the next run."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
import time
import types
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import numba
import numpy as np
from platformdirs import user_cache_dir

F = TypeVar("F", bound=Callable[..., Any])

Int: TypeAlias = Any
"""An integer inside a kernel, Python's or numpy's: numba infers which."""

BOUNDS_CHECK = os.environ.get("ROCESCOPE_BOUNDSCHECK") == "1"
"""Compile kernels with bounds checks: for the fuzz tests, several times slower."""

_UNUSED_AFTER_S = 30 * 86_400
_PACKAGE = __name__.partition(".")[0]


def _cache_base() -> str:
    """The folder for all machine code; NUMBA_CACHE_DIR is respected.

    Where nothing can be written, the code goes to a temporary folder.
    """
    base = os.environ.get("NUMBA_CACHE_DIR") or os.path.join(user_cache_dir("rocescope"), "kernels")
    try:
        os.makedirs(base, exist_ok=True)
        _remove_unused(base)
        if os.access(base, os.W_OK):
            return base
    except OSError:
        pass
    return os.path.join(tempfile.gettempdir(), f"rocescope-{os.getuid()}")


def _key_of(function: Callable[..., Any]) -> str:
    """A digest of all that goes into the machine code of a function.

    Numba compares the file of a kernel alone. The helpers and constants of
    other files that are compiled into it, and whether bounds are checked, would
    go unnoticed; so they decide about the folder.
    """
    digest = hashlib.sha256(b"checked" if BOUNDS_CHECK else b"")
    _add_code(digest, function.__code__)
    names = function.__code__.co_names
    for value in [function.__globals__.get(name) for name in names]:
        if isinstance(value, types.ModuleType) and value.__name__.startswith(_PACKAGE):
            for name in names:
                _add_value(digest, getattr(value, name, None))
        else:
            _add_value(digest, value)
    return digest.hexdigest()[:24]


def _add_value(digest: Any, value: object) -> None:
    if id(value) in _KEYS:
        digest.update(_KEYS[id(value)].encode())
    elif isinstance(value, np.ndarray):
        digest.update(value.tobytes())
    elif isinstance(value, int | float | str | bytes | tuple | np.generic | np.dtype):
        digest.update(repr(value).encode())


def _add_code(digest: Any, code: types.CodeType) -> None:
    digest.update(code.co_code)
    digest.update(repr(code.co_names).encode())
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            _add_code(digest, constant)
        else:
            digest.update(repr(constant).encode())


def _remove_unused(base: str) -> None:
    """Remove the machine code of sources that have not been compiled for a month."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(base):
            if entry.is_dir() and time.time() - entry.stat().st_mtime > _UNUSED_AFTER_S:
                shutil.rmtree(entry.path, ignore_errors=True)


_CACHE_BASE = _cache_base()
_KEYS: dict[int, str] = {}
"""Digest of every compiled function, by the identity of what numba made of it."""

_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "boundscheck": BOUNDS_CHECK}

# A helper owns no memory. Without numba's runtime it touches no array's reference count;
# with it, handing on a tuple of arrays costs two locked instructions per array and call,
# more than most helpers take for their work.
_HELPER: dict[str, Any] = {"_nrt": False, **_OPTIONS}


def kernel(function: F) -> F:
    """Compile `function` to machine code that releases the GIL and is cached on disk."""
    return _compiled(function, _OPTIONS)


def subkernel(function: F) -> F:
    """Like `kernel`, for what allocates no arrays: above all what kernels call, again and again."""
    return _compiled(function, _HELPER)


def inlined(function: F) -> F:
    """Like `subkernel`, for small helpers that LLVM should inline into their callers."""
    return _compiled(function, {"forceinline": True, **_HELPER})


def _compiled(function: F, options: dict[str, Any]) -> F:
    key = _key_of(function)
    # Numba takes the folder from its configuration when the function is decorated.
    config: Any = numba.config
    before = config.CACHE_DIR
    config.CACHE_DIR = os.path.join(_CACHE_BASE, key)
    try:
        compiled: F = numba.njit(**options)(function)
    finally:
        config.CACHE_DIR = before
    _KEYS[id(compiled)] = key
    return compiled
