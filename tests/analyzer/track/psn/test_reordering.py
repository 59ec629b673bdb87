"""Streaming RFC 4737 metrics against the definitions by the letter."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from rfc4737_twin import measure
from traffic import START_NS, packets, track

from rocescope.analyzer.track import state
from rocescope.analyzer.track.batch import DUPLICATE, REORDERED
from rocescope.analyzer.track.tracker import FlowTracker

SLACK = 30
"""Packets a tracker must know again although they were sent before the first one it saw."""


@st.composite
def disordered(draw):
    """(send positions in order of arrival, positions that come twice): loss, delay, duplicates."""
    count = draw(st.integers(2, 150))
    spread = draw(st.sampled_from([0, 1, 3, 12, 60]))
    delay = draw(st.lists(st.integers(0, spread), min_size=count, max_size=count))
    keep = draw(st.lists(st.sampled_from([True] * 9 + [False]), min_size=count, max_size=count))
    order = sorted((i for i in range(count) if keep[i]), key=lambda i: (i + delay[i], i))
    if not order or order[0] > SLACK:
        order = list(range(count))
    twice = draw(st.sets(st.integers(0, len(order) - 1), max_size=5))
    return order, twice


def rows_of(order, twice, start):
    """Rows as they arrive. Identifications are given in order of sending."""
    rows = []
    for at, i in enumerate(order):
        row = {
            "psn": start + i,
            "ip_id": (1000 + i) & 0xFFFF,
            "payload_bytes": 100 + i % 7,
            "time_ns": START_NS + 1000 * at,
        }
        rows.append(row)
        if at in twice:
            rows.append(row)
    return rows


@pytest.mark.thorough
@examples(300)
@given(disordered(), st.sampled_from([0, 5, 0xFFFFF0, 0xFFFFFF]), st.lists(st.integers(1, 150)))
def test_equals_the_definitions(traffic, start, cuts):
    order, twice = traffic
    tracker = FlowTracker()
    verdicts = track(tracker, packets(rows_of(order, twice, start)), cuts)
    expected = measure([(i, START_NS + 1000 * at, 100 + i % 7) for at, i in enumerate(order)])
    stream, histograms = tracker.stream(0, state.REQUESTS), tracker.histograms

    assert stream["arrivals"] == len(order)
    assert stream["reordered"] == expected.reordered == np.count_nonzero(verdicts == REORDERED)
    assert stream["duplicates"] == len(twice) == np.count_nonzero(verdicts == DUPLICATE)
    assert stream["retransmitted"] == stream["recovered"] == 0
    assert stream["max_extent"] == max(expected.extents, default=0)
    small = {b.low: b.count for b in histograms.bins(0, state.EXTENT) if b.high == b.low + 1}
    assert small == {e: n for e, n in expected.extents.items() if e < 32}
    for kind, values in (
        (state.LATE_TIME, expected.late_times),
        (state.HELD_PACKETS, expected.held),
        (state.BYTE_OFFSET, expected.byte_offsets),
        (state.GAP_PACKETS, expected.gaps),
        (state.GAP_TIME, expected.gap_times),
    ):
        q = histograms.quantiles(0, kind)
        if not values:
            assert q is None
        else:
            assert (q.count, q.min, q.max) == (len(values), min(values), max(values))
            assert q.mean == pytest.approx(sum(values) / len(values))
    degrees = Counter(
        {n + 1: int(c) for n, c in enumerate(tracker.n_counts(0, state.REQUESTS)) if c}
    )
    capped = Counter()
    for n, c in expected.n_degrees.items():
        capped[min(n, state.STACK)] += c
    assert degrees == capped
    assert stream["max_n"] == max(expected.n_degrees, default=0)
    assert stream["runs"] == len(expected.runs)
    assert stream["run_packets"] == sum(expected.runs)
    assert stream["run_packets_squared"] == sum(r * r for r in expected.runs)


VECTORS = [  # arrivals; extents, byte offsets (100 bytes each), largest n of the late packets
    ([1, 2, 3, 5, 6, 7, 8, 4, 9, 10], [4], [400], [4]),
    ([1, 2, 3, 7, 8, 9, 10, 4, 5, 6, 11], [4, 5, 6], [400, 400, 400], [4]),
    ([1, 2, 3, 6, 8, 4, 7, 5, 9], [2, 2, 4], [200, 100, 300], [2, 1]),
]


@pytest.mark.parametrize(("arrivals", "extents", "offsets", "degrees"), VECTORS)
def test_worked_examples(arrivals, extents, offsets, degrees):
    rows = [{"psn": s, "ip_id": s, "payload_bytes": 100} for s in arrivals]
    tracker = FlowTracker()
    track(tracker, packets(rows))
    bins = {b.low: b.count for b in tracker.histograms.bins(0, state.EXTENT)}
    assert bins == Counter(extents)
    q = tracker.histograms.quantiles(0, state.BYTE_OFFSET)
    assert (q.min, q.max, q.mean) == (min(offsets), max(offsets), np.mean(offsets))
    found = tracker.n_counts(0, state.REQUESTS)
    assert sorted(n + 1 for n, c in enumerate(found) for _ in range(c)) == sorted(degrees)


def test_a_gap_wider_than_the_first_window_keeps_every_missing_psn():
    late = list(range(10, 3000))
    order = [*range(10), *range(3000, 3100), *late]
    rows = [{"psn": i, "ip_id": i, "time_ns": START_NS + at} for at, i in enumerate(order)]
    tracker = FlowTracker()
    verdicts = track(tracker, packets(rows))
    assert np.count_nonzero(verdicts == REORDERED) == len(late)
    assert tracker.missing(0, state.REQUESTS) == (0, 0)
    # All refer to the same jump; the first comes 100 packets later, each next one 1 more.
    assert tracker.stream(0, state.REQUESTS)["max_extent"] == 100 + len(late) - 1
