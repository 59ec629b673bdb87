"""Wilson intervals against values of the literature and their definition."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.statistics.proportion import wilson


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
