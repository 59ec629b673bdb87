"""Path shares: sums, fairness and the line for the rest."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rocescope.analyzer.statistics.shares import (
    LISTED_PATHS,
    NOTHING,
    Carried,
    jain,
    path_shares,
    together,
    width,
)


@pytest.mark.parametrize("n", [1, 2, 3, 64])
def test_equal_paths(n):
    assert width(np.full(n, 1234)) == pytest.approx(n)
    assert jain(np.full(n, 1234)) == pytest.approx(1)


def test_unequal_paths_by_hand():
    assert width(np.array([3, 1])) == pytest.approx(4 / 3 ** (3 / 4))
    assert jain(np.array([3, 1])) == pytest.approx(16 / 20)
    assert width(np.array([5, 0])) == 1
    assert jain(np.array([5, 0, 0, 0])) == pytest.approx(1 / 4)
    assert width(np.array([1, 1, 2])) == pytest.approx(math.exp(1.5 * math.log(2)))


def test_unused_paths_have_no_times():
    assert together([]) == together([NOTHING]) == NOTHING
    one, other = Carried(2, 200, 1, 0, 7, 9), Carried(1, 50, 0, 1, 3, 8)
    assert together([one, NOTHING, other]) == Carried(3, 250, 1, 1, 3, 9)
    used, unused = path_shares([("a", one), ("b", NOTHING)])
    assert (used.share, used.first_time_ns, used.last_time_ns) == (1, 7, 9)
    assert (unused.share, unused.first_time_ns, unused.last_time_ns) == (0, None, None)


@pytest.mark.parametrize(("paths", "last"), [(LISTED_PATHS, "63"), (LISTED_PATHS + 1, "2 more")])
def test_the_last_line_stands_for_the_rest(paths, last):
    shares = path_shares([(str(i), Carried(1, 10, 0, 0, i, i)) for i in range(paths)])
    assert (len(shares), shares[-1].path) == (LISTED_PATHS, last)
    assert sum(s.wire_bytes for s in shares) == 10 * paths
    assert sum(s.share for s in shares) == pytest.approx(1)
    assert shares[-1].last_time_ns == paths - 1
