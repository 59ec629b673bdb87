"""A lock that is given in the order in which it was asked for."""

from __future__ import annotations

import threading


class FairLock:
    """For `with`, not reentrant.

    A thread that frees a `threading.Lock` and takes it again at once mostly gets it, before
    one that has waited for it is running: whoever measures packet after packet would let
    those who look at the measures wait for seconds.
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
