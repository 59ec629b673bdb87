"""Reading and decoding in one thread while another tracks: two cores, one order of packets."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

AHEAD = 3
"""Batches that may wait between the threads."""


class Prefetched(Generic[T]):
    """Runs an iterator in a thread of its own, a few items ahead.

    `poll` is called about ten times a second while nothing is ready. An
    exception of the iterator comes out of `__iter__` at its place.
    """

    def __init__(self, make: Callable[[], Iterator[T]], poll: Callable[[], None]) -> None:
        self._make = make
        self._poll = poll
        self._items: queue.Queue[tuple[T | None, BaseException | None]] = queue.Queue(AHEAD)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rocescope-decode", daemon=True)

    def __iter__(self) -> Iterator[T]:
        self._thread.start()
        try:
            while True:
                try:
                    item, error = self._items.get(timeout=0.1)
                except queue.Empty:
                    self._poll()
                    continue
                if error is not None:
                    raise error
                if item is None:
                    return
                yield item
        finally:
            self.stop()

    def stop(self) -> None:
        """Let the thread end at its next item."""
        self._stopped.set()
        while self._thread.is_alive():
            try:
                self._items.get(timeout=0.05)
            except queue.Empty:
                self._thread.join(0.05)
                if self._stopped.is_set() and self._items.empty():
                    return

    def _run(self) -> None:
        try:
            for item in self._make():
                if not self._put((item, None)):
                    return
            self._put((None, None))
        except BaseException as error:  # handed to the other thread, whatever it is
            self._put((None, error))

    def _put(self, item: tuple[T | None, BaseException | None]) -> bool:
        while not self._stopped.is_set():
            try:
                self._items.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False
