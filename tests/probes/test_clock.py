"""Kernel time to wall time."""

from __future__ import annotations

import time

from rocescope.probes import clock


def test_offset_is_that_of_the_clocks():
    offset_ns, uncertainty_ns = clock.measure()
    wall, monotonic = time.time_ns(), time.monotonic_ns()
    assert 0 <= uncertainty_ns < 1_000_000
    assert abs(wall - monotonic - offset_ns) < 1_000_000


def test_offset_stays_until_the_clock_is_set(monkeypatch):
    now = time.monotonic_ns()
    readings = iter([(1_000_000_000, 50), (1_000_080_000, 60), (5_000_000_000, 40)])
    monkeypatch.setattr(clock, "measure", lambda: next(readings))
    monkeypatch.setattr(clock.time, "monotonic_ns", lambda: now)
    wall = clock.WallClock()
    wall.check()  # too early to look
    assert (wall.offset_ns, wall.steps) == (1_000_000_000, 0)
    now += 1_100_000_000
    wall.check()  # noise
    assert (wall.offset_ns, wall.steps) == (1_000_000_000, 0)
    now += 1_100_000_000
    wall.check()
    assert (wall.offset_ns, wall.steps) == (5_000_000_000, 1)
