"""The cache of compiled kernels: its folders, locks and files."""

from __future__ import annotations

import contextlib
import enum
import errno
import fcntl
import marshal
import os
import stat
import sys
import time
import types
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np

from ..version import VERSION

# A lock between processes, if the file system supports it. filelock takes 86 ms and 10 MB to load.

_POLL_S = 0.02


@contextlib.contextmanager
def process_lock(path: str, patience_s: float) -> Iterator[bool]:
    """Hold the lock of a file, created with its folder; yields whether it is held.

    It is not held without write permission, on a file system without locks, and after `patience_s`
    seconds of waiting; the caller must work without the lock, only more slowly. Threads exclude
    each other like processes. The system releases the lock of every ended process (flock(2)).
    """
    with contextlib.ExitStack() as stack:
        held = False
        with contextlib.suppress(OSError):
            os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            stack.callback(os.close, file)
            held = _taken(file, patience_s)
        if held:  # released explicitly: a forked child also has the file open
            stack.callback(fcntl.flock, file, fcntl.LOCK_UN)
        yield held


def _taken(file: int, patience_s: float) -> bool:
    """Wait for the lock, with a limit: a stopped process may hold it. OSError: no locks."""
    until = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(_POLL_S)
        else:
            return True


try:
    from _blake2 import blake2b  # hashlib loads OpenSSL, which takes longer than all digests here
except ImportError:  # pragma: no cover - an interpreter without it
    from hashlib import blake2b

BOUNDS_CHECK = os.environ.get("ROCESCOPE_BOUNDSCHECK") == "1"
"""Compile kernels with bounds checks: for the fuzz tests, several times slower."""

_UNUSED_AFTER_S = 30 * 86_400
"""A month: long enough for alternating between two versions."""
_PACKAGE = __name__.partition(".")[0]
_KEY_BYTES = 12


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
            _say_refused(folder)
            os.unlink(folder)
        elif not _is_own(status):
            import shutil  # takes as long to load as several kernels

            _say_refused(folder)
            shutil.rmtree(folder)


def read_own(path: str) -> bytes:
    """The contents of a file that only this user or root can have written.

    Another file raises PermissionError, a missing one FileNotFoundError.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb", buffering=0) as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or not _is_own(status):
            _say_refused(path)
            raise PermissionError(errno.EACCES, "another user can write to it", path)
        return file.read()


def create_own(path: str, flags: int = os.O_WRONLY | os.O_CREAT | os.O_TRUNC) -> int:
    """A file that only this user can write to, whatever the umask; for `open` as `opener`."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _is_own(status: os.stat_result) -> bool:
    """Whether only this user or root can write to a file or folder."""
    others_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return status.st_uid in (0, os.geteuid()) and not others_write


@cache
def _say_refused(path: str) -> None:
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


def key_of(function: Callable[..., Any], module: bytes) -> str:
    """A digest of all inputs of the machine code of a function, `module_digest` included.

    It includes the version: two releases never share code, even if the digest misses an input.
    """
    digest = blake2b(module + VERSION.encode(), digest_size=_KEY_BYTES)
    digest.update(function.__qualname__.encode())
    return digest.hexdigest()


def module_digest(function: Callable[..., Any]) -> bytes:
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
    return known


def digest_of(data: bytes) -> str:
    """A short digest of data."""
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


# Values in files of the cache: written atomically, checked when they are read.

_CHECKSUM_BYTES = 4


def store(value: Any, path: str) -> None:
    """Write a value of Python's own types; its folder must exist. Failures change nothing."""
    data = marshal.dumps(value)
    temporary = f"{path}.{os.getpid()}"
    try:
        with open(temporary, "wb", opener=create_own) as file:
            file.write(zlib.crc32(data).to_bytes(_CHECKSUM_BYTES, "little") + data)
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            _say_full(os.path.dirname(os.path.dirname(path)))


@cache
def _say_full(folder: str) -> None:
    """Once: later runs compile again, which takes minutes."""
    with contextlib.suppress(OSError, AttributeError):  # there may be no standard error
        print(
            f"rocescope: compiled kernels are not cached in {folder}: no space left",
            file=sys.stderr,
        )


def stored(path: str) -> Any:
    """The value in a file; None when it is missing or damaged, or others can write to it."""
    with contextlib.suppress(OSError, ValueError, EOFError, TypeError):
        content = read_own(path)
        data = content[_CHECKSUM_BYTES:]
        if zlib.crc32(data) == int.from_bytes(content[:_CHECKSUM_BYTES], "little"):
            return marshal.loads(data)
    return None
