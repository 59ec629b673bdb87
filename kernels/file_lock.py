"""A lock between processes, if the file system supports it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator

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
