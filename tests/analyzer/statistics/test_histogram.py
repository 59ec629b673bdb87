"""Histograms: exact where they say so, within a sixteenth elsewhere, never out of range."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.statistics.histogram import (
    BUCKETS,
    HistogramPool,
    bucket_bounds,
    bucket_of,
    observe,
)
from rocescope.analyzer.statistics.per_flow import kept_flows
from rocescope.kernels.kernel import kernel

LARGEST = (1 << 63) - 1


@kernel
def observe_all(histograms, flow, kind, values):
    for i in range(len(values)):
        observe(histograms, flow, kind, values[i])


def filled(*values, flow=0):
    pool = HistogramPool(2)
    pool.grow(flow + 1)
    observe_all(pool.arrays, flow, 1, np.array(values, np.int64))
    return pool


@given(st.integers(0, LARGEST))
def test_every_value_is_in_its_bucket(value):
    bucket = int(bucket_of(value))
    low, high = bucket_bounds(bucket)
    assert 0 <= bucket < BUCKETS
    assert low <= value < high
    assert high - low <= max(1, value / 16)


@given(st.lists(st.integers(-5, 10**9), min_size=1, max_size=50))
def test_statistics_of_a_few_values(values):
    found = filled(*values).quantiles(0, 1)
    values = sorted(max(v, 0) for v in values)
    assert (found.count, found.min, found.max) == (len(values), values[0], values[-1])
    assert found.mean == pytest.approx(sum(values) / len(values))
    low, high = values[(len(values) - 1) // 2], values[len(values) // 2]
    assert low * 0.93 - 1 <= found.p50 <= high * 1.07 + 1


def test_sums_of_centuries_stay_at_their_limit():
    """Damaged time stamps: a sum that wrapped around would make a negative mean."""
    pool = filled(LARGEST, LARGEST, LARGEST)
    assert pool.quantiles(0, 1).mean == LARGEST / 3
    pool.add_all(filled(LARGEST))
    assert pool.quantiles(0, 1).mean == LARGEST / 4
    assert pool.quantiles(0, 1).max == LARGEST


@given(st.lists(st.integers(0, 10**12), max_size=20), st.lists(st.integers(0, 10**12), max_size=20))
def test_parts_merge_and_add_up(one, other):
    added, merged, whole = filled(*one), filled(*one), filled(*one, *other)
    added.add_all(filled(*other, flow=3))
    assert added.quantiles(0, 1) == whole.quantiles(0, 1)
    assert added.bins(0, 1) == whole.bins(0, 1)
    merged.merge(filled(*other, flow=3), np.array([8, 9, 10, 6], np.int32))
    assert merged.bins(0, 1) == filled(*one).bins(0, 1)
    assert merged.bins(6, 1) == filled(*other).bins(0, 1)
    assert merged.quantiles(7, 1) is None


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 1), st.integers(0, 1 << 40))),
    st.lists(st.booleans(), min_size=10, max_size=10),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 1), st.integers(0, 1 << 40))),
)
def test_histograms_of_kept_flows_go_on(before, stays, after):
    pool, alone = HistogramPool(2), HistogramPool(2)
    for histograms in (pool, alone):
        histograms.grow(10)
    kept = kept_flows(np.array(stays))
    for flow, kind, value in before:
        observe_all(pool.arrays, flow, kind, np.array([value]))
        if stays[flow]:
            observe_all(alone.arrays, int(kept.number[flow]), kind, np.array([value]))
    pool.keep(kept)
    for flow, kind, value in after:
        observe_all(pool.arrays, flow, kind, np.array([value]))
        observe_all(alone.arrays, flow, kind, np.array([value]))
    for flow in range(10):
        for kind in range(2):
            assert pool.bins(flow, kind) == alone.bins(flow, kind)
            assert pool.quantiles(flow, kind) == alone.quantiles(flow, kind)
    assert pool.arrays.used.tolist() == alone.arrays.used.tolist()
