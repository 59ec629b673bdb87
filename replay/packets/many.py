"""Many runs in parallel: seeds and strategies on all cores. Results do not depend on the cores."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import TypeVar

Case = TypeVar("Case")
Result = TypeVar("Result")


def run_many(
    cases: Sequence[Case],
    run: Callable[[Case, Event], Result],
    threads: int | None = None,
    tick: Callable[[], None] | None = None,
) -> Iterator[tuple[int, Result]]:
    """(number of the case, its result) in order of completion. Kernels release the GIL, so the
    workers are threads. (`concurrent.futures` loads `logging`, which takes longer than some runs.)

    tick: called on the caller's thread a few times a second. When the caller closes the iterator
    (an interrupt), the event stops the current runs.
    """
    stop = Event()
    waiting = deque(enumerate(cases))
    done: SimpleQueue[tuple[int, Result] | BaseException] = SimpleQueue()

    def work() -> None:
        while True:
            try:
                number, case = waiting.popleft()
            except IndexError:
                return
            try:
                done.put((number, run(case, stop)))
            except BaseException as error:
                done.put(error)

    workers = [Thread(target=work) for _ in range(min(len(cases), threads or os.cpu_count() or 1))]
    for worker in workers:
        worker.start()
    left = len(cases)
    try:
        while left:
            found: tuple[int, Result] | BaseException | None
            try:  # wakes up regularly: an interrupt must not wait for a long run
                found = done.get(timeout=0.2)
            except Empty:
                found = None
            if tick is not None:
                tick()
            if isinstance(found, BaseException):
                raise found
            if found is not None:
                left -= 1
                yield found
    finally:
        waiting.clear()
        stop.set()
        for worker in workers:
            worker.join()
