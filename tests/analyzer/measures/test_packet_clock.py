"""The packet clock is the median of the latest packets, however the batches are cut."""

from __future__ import annotations

import statistics

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from traffic import batches, packets

from rocescope.analyzer.measures.measuring import LATEST, PacketClock

TIMES = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=60)


@given(TIMES, st.lists(st.integers(0, 60)))
def test_the_median_of_the_latest_packets(times, cuts):
    clock = PacketClock()
    assert clock.now_ns is None
    table = packets([{"time_ns": time} for time in times])
    for part in batches(table, cuts):
        clock.update(part.time_ns)
    expected = statistics.median_low(times[-LATEST:]) if times else None
    assert clock.now_ns == expected


@given(st.lists(st.integers(0, 1000), min_size=LATEST), st.data())
def test_seven_wild_times_among_fifteen_packets_stay_within_the_others(times, data):
    times = sorted(times)[-LATEST:]
    clock = PacketClock()
    wild = data.draw(st.sets(st.integers(0, LATEST - 1), max_size=LATEST // 2))
    mixed = [10**18 if at in wild else time for at, time in enumerate(times)]
    clock.update(np.array(mixed, np.int64))
    assert times[0] <= clock.now_ns <= times[-1]
