"""Sleep until frames arrive or a timeout ends.

The probes ring a bell whenever they start another quarter of a ring, a few times per
second at the highest rates; at low rates frames wait for the end of the sleep. Both
need hardly any processor time.

The bell is a ring buffer of the kernel (kernel/bpf/ringbuf.c: a page with the
consumer position, which is ours to write, and one with the producer position).
It is never read: records are discarded when they are created.
"""

from __future__ import annotations

import mmap
import os
import select
from contextlib import suppress

import numpy as np


class Wakeups:
    """Wakes one reader. bell: descriptor of a BPF ring buffer."""

    def __init__(self, bell: int) -> None:
        page = mmap.PAGESIZE
        self._consumer = np.frombuffer(mmap.mmap(bell, page, mmap.MAP_SHARED), np.uint64, 1)
        producer = mmap.mmap(bell, page, mmap.MAP_SHARED, mmap.PROT_READ, offset=page)
        self._producer = np.frombuffer(producer, np.uint64, 1)
        self._epoll = select.epoll()
        self._stopped = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._stopped, select.EPOLLIN)
        self._epoll.register(bell, select.EPOLLIN)

    def wait(self, seconds: float) -> bool:
        """Sleep until the timeout, a bell of a probe or `stop`; returns False after a timeout."""
        woken = bool(self._epoll.poll(seconds))
        # Later bells wake the next call.
        self._consumer[0] = self._producer[0]
        return woken

    def stop(self) -> None:
        """End the current and every later sleep; also from other threads and signal handlers."""
        os.eventfd_write(self._stopped, 1)

    def resume(self) -> None:
        """Undo `stop`."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._stopped)

    def close(self) -> None:
        """Close the descriptors."""
        self._epoll.close()
        os.close(self._stopped)
