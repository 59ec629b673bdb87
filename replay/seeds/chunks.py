"""Work in numbered chunks on every core; the work releases the GIL."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait

_TELL_EVERY_S = 0.2


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def in_chunks(
    chunks: int,
    work: Callable[[int, int], None],
    tell: Callable[[], object] | None = None,
) -> None:
    """work(worker, number) for every chunk, with workers from 0 to cores() - 1.

    `tell` is called several times a second and at the end, on the calling thread. After an
    exception or interrupt no further chunk is started.
    """
    numbers = iter(range(chunks))
    lock, stopped = threading.Lock(), threading.Event()

    def loop(worker: int) -> None:
        while not stopped.is_set():
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            try:
                work(worker, number)
            except BaseException:
                stopped.set()
                raise

    workers = max(1, min(cores(), chunks))
    with ThreadPoolExecutor(workers) as pool:
        running = [pool.submit(loop, worker) for worker in range(workers)]
        try:
            while wait(running, _TELL_EVERY_S).not_done:
                if tell is not None:
                    tell()
        finally:
            stopped.set()
        for future in running:
            future.result()
    if tell is not None:
        tell()
