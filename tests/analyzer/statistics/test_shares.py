"""Wilson intervals against values of the literature and their definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.statistics.shares import (
    LISTED_PATHS,
    NOTHING,
    Carried,
    jain,
    path_shares,
    together,
    width,
    wilson,
)

# Wilson intervals against values of the literature and their definition.


def test_values_of_the_literature():
    """Newcombe, Statistics in Medicine 17 (1998), table I, method 3."""
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(15, 148) == pytest.approx((0.0624, 0.1605), abs=5e-5)
    assert wilson(0, 20) == pytest.approx((0, 0.1611), abs=5e-5)
    assert wilson(1, 29) == pytest.approx((0.0061, 0.1718), abs=5e-5)
    assert wilson(29, 29) == pytest.approx((0.8830, 1), abs=5e-5)
    assert wilson(0, 0) == (0, 1)


@given(st.integers(1, 10**6).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_both_ends_are_1_96_standard_errors_from_the_share(trial):
    hits, of = trial
    low, high = wilson(hits, of)
    assert 0 <= low <= hits / of <= high <= 1
    for end in (low, high):
        if 0 < end < 1:
            error = math.sqrt(end * (1 - end) / of)
            assert abs(hits / of - end) == pytest.approx(1.959964 * error, rel=1e-4, abs=1e-12)


# Path shares: sums, fairness and the line for the rest.


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
