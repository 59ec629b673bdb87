"""Kernel time (CLOCK_MONOTONIC) to wall time."""

from __future__ import annotations

import time

_PAIRS = 16
_CHECK_EVERY_NS = 1_000_000_000
_STEP_NS = 200_000


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
            self.offset_ns, self._uncertainty_ns = offset_ns, uncertainty_ns


def measure() -> tuple[int, int]:
    """(wall - monotonic, half the width of the reading) in ns: the best of several readings."""
    best = (0, 1 << 62)
    for _ in range(_PAIRS):
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        wall = time.clock_gettime_ns(time.CLOCK_REALTIME)
        after = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        if after - before < best[1]:
            best = (wall - (before + after) // 2, after - before)
    return best[0], best[1] // 2
