"""Reads and decodes in one thread while another tracks; the packet order does not change."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

AHEAD = 3
"""Most batches queued between the threads."""

WAIT_S = 0.1
GRACE_WAITS = 10
"""Time in seconds for the last item of a stopped iterator, which may be blocked."""


class _Sized(queue.Queue[tuple[T | None, BaseException | None]]):
    """A queue bounded by the sizes of its items; each counts as at least one."""

    def __init__(self, room: int, size: Callable[[T], int]) -> None:
        super().__init__(room)
        self._size, self._taken = size, 0

    def _of(self, entry: tuple[T | None, BaseException | None]) -> int:
        return 1 if entry[0] is None else max(1, self._size(entry[0]))

    def _qsize(self) -> int:
        return self._taken

    def _put(self, item: tuple[T | None, BaseException | None]) -> None:
        super()._put(item)
        self._taken += self._of(item)

    def _get(self) -> tuple[T | None, BaseException | None]:
        item = super()._get()
        self._taken -= self._of(item)
        return item


class Prefetched(Generic[T]):
    """Runs an iterator in its own thread, a few items ahead.

    `poll` is called about ten times per second while no item is ready. `__iter__` raises an
    exception of the iterator in order. At most `ahead` items are queued; for items with a `size`,
    `ahead` limits the sum of sizes, exceeded by at most one item. It can be iterated once.
    """

    def __init__(
        self,
        make: Callable[[], Iterator[T]],
        poll: Callable[[], None],
        ahead: int = AHEAD,
        size: Callable[[T], int] = lambda item: 1,
    ) -> None:
        self._poll = poll
        self._items = _Sized(ahead, size)
        self._finishing = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(make,), name="rocescope-decode", daemon=True
        )

    def __iter__(self) -> Iterator[T]:
        self._thread.start()
        waits = 0
        try:
            while waits < GRACE_WAITS:
                try:
                    item, error = self._items.get(timeout=WAIT_S)
                except queue.Empty:
                    waits += self._finishing.is_set()
                    self._poll()
                    continue
                waits = 0
                if error is not None:
                    raise error
                if item is None:
                    return
                yield item
        finally:
            self.stop()
            # `make`, which the thread held, and `poll` are often methods of the object that holds
            # this one: without that circle, all of an analysis leaves memory at its end.
            del self._poll

    @property
    def backlog(self) -> float:
        """Fill level of the queue, about 0 to 1."""
        return self._items.qsize() / self._items.maxsize

    def finish(self) -> None:
        """Yield the queued items and end; for an iterator that was stopped directly."""
        self._finishing.set()

    def stop(self) -> None:
        """End the thread at its next item; a blocked thread is abandoned."""
        self._stopped.set()
        self._thread.join(GRACE_WAITS * WAIT_S)

    def _run(self, make: Callable[[], Iterator[T]]) -> None:
        try:
            for item in make():
                if not self._put((item, None)):
                    return
            self._put((None, None))
        except BaseException as error:  # re-raised in the other thread
            self._put((None, error))

    def _put(self, item: tuple[T | None, BaseException | None]) -> bool:
        while not self._stopped.is_set():
            try:
                self._items.put(item, timeout=WAIT_S)
                return True
            except queue.Full:
                continue
        return False
