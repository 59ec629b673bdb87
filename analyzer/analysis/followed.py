"""How far one thread is with the batches that another one hands over."""

from __future__ import annotations

import threading


class Followed:
    """Counts batches: those handed over, and those done."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open = 0
        self._ended = False

    def due(self) -> None:
        """One more batch is handed over."""
        with self._changed:
            self._open += 1

    def done(self) -> None:
        """One of them is done."""
        with self._changed:
            self._open -= 1
            self._changed.notify_all()

    def end(self) -> None:
        """No more batches will be done."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def wait(self) -> bool:
        """Wait until all batches are done; False if the other thread ends before."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or not self._open)
            return not self._open
