"""Sleeping until there is something to do.

The probes ring a bell whenever another quarter of a ring begins, so few times
per second at the highest rates; what comes in slowly waits for the end of the
sleep. Both cost next to no processor time.

The bell is a ring buffer of the kernel (kernel/bpf/ringbuf.c: a page with the
consumer position, which is ours to write, and one with the producer position).
Nothing is ever read from it: records are discarded as soon as they are made.
"""

from __future__ import annotations

import mmap
import os
import select
from contextlib import suppress

import numpy as np


class Wakeups:
    """What can wake one reader. bell: descriptor of a BPF ring buffer."""

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
        """Sleep so long, or until a probe wakes us, or until `stop`; whether something did."""
        woken = bool(self._epoll.poll(seconds))
        # What rings from here on is heard by the next call.
        self._consumer[0] = self._producer[0]
        return woken

    def stop(self) -> None:
        """End this and every later sleep; also from other threads and signal handlers."""
        os.eventfd_write(self._stopped, 1)

    def resume(self) -> None:
        """Take `stop` back."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._stopped)

    def close(self) -> None:
        """Let go of what was waited for."""
        self._epoll.close()
        os.close(self._stopped)
