"""Distributions without keeping values, against numpy on all of them."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocescope.replay.seeds.tally import Extremes, Tally

VALUES = st.lists(st.integers(0, 1000).map(lambda v: v / 10), min_size=1, max_size=200)


@given(VALUES, st.integers(1, 50))
def test_quantiles_extremes_and_mean(values: list[float], cut: int) -> None:
    array = np.array(values)
    whole, other = Tally(100), Tally(100)
    whole.add(array[:cut])
    other.add(array[cut:])
    whole.merge(other)
    found = whole.distribution()
    assert (found.min, found.max) == (array.min(), array.max())
    assert found.mean == pytest.approx(array.mean())
    assert sum(one.count for one in found.histogram) == len(array)
    assert found.histogram[0].low <= found.min + 1e-9  # bins have rounded borders
    assert found.max < found.histogram[-1].high + 1e-9
    for name, value in found.quantiles.items():
        exact = np.percentile(array, int(name[1:]), method="inverted_cdf")
        assert abs(value - exact) <= found.resolution
    distinct = len(np.unique(array))
    assert found.distinct == (distinct if distinct <= 64 else None)


@given(st.lists(st.floats(0, 100), min_size=2, max_size=40), st.randoms())
def test_the_mean_does_not_depend_on_the_order_of_parts(values: list[float], order: Random) -> None:
    def mean() -> float:
        whole = Tally(100)
        for value in values:
            part = Tally(100)
            part.add(np.array([value]))
            whole.merge(part)
        return whole.mean

    before = mean()
    order.shuffle(values)
    assert mean() == before


@given(VALUES, st.integers(1, 20), st.integers(1, 50), st.booleans())
def test_extreme_seeds(values: list[float], keep: int, cut: int, largest: bool) -> None:
    array = np.array(values)
    seeds = np.arange(len(array), dtype=np.uint64) + 7
    found, other = Extremes(keep, largest), Extremes(keep, largest)
    found.add(seeds[:cut], array[:cut])
    other.add(seeds[cut:], array[cut:])
    found.merge(other)
    sign = -1 if largest else 1
    expected = sorted(zip(sign * array, seeds.tolist(), strict=True))[:keep]
    assert [(sign * one.value, one.seed) for one in found.records()] == expected
