"""The benchmark's stop-watch: times and memory belong to the child, failures have their reason."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from measure import CommandFailed, Cost, alternately, median, run


def python(code: str, **options: bool) -> Cost:
    return run([sys.executable, "-c", code], **options)


def test_waiting_takes_wall_time_and_no_cpu_time() -> None:
    cost = python("import time; time.sleep(0.5)")
    assert cost.wall >= 0.5
    assert cost.cpu < 0.5


def test_peak_memory_is_what_the_child_touched(checkout: Path) -> None:
    # In a process of its own: this one is large by now, see `run`.
    measuring = """
import sys
from measure import run
print(run([sys.executable, "-c", "b = b'x' * 300_000_000"]).peak_bytes)
"""
    command = [sys.executable, "-c", measuring]
    folder = checkout / "benchmarks"
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    assert 300e6 < int(done.stdout) < 330e6


def test_one_core_means_one_core() -> None:
    cost = python("import os; print(len(os.sched_getaffinity(0)))", one_core=True, keep_output=True)
    assert cost.output == "1\n"


def test_a_failing_command_says_what_it_said() -> None:
    with pytest.raises(CommandFailed, match=r"exit 3: out of coffee"):
        python("import sys; print('out of coffee', file=sys.stderr); sys.exit(3)")


def test_sides_take_turns_and_each_figure_has_its_own_median() -> None:
    order = []

    def side(name: str) -> Cost:
        order.append(name)
        return Cost(len(order), 10 - len(order), len(order) * 100)

    ours, peer = alternately(3, lambda: side("ours"), lambda: side("peer"))
    assert order == ["ours", "peer"] * 3
    assert median(ours) == Cost(3, 7, 300)
    assert median(peer) == Cost(4, 6, 400)
    assert ours[2].less(ours[0]) == Cost(4, -4, 500)
