"""Idle gaps against a plain count."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tracked_batches import CUTS, START_NS, parts, split_by_flow, tracked, updated

from rocescope.analyzer.measures.series import Idle
from rocescope.analyzer.results.flow import IdleGaps


def test_known_gaps():
    times = np.cumsum([0, 1, 10_000, 10_001, 50_001, 100_000, 100_001, 700_000, -5_000_000, 3])
    got = updated(Idle(), [tracked([{"time_ns": START_NS + int(t)} for t in times])])
    assert got.gaps(0) == IdleGaps(
        over_10us=5, over_50us=4, over_100us=2, over_500us=1, max_ns=700_000
    )
    assert got.gaps(77) == IdleGaps(0, 0, 0, 0, 0)


steps = st.sampled_from([0, 1, 9_999, 10_000, 10_001, 60_000, 100_001, 10**6, -20_000])
rows = st.lists(st.tuples(st.integers(0, 3), steps), max_size=50).map(
    lambda items: [
        {"flow": flow, "time_ns": START_NS + int(t)}
        for (flow, _), t in zip(items, np.cumsum([s for _, s in items]), strict=True)
    ]
)


def twin(rows, flow):
    times = [r["time_ns"] for r in rows if r["flow"] == flow]
    gaps = [b - a for a, b in itertools.pairwise(times)]
    over = [sum(g > limit * 1000 for g in gaps) for limit in (10, 50, 100, 500)]
    return IdleGaps(*over, max([0, *gaps]))  # type: ignore[call-arg]


@given(rows, CUTS)
def test_equals_the_twin_however_the_capture_is_split_or_merged(rows, cuts):
    batch = tracked(rows, 4)
    got = updated(Idle(), parts(batch, cuts))
    even, odd, flows = split_by_flow(batch)
    merged = updated(Idle(), [even])
    merged.merge(updated(Idle(), [odd]), flows)
    for flow in range(4):
        assert got.gaps(flow) == merged.gaps(flow) == twin(rows, flow)
