"""Kernel time to wall time."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from rocescope.probes import bpf as clock

S = 1_000_000_000


def test_offset_is_that_of_the_clocks():
    offset_ns, uncertainty_ns = clock.measure()
    wall, monotonic = time.time_ns(), time.monotonic_ns()
    assert 0 <= uncertainty_ns < 1_000_000
    assert abs(wall - monotonic - offset_ns) < 1_000_000


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("seconds", ["100000", "-1"])
def test_in_a_time_namespace_the_probes_keep_the_time_of_the_host(seconds, need_tool, unavailable):
    """BPF programs do not know such namespaces (time_namespaces(7))."""
    code = "from rocescope.probes import clock; print(clock.measure()[0])"
    command = [need_tool("unshare"), "--time", "--monotonic", seconds, sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unshare:" in done.stderr:
        unavailable(done.stderr)
    assert abs(int(done.stdout) - clock.measure()[0]) < 100_000_000


def test_offset_stays_until_the_clock_is_set(monkeypatch):
    now = time.monotonic_ns()
    readings = iter([(1 * S, 50), (1 * S + 80_000, 60), (5 * S, 40), (3 * S, 40)])
    monkeypatch.setattr(clock, "measure", lambda: next(readings))
    monkeypatch.setattr(clock.time, "monotonic_ns", lambda: now)
    wall = clock.WallClock()
    wall.check()  # too early to look
    assert (wall.offset_ns, wall.steps) == (1 * S, 0)
    now += 1_100_000_000
    wall.check()  # noise
    assert (wall.offset_ns, wall.steps) == (1 * S, 0)
    now += 1_100_000_000
    wall.check()
    assert (wall.offset_ns, wall.steps, wall.set_back) == (5 * S, 1, 0)
    now += 1_100_000_000
    wall.check()
    assert (wall.offset_ns, wall.steps, wall.set_back) == (3 * S, 2, 1)
