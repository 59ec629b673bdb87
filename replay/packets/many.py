"""Many runs in parallel: seeds and strategies on all cores. Results do not depend on the cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from threading import Event
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
    workers are threads.

    tick: called on the caller's thread a few times a second. When the caller closes the iterator
    (an interrupt), the event stops the current runs.
    """
    stop = Event()
    with ThreadPoolExecutor(threads or os.cpu_count() or 1) as pool:
        waiting = {pool.submit(run, case, stop): i for i, case in enumerate(cases)}
        try:
            while waiting:
                # Wakes up regularly: an interrupt must not wait for a long run.
                done, _ = wait(waiting, 0.2, FIRST_COMPLETED)
                if tick is not None:
                    tick()
                for future in done:
                    yield waiting.pop(future), future.result()
        finally:
            stop.set()
            for future in waiting:
                future.cancel()
