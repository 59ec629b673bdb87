"""Kernel time (CLOCK_MONOTONIC) to wall time."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import cache

_PAIRS = 16
_CHECK_EVERY_NS = 1_000_000_000
_STEP_NS = 200_000
_SET_BACK_NS = 1_000_000_000


class WallClock:
    """The offset between the two clocks.

    Both clocks run at the same, disciplined rate; their offset changes only
    when the wall clock is set. So the offset is measured precisely once, and
    again only after a check, once per second, detects a step: times within a
    capture do not drift.
    """

    def __init__(self) -> None:
        self.offset_ns, self._uncertainty_ns = measure()
        self._checked_ns = time.monotonic_ns()
        self.steps = 0
        """Number of steps of the wall clock during the capture."""
        self.set_back = 0
        """Number of them that went back by more than a second."""

    def check(self) -> None:
        """Check for a step, at most once per second."""
        now = time.monotonic_ns()
        if now - self._checked_ns < _CHECK_EVERY_NS:
            return
        self._checked_ns = now
        offset_ns, uncertainty_ns = measure()
        limit_ns = _STEP_NS + self._uncertainty_ns + uncertainty_ns
        if abs(offset_ns - self.offset_ns) > limit_ns:
            self.steps += 1
            self.set_back += self.offset_ns - offset_ns > _SET_BACK_NS
            self.offset_ns, self._uncertainty_ns = offset_ns, uncertainty_ns


def kernel_ns() -> int:
    """The time of BPF programs: that of the host, also in a container with its own clock."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) - _namespace_offset_ns()


@cache
def _namespace_offset_ns() -> int:
    """What the time namespace adds to the host's CLOCK_MONOTONIC (time_namespaces(7))."""
    with suppress(OSError, ValueError), open("/proc/self/timens_offsets") as file:
        for line in file:
            clock, seconds, nanoseconds = line.split()
            if clock in ("monotonic", str(time.CLOCK_MONOTONIC)):
                return int(seconds) * 1_000_000_000 + int(nanoseconds)
    return 0


def measure() -> tuple[int, int]:
    """(wall - kernel time, half the width of the reading) in ns: the best of several readings."""
    best = (0, 1 << 62)
    for _ in range(_PAIRS):
        before = kernel_ns()
        wall = time.clock_gettime_ns(time.CLOCK_REALTIME)
        after = kernel_ns()
        if after - before < best[1]:
            best = (wall - (before + after) // 2, after - before)
    return best[0], best[1] // 2
