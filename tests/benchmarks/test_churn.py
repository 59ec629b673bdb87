"""Memory of an analysis in which queue pairs come and go."""

from __future__ import annotations

import re
import subprocess
import sys

import churn
import pytest


@pytest.mark.thorough
def test_memory_is_bounded_by_the_flows_that_are_active():
    """10,000 new queue pairs a minute: the limit that an hour of them keeps, too. In a process of
    its own, because Linux counts the memory of a parent into the peak of its child.
    """
    command = [sys.executable, churn.__file__, "6", "5000"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    ended, peak = map(int, re.search(r"(\d+) flows ended, peak (\d+) MB", done.stdout).groups())
    assert ended > 40_000
    assert peak < 400


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["live", "session"])
def test_live_sums_are_exact_and_the_worst_stay_listed(mode):
    """`measured` compares them; here flows leave memory in the minutes after the first."""
    command = [sys.executable, churn.__file__, "3", "5000", mode]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    ended, peak = map(int, re.search(r"(\d+) flows ended, peak (\d+) MB", done.stdout).groups())
    assert ended > 0
    assert peak < 1000
