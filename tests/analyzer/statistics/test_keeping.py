"""Some flows stay, the others leave memory."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.statistics.histogram import HistogramPool
from rocescope.analyzer.statistics.keeping import front_of, kept_flows, places_of, rows_of


@given(st.lists(st.booleans(), min_size=1, max_size=30), st.integers(1, 3), st.integers(0, 4))
def test_rows_of_kept_flows_come_first(stays, per, room):
    kept = kept_flows(np.array(stays))
    known = [flow for flow, stay in enumerate(stays) if stay]
    assert kept.flows.tolist() == known
    assert [kept.number[flow] for flow in known] == list(range(len(known)))
    array = np.arange(1, per * (len(stays) + room) + 1)
    rows = rows_of(array, kept, per)
    wanted = [per * flow + i + 1 for flow in known for i in range(per)]
    assert len(rows) == len(array)
    assert rows.tolist() == wanted + [0] * (len(array) - len(wanted))
    assert rows_of(array, kept, per, fill=-1)[len(wanted) :].tolist() == [-1] * (
        len(array) - len(wanted)
    )


def test_arrays_that_have_not_grown_keep_what_they_have():
    kept = kept_flows(np.array([True, False, True, True]))
    assert rows_of(np.array([7, 8, 9]), kept).tolist() == [7, 9, 0]
    assert kept.holds(np.array([0, 1, 3, -1])).tolist() == [True, False, True, False]


def test_records_in_use_move_to_the_front_of_their_pool():
    references, pool = np.array([3, 0, 1, 4]), np.array([10, 11, 12, 13, 14])
    places = places_of(references)
    assert front_of(pool, places).tolist() == [12, 10, 13, 0, 0]
    assert references.tolist() == [1, 0, 2, 3]


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 1), st.integers(0, 1 << 40))),
    st.lists(st.booleans(), min_size=10, max_size=10),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 1), st.integers(0, 1 << 40))),
)
def test_histograms_of_kept_flows_go_on(before, stays, after):
    pool, alone = HistogramPool(2), HistogramPool(2)
    for one in (pool, alone):
        one.grow(10)
    kept = kept_flows(np.array(stays))
    for flow, kind, value in before:
        pool.add_values(flow, kind, value, 1)
        if stays[flow]:
            alone.add_values(int(kept.number[flow]), kind, value, 1)
    pool.keep(kept)
    for flow, kind, value in after:
        pool.add_values(flow, kind, value, 1)
        alone.add_values(flow, kind, value, 1)
    for flow in range(10):
        for kind in range(2):
            assert pool.bins(flow, kind) == alone.bins(flow, kind)
            assert pool.quantiles(flow, kind) == alone.quantiles(flow, kind)
    assert pool.arrays.used.tolist() == alone.arrays.used.tolist()
