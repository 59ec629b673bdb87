"""One process at a time, where the file system can promise that."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator

_POLL_S = 0.02


@contextlib.contextmanager
def process_lock(path: str, patience_s: float) -> Iterator[bool]:
    """Hold the lock of a file, which is made with its folder; yields whether it is held.

    It is not where nothing can be written, where the file system has no locks, and after
    `patience_s` seconds of waiting: what follows must be right without it, too, only slower.
    Threads exclude each other like processes. The system frees the lock of a process that
    ends, however it ends (flock(2)).
    """
    with contextlib.ExitStack() as stack:
        held = False
        with contextlib.suppress(OSError):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            stack.callback(os.close, file)
            held = _taken(file, patience_s)
        if held:  # freed expressly: a forked child has the file open, too
            stack.callback(fcntl.flock, file, fcntl.LOCK_UN)
        yield held


def _taken(file: int, patience_s: float) -> bool:
    """Wait for the lock, but not for ever: a stopped process may have it. OSError: no locks."""
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
