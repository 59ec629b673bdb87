"""Loads and queues over time, against a plain count at the final length of an interval."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from rocescope.replay.packets.links.load_bins import add_load, add_queue, filled
from rocescope.replay.packets.model import run_state as rs

LINKS, BINS = 2, 8


@pytest.mark.thorough
@examples(80)
@given(
    st.lists(
        st.tuples(
            st.booleans(),
            st.integers(0, LINKS - 1),
            st.integers(1, 9000),
            st.integers(0, 3_000),
            st.integers(1, 200),
        ),
        min_size=1,
        max_size=40,
    )
)
def test_bytes_are_summed_and_queues_are_the_longest(
    events: list[tuple[bool, int, int, int, int]],
) -> None:
    loads = np.zeros((BINS, 2 * LINKS), np.int64)
    counts = np.zeros(rs.COUNTS, np.int64)
    counts["load_bin_ps"][0] = 10
    for served, link, size, at, service in events:
        if served:
            add_load(loads, counts, link, size, at, service)
        else:
            add_queue(loads, counts, link, size, at)
    length = int(counts["load_bin_ps"][0])
    ends = [at + (service if served else 1) for served, _, _, at, service in events]
    assert length * BINS >= max(ends) and (length == 10 or length // 2 * BINS < max(ends))
    for link in range(LINKS):
        own = [event[0:1] + event[2:] for event in events if event[1] == link]
        for interval in range(BINS):
            begin, end = interval * length, (interval + 1) * length
            queues = [size for served, size, at, _ in own if not served and begin <= at < end]
            assert loads[interval, LINKS + link] == max(queues, default=0)
            exact = sum(
                Fraction(size * max(0, min(end, at + service) - max(begin, at)), service)
                for served, size, at, service in own
                if served
            )
            assert abs(loads[interval, link] - exact) <= len(own)
        assert loads[:, link].sum() == sum(size for served, size, _, _ in own if served)
    assert filled(loads).sum() == loads.sum()
