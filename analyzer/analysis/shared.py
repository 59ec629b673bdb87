"""Two iterators, one fed by the other, whose work a few threads share: none of them waits while
there is work.

With a thread per iterator the kernel has to find cores for threads that wait for each other all the
time; on two cores with three threads it leaves a third of the time of the second core unused.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from .prefetch import AHEAD, GRACE_WAITS, WAIT_S

T = TypeVar("T")
U = TypeVar("U")
V = TypeVar("V")


class Shared(Generic[T, U]):
    """Yields the items of `then`, which takes those of `make` and yields one item for each.

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
