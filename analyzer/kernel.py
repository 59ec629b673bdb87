"""How hot loops are compiled, and where the machine code is kept for the next run."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
import time
import types
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias, TypeVar

import numba
import numpy as np
from numba.core.runtime.nrt import rtsys
from platformdirs import user_cache_dir

F = TypeVar("F", bound=Callable[..., Any])

Int: TypeAlias = Any
"""An integer inside a kernel, Python's or numpy's: numba infers which."""

BOUNDS_CHECK = os.environ.get("ROCESCOPE_BOUNDSCHECK") == "1"
"""Compile kernels with bounds checks: for the fuzz tests, several times slower."""

_UNUSED_AFTER_S = 30 * 86_400
"""A month: long enough for whoever goes back and forth between two versions."""
_PACKAGE = __name__.partition(".")[0]


def _cache_base() -> str:
    """The folder for all machine code: our own, in NUMBA_CACHE_DIR when that is set.

    Where nothing can be written, the code goes to a temporary folder.
    """
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    base = (
        os.path.join(chosen, "rocescope")
        if chosen
        else os.path.join(user_cache_dir("rocescope"), "kernels")
    )
    try:
        os.makedirs(base, exist_ok=True)
        if os.access(base, os.W_OK):
            _remove_unused(base)
            return base
    except OSError:
        pass
    return _temporary_base()


def _temporary_base() -> str:
    """A folder that nobody else can write to: what lies in it will be executed."""
    base = os.path.join(tempfile.gettempdir(), f"rocescope-{os.getuid()}")
    with contextlib.suppress(OSError):
        os.makedirs(base, mode=0o700, exist_ok=True)
        found = os.lstat(base)
        writable_by_others = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not writable_by_others:
            return base
    return tempfile.mkdtemp(prefix="rocescope-")


def _key_of(function: Callable[..., Any]) -> str:
    """A digest of all that goes into the machine code of a function.

    Numba compares the file of a kernel alone. The helpers and constants of
    other files that are compiled into it, and whether bounds are checked, would
    go unnoticed; so they decide about the folder. A kernel may call helpers
    further down in its file, so all names of the module count, not its own.
    """
    digest = hashlib.sha256(b"checked" if BOUNDS_CHECK else b"")
    digest.update(_file_digest(function.__code__.co_filename))
    digest.update(function.__qualname__.encode())
    for value in list(function.__globals__.values()):
        if id(value) in _KEYS:
            digest.update(_KEYS[id(value)].encode())
        elif isinstance(value, types.ModuleType):
            if value.__name__.startswith(_PACKAGE):
                digest.update(_file_digest(value.__file__ or ""))
        elif isinstance(value, np.ndarray):
            digest.update(value.tobytes())
        elif isinstance(value, int | float | np.generic):
            digest.update(repr(value).encode())
    return digest.hexdigest()[:24]


@cache
def _file_digest(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).digest()
    except OSError:
        return b""


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
_POINTED: dict[str, Any] = {"cache": True, "boundscheck": BOUNDS_CHECK, "_nrt": False}


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
    compiled: F = _compiled_with(function, numba.njit(**options))
    _load_at_once(compiled)
    return compiled


def _compiled_with(function: Callable[..., Any], compiler: Callable[..., Any]) -> Any:
    key = _key_of(function)
    # Numba takes the folder from its configuration when the function is decorated.
    config: Any = numba.config
    before = config.CACHE_DIR
    config.CACHE_DIR = os.path.join(_CACHE_BASE, key)
    try:
        compiled = compiler(function)
    finally:
        config.CACHE_DIR = before
    _KEYS[id(compiled)] = key
    return compiled


def _load_at_once(compiled: Any) -> None:
    """Let cached machine code be loaded without all that only the compiler needs.

    Numba prepares its compiler before it looks into the cache, which takes
    longer than a small analysis. Code that cannot be loaded, whatever the
    reason, is compiled anew.
    """
    store = getattr(compiled, "_cache", None)
    load = getattr(store, "_load_overload", None)
    if store is None or load is None:
        return

    def load_overload(signature: Any, context: Any) -> Any:
        try:
            rtsys.initialize(context)  # numba's runtime, which loaded code may call
            found = load(signature, context)
        except Exception:
            found = None
        if found is None:
            context.refresh()
        return found

    store.load_overload = load_overload


def callback(signature: Any) -> Callable[[Callable[..., Any]], Callable[[], Any]]:
    """Declare a function that kernels call by pointer, of a fixed numba signature.

    What it returns compiles it on the first call (or loads it), and gives the pointer: kernels
    take any function of that signature as an argument without being compiled anew.
    """

    def declared(function: Callable[..., Any]) -> Callable[[], Any]:
        @cache
        def pointer() -> Any:
            return _compiled_with(function, numba.cfunc(signature, **_POINTED))

        return pointer

    return declared
