"""Sleeping until there is something to do.

The probes wake the reader only when a good part of a ring is filled, so few
times per second at the highest rates; what comes in slowly waits for the end
of the sleep. Both cost next to no processor time.
"""

from __future__ import annotations

import os
import select
from collections.abc import Iterable
from contextlib import suppress

from .ring import Ring


class Wakeups:
    """What can wake one reader."""

    def __init__(self, rings: Iterable[Ring]) -> None:
        self._epoll = select.epoll()
        self._stopped = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._stopped, select.EPOLLIN)
        for ring in rings:
            # On edges only: a ring is "readable" as long as anything is in it.
            self._epoll.register(ring.fd, select.EPOLLIN | select.EPOLLET)

    def wait(self, seconds: float) -> None:
        """Sleep so long, or until a probe wakes us, or until `stop`."""
        self._epoll.poll(seconds)

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
