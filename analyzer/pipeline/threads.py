"""The threads of an analysis: batches read ahead, shared work, a fair lock, memory given back."""

from __future__ import annotations

import ctypes
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")
U = TypeVar("U")
V = TypeVar("V")

AHEAD = 3
"""Most batches queued between the threads."""

WAIT_S = 0.1
GRACE_WAITS = 10
"""Time in seconds for the last item of a stopped iterator, which may be blocked."""

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8  # of mallopt(3), glibc's
_LARGE_BYTES = 1 << 20
_ARENAS = 2


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


class Shared(Generic[T, U]):
    """Yields the items of `then`, which takes those of `make` and yields one item for each.

    The threads share the work, so that none of them waits while there is some. With a thread per
    iterator the kernel has to find cores for threads that wait for each other all the time; on two
    cores with three threads it leaves a third of the time of the second core unused.

    Both run in threads of their own, `then` also in the iterating thread when that has nothing else
    to do; each runs in one thread at a time. At most `AHEAD` items of each are waiting. Errors,
    `poll` and `finish` as in `Prefetched`. It can be iterated once.
    """

    def __init__(
        self,
        make: Callable[[], Iterator[T]],
        then: Callable[[Iterator[T]], Iterator[U]],
        poll: Callable[[], None],
        cores: int | None = None,
    ) -> None:
        self._poll = poll
        self._changed = threading.Condition()
        self._made: deque[T] = deque()
        self._ready: deque[U] = deque()
        self._makes, self._takes = make(), then(self._fed())
        self._making = self._taking = False
        """Whether a thread runs them."""
        self._all_made = self._all_taken = False
        self._error: BaseException | None = None
        self._finishing = self._stopped = False
        cores = len(os.sched_getaffinity(0)) if cores is None else cores
        self._threads = [
            threading.Thread(target=self._work, name="rocescope-decode", daemon=True)
            for _ in range(min(max(cores - 1, 1), 2))
        ]

    def __iter__(self) -> Iterator[U]:
        for thread in self._threads:
            thread.start()
        waits = 0
        try:
            while waits < GRACE_WAITS:
                with self._changed:
                    work = None if self._ready or self._all_taken else self._next_take()
                    if work is None and not self._ready and not self._all_taken:
                        waits = 0 if self._changed.wait(WAIT_S) else waits + self._finishing
                if work is not None:
                    work()
                elif self._ready:
                    waits = 0
                    with self._changed:
                        item = self._ready.popleft()
                        self._changed.notify_all()
                    yield item
                elif self._all_taken:
                    if self._error is not None:
                        raise self._error
                    return
                else:
                    self._poll()
        finally:
            self._stop()
            del self._poll, self._makes  # as in `Prefetched`

    def finish(self) -> None:
        """Yield the items that are waiting and end; for a `make` that was stopped directly."""
        self._finishing = True

    def _stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(GRACE_WAITS * WAIT_S)

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._stopped and not self._all_taken:
                    if (work := self._next_make() or self._next_take()) is not None:
                        break
                    self._changed.wait()
                else:
                    return
            work()

    def _next_make(self) -> Callable[[], None] | None:
        if self._making or self._all_made or len(self._made) >= AHEAD:
            return None
        self._making = True
        return self._make

    def _next_take(self) -> Callable[[], None] | None:
        due = self._made or self._all_made
        if self._taking or self._all_taken or not due or len(self._ready) >= AHEAD:
            return None
        self._taking = True
        return self._take

    def _make(self) -> None:
        ended = self._advance(self._makes, self._made)
        with self._changed:
            self._making, self._all_made = False, ended
            self._changed.notify_all()

    def _fed(self) -> Iterator[T]:
        while self._made:
            yield self._made.popleft()
        if self._error is not None:
            raise self._error

    def _take(self) -> None:
        ended = self._advance(self._takes, self._ready)
        with self._changed:
            self._taking, self._all_taken = False, ended
            self._changed.notify_all()

    def _advance(self, items: Iterator[V], into: deque[V]) -> bool:
        """Add the next item; True at the end. An error is raised after the items before it: one of
        `make` by `_fed`, one of `then` in the iterating thread."""
        try:
            into.append(next(items))
        except StopIteration:
            return True
        except BaseException as error:
            self._error = error
            return True
        return False


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


def give_back_large_arrays() -> None:
    """Allocate arrays of 1 MiB or more by mmap, so that freed arrays return to the system.

    By default the C library raises this threshold whenever a large array is freed, and takes
    larger arrays from the heaps of threads: snapshots of the past then hold twice their size.
    Without mallopt this function does nothing.
    """
    with suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_M_ARENA_MAX, _ARENAS)


def give_back_freed() -> None:
    """Return what was freed to the system, also between what is still in use."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
