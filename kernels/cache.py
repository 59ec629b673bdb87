"""Where the machine code of kernels is kept, and under which keys."""

from __future__ import annotations

import contextlib
import enum
import os
import stat
import time
import types
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

try:
    from _blake2 import blake2b  # hashlib loads OpenSSL, which takes longer than all our digests
except ImportError:  # pragma: no cover - an interpreter without it
    from hashlib import blake2b

BOUNDS_CHECK = os.environ.get("ROCESCOPE_BOUNDSCHECK") == "1"
"""Compile kernels with bounds checks: for the fuzz tests, several times slower."""

_UNUSED_AFTER_S = 30 * 86_400
"""A month: long enough for whoever goes back and forth between two versions."""
_PACKAGE = __name__.partition(".")[0]
_KEY_BYTES = 12


@cache
def cache_base() -> str:
    """The folder for all machine code: our own, in NUMBA_CACHE_DIR when that is set.

    Where nothing can be written, the code goes to a temporary folder.
    """
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    base = os.path.join(chosen, "rocescope") if chosen else _user_cache()
    try:
        os.makedirs(base, exist_ok=True)
        if os.access(base, os.W_OK):
            return base
    except OSError:
        pass
    return temporary_base()


def _user_cache() -> str:
    from platformdirs import user_cache_dir

    return os.path.join(user_cache_dir("rocescope"), "kernels")


def temporary_base() -> str:
    """A folder that nobody else can write to: what lies in it will be executed."""
    import tempfile

    base = os.path.join(tempfile.gettempdir(), f"rocescope-{os.getuid()}")
    with contextlib.suppress(OSError):
        os.makedirs(base, mode=0o700, exist_ok=True)
        found = os.lstat(base)
        writable_by_others = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not writable_by_others:
            return base
    return tempfile.mkdtemp(prefix="rocescope-")


def remove_unused(base: str) -> None:
    """Remove the machine code of sources that have not been compiled for a month."""
    import shutil

    with contextlib.suppress(OSError):
        for entry in os.scandir(base):
            if entry.is_dir() and time.time() - entry.stat().st_mtime > _UNUSED_AFTER_S:
                shutil.rmtree(entry.path, ignore_errors=True)


def key_of(function: Callable[..., Any], module: bytes) -> str:
    """A digest of all that goes into the machine code of a function, `module_digest` included."""
    digest = blake2b(module, digest_size=_KEY_BYTES)
    digest.update(function.__qualname__.encode())
    return digest.hexdigest()


def module_digest(function: Callable[..., Any]) -> bytes:
    """A digest of the module of a function, at the first kernel in it.

    Numba compares the file of a kernel alone. The helpers and constants of
    other files that are compiled into it, and whether bounds are checked, would
    go unnoticed; so they decide about the folder. A kernel may call helpers
    further down in its file, so all names of the module count, not its own.
    """
    path = function.__code__.co_filename
    known = _MODULES.get(path)
    if known is None:
        digest = blake2b(b"checked" if BOUNDS_CHECK else b"", digest_size=32)
        digest.update(_file_digest(path))
        for value in list(function.__globals__.values()):
            digest.update(_global_digest(value))
        known = _MODULES[path] = digest.digest()
    return known


def digest_of(data: bytes) -> str:
    """A short name for data."""
    return blake2b(data, digest_size=_KEY_BYTES).hexdigest()


_MODULES: dict[str, bytes] = {}
"""`module_digest` by file."""


def _global_digest(value: object) -> bytes:
    if isinstance(value, int | float | np.generic | np.dtype):
        return repr(value).encode()
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if isinstance(value, tuple):
        return b"".join(_global_digest(item) for item in value)
    if isinstance(value, types.ModuleType):
        ours = value.__name__.partition(".")[0] == _PACKAGE
        return _file_digest(value.__file__ or "") if ours else b""
    if isinstance(value, type):
        if issubclass(value, tuple):
            return repr(getattr(value, "_fields", "")).encode()  # which field is which
        return repr(list(value)).encode() if issubclass(value, enum.Enum) else b""
    compiled = getattr(value, "__wrapped__", None)
    if isinstance(compiled, types.FunctionType):
        return _MODULES.get(compiled.__code__.co_filename, b"")
    return b""


@cache
def _file_digest(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return blake2b(file.read(), digest_size=32).digest()
    except OSError:
        return b""
