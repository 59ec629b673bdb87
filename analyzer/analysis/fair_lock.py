"""A lock that threads acquire in the order of their requests."""

from __future__ import annotations

import threading


class FairLock:
    """For `with`, not reentrant.

    A thread that releases a `threading.Lock` and acquires it at once mostly succeeds before a
    waiting thread runs. The thread that measures batch after batch would make readers of the
    measures wait for seconds.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._next = self._serving = 0

    def __enter__(self) -> None:
        with self._changed:
            turn = self._next
            self._next += 1
            while self._serving != turn:
                self._changed.wait()

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._serving += 1
            self._changed.notify_all()
