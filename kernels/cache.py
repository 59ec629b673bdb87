"""What a checkout needs to keep machine code: safe folders, and digests of what it was made of."""

from __future__ import annotations

import contextlib
import enum
import os
import stat
import sys
import time
import types
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from .libraries import blake2b

BOUNDS_CHECK = os.environ.get("ROCESCOPE_BOUNDSCHECK") == "1"
"""Compile kernels with bounds checks: for the fuzz tests, several times slower."""

_UNUSED_AFTER_S = 30 * 86_400
"""A month: long enough for alternating between two versions."""
_PACKAGE = __name__.partition(".")[0]


@cache
def cache_base() -> str | None:
    """The folder for all machine code, in NUMBA_CACHE_DIR when that is set.

    If it is not writable, or writable by others, a temporary folder; None if that fails too.
    """
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    base = os.path.join(chosen, "rocescope") if chosen else _user_cache()
    if base is None:
        return temporary_base()
    base = os.path.realpath(base)
    with contextlib.suppress(OSError):
        reason = _made_unsafe(base)
        if reason is None and os.access(base, os.W_OK):
            return base
        if reason is not None:
            print(
                f"rocescope: compiled kernels are not cached in {base}: {reason}", file=sys.stderr
            )
    return temporary_base()


def _user_cache() -> str | None:
    """None for a user without a home: no HOME and no entry in /etc/passwd."""
    if sys.platform == "linux":  # as platformdirs, which takes 39 ms and 4 MB to load
        base = os.environ.get("XDG_CACHE_HOME", "").strip() or os.path.expanduser("~/.cache")
        return None if base.startswith("~") else os.path.join(base, "rocescope", "kernels")
    from platformdirs import user_cache_dir

    try:
        return os.path.join(user_cache_dir("rocescope"), "kernels")
    except RuntimeError:
        return None


def temporary_base() -> str | None:
    """A temporary folder for machine code, the same for every process if possible."""
    import tempfile

    with contextlib.suppress(OSError):
        for parent in map(os.path.realpath, (tempfile.gettempdir(), "/tmp")):
            base = os.path.join(parent, f"rocescope-{os.geteuid()}")
            if _made_unsafe(base) is None:
                return base
            if _made_unsafe(parent, sticky=True) is None:
                return tempfile.mkdtemp(prefix="rocescope-", dir=parent)
    return None


def _made_unsafe(folder: str, sticky: bool = False) -> str | None:
    """Why another user could put code into a folder; None when the folder is safe.

    Creates the folder and its missing parents; the path has no links. A user who can write to a
    parent folder can replace the folder, except in `sticky` folders such as /tmp, where only the
    owner can. Raises OSError when the folder cannot be created.
    """
    names = folder.rstrip("/").split("/")
    for depth in range(1, len(names) + 1):
        path = "/".join(names[:depth]) or "/"
        with contextlib.suppress(FileExistsError):
            if not os.path.lexists(path):
                os.mkdir(path, 0o700)
        status = os.lstat(path)
        if not stat.S_ISDIR(status.st_mode):
            return f"{path} is not a folder"
        if status.st_uid not in (0, os.geteuid()):
            return f"{path} belongs to another user (NUMBA_CACHE_DIR chooses another folder)"
        kept = status.st_mode & stat.S_ISVTX and (sticky or path != folder)
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not kept:
            return f"others can write to {path} (chmod go-w)"
    return None


def remove_foreign(folder: str) -> None:
    """Remove a folder within the cache if another user can write to it. OSError if impossible.

    Only this user can write to the folder above, so nobody replaces it after the check.
    """
    with contextlib.suppress(FileNotFoundError):
        status = os.lstat(folder)
        if not stat.S_ISDIR(status.st_mode):
            say_refused(folder)
            os.unlink(folder)
        elif not is_own(status):
            import shutil  # takes as long to load as several kernels

            say_refused(folder)
            shutil.rmtree(folder)


def is_own(status: os.stat_result) -> bool:
    """Whether only this user or root can write to a file or folder."""
    others_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return status.st_uid in (0, os.geteuid()) and not others_write


@cache
def say_refused(path: str) -> None:
    print(
        f"rocescope: {path} is not used: another user can write to it; compiling again",
        file=sys.stderr,
    )


def remove_unused(base: str) -> None:
    """Remove the machine code of sources that have not been compiled for a month."""
    import shutil

    with contextlib.suppress(OSError):
        for entry in os.scandir(base):
            if entry.is_dir() and time.time() - entry.stat().st_mtime > _UNUSED_AFTER_S:
                shutil.rmtree(entry.path, ignore_errors=True)


def module_digest(function: Callable[..., Any]) -> str:
    """A digest of the module of a function, taken at its first kernel.

    Numba compares only the file of a kernel. It misses helpers and constants of other files that
    are compiled into the kernel, and bounds checks; the digest covers them and selects the folder.
    A kernel may call helpers below it in its file, so the digest covers all names of the module.
    """
    path = function.__code__.co_filename
    known = _MODULES.get(path)
    if known is None:
        digest = blake2b(b"checked" if BOUNDS_CHECK else b"", digest_size=32)
        digest.update(_file_digest(path))
        for value in list(function.__globals__.values()):
            digest.update(_global_digest(value))
        known = _MODULES[path] = digest.digest()
    return known.hex()


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
        return _constants_digest(value) if value.__name__.partition(".")[0] == _PACKAGE else b""
    if isinstance(value, type):
        if issubclass(value, tuple):
            return repr(getattr(value, "_fields", "")).encode()  # order of the fields
        return repr(list(value)).encode() if issubclass(value, enum.Enum) else b""
    compiled = getattr(value, "__wrapped__", None)
    if isinstance(compiled, types.FunctionType):
        return _MODULES.get(compiled.__code__.co_filename, b"")
    return b""


@cache
def _constants_digest(module: types.ModuleType) -> bytes:
    """A digest of a module whose constants a kernel uses; they may come from other modules."""
    values = [x for x in list(vars(module).values()) if not isinstance(x, types.ModuleType)]
    return _file_digest(module.__file__ or "") + b"".join(map(_global_digest, values))


@cache
def _file_digest(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return blake2b(file.read(), digest_size=32).digest()
    except OSError:
        return b""
