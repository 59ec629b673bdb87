"""Clocks that are set forward, by the times of the same packets at several taps."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from tracked_batches import tracked

from rocescope.analyzer.measures.hops import measure as module
from rocescope.analyzer.measures.hops.measure import LEAST_SAMPLES, SampledTimes
from rocescope.analyzer.measures.hops.passing import LEAST_HORIZON_NS

MS, SECOND = 10**6, 10**9


def sighting(psn, tap, time_ns, **more):
    return {"flow": 0, "psn": psn, "tap": tap, "time_ns": time_ns, "ip_id": psn & 0xFFFF, **more}


def seen(rows):
    times = SampledTimes()
    times.update(tracked(sorted(rows, key=lambda row: row["time_ns"])).table)
    return times


def passing(late, packets=200, taps=3, gap=MS):
    """Packets that pass all taps, and are late by `late(psn, tap)`."""
    return [
        sighting(psn, tap, SECOND + psn * gap + tap * 1000 + late(psn, tap))
        for psn in range(packets)
        for tap in range(taps)
    ]


def found(rows, clocks=(0, 1, 2), set_back=frozenset()):
    return seen(rows).jumps(list(clocks), set(set_back))


@pytest.mark.parametrize("taps", [2, 3])
@pytest.mark.parametrize("tap", [0, 1])
@pytest.mark.parametrize("ns", [300 * MS, 5 * SECOND, 3600 * SECOND])
def test_one_clock_is_set_forward(taps, tap, ns):
    rows = passing(lambda psn, at: ns if at == tap and psn >= 100 else 0, taps=taps)
    assert list(found(rows, range(taps))) == [tap]
    times, total = found(rows, range(taps))[tap]
    assert times == 1
    assert abs(total - ns) < MS


def test_a_clock_is_set_forward_twice():
    rows = passing(lambda psn, tap: (5 * SECOND) * ((psn >= 50) + (psn >= 120)) * (tap == 1))
    assert found(rows) == {1: (2, 10 * SECOND)}


def test_taps_with_one_clock_jump_together():
    rows = passing(lambda psn, tap: 5 * SECOND * (tap < 3 and psn >= 100), taps=5)
    assert set(found(rows, (0, 0, 0, 3, 4))) == {0, 1, 2}


@pytest.mark.parametrize(
    "late",
    [
        lambda psn, tap: 0,
        lambda psn, tap: 3600 * SECOND * (tap == 1),  # differs all the time
        lambda psn, tap: (150 - psn) * 50 * MS * (tap == 2 and 100 <= psn < 150),  # held back
        lambda psn, tap: 2 * SECOND * (tap == 2 and psn >= 100 and psn % 16 > 0),  # one direction
        lambda psn, tap: (psn - 100) * 50 * MS * (tap == 2 and psn >= 100),  # it grows
        lambda psn, tap: 200 * MS * (tap == 1 and psn >= 100),  # less than packets wait
        lambda psn, tap: 5 * SECOND * (tap == 1 and psn >= 200 - LEAST_SAMPLES + 1),
        lambda psn, tap: 5 * SECOND * (psn >= 100),  # all of them: a pause
        lambda psn, tap: 10 * SECOND * (tap == 2 and psn >= 150 and psn % 4 == 0),  # a slow class
    ],
)
def test_no_jump(late):
    assert found(passing(late, gap=50 * MS)) == {}


def test_times_that_go_back_make_no_other_clock_jump():
    rows = passing(lambda psn, tap: -900 * MS * (tap == 0 and psn >= 100), taps=2)
    assert found(rows, (0, 1), {0}) == {}


def test_packets_retransmitted_after_a_pause_are_no_jump():
    """Lost after the first tap, and retransmitted with the same identification."""
    rows = passing(lambda psn, tap: 5 * SECOND * (psn >= 100 and tap > 0))
    again = [sighting(psn, 0, SECOND + psn * MS + 5 * SECOND) for psn in range(100, 200)]
    assert found(rows + again) == {}


def plain(own, offsets):
    """The same by plain lists."""
    floor = [min(offsets[i:]) for i in range(len(offsets))]
    steps = [
        (i + 1, b - a)
        for i, (a, b) in enumerate(pairwise(floor))
        if b - a > LEAST_HORIZON_NS and own[i + 1] - own[i] > 0.75 * (b - a)
    ]
    cuts = [0, *(at for at, _ in steps), len(own)]
    parts = [offsets[a:b] for a, b in pairwise(cuts)]
    if not steps or min(map(len, parts)) < LEAST_SAMPLES:
        return None
    if any(
        np.median(part) - min(part) > step / 4
        for part, (_, step) in zip(parts[1:], steps, strict=True)
    ):
        return None
    sent = [a - b for a, b in zip(own, offsets, strict=True)]
    if any(np.median(sent[a:b]) < max(sent[:a]) for a, b in pairwise(cuts[1:])):
        return None
    return len(steps), sum(step for _, step in steps)


@examples(100)
@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 3), st.integers(0, 100)), max_size=6),
    st.randoms(use_true_random=False),
)
def test_jumps_against_a_plain_twin(spans, chance):
    own, offsets, now, level = [], [], 0, 0
    for packets, jump, jitter in spans:
        level += jump * 200 * MS
        now += jump * 200 * MS
        for _ in range(packets):
            now += MS
            own.append(now)
            offsets.append(level + chance.randrange(jitter * MS + 1))
    arrays = np.array(own, np.int64), np.array(offsets, np.int64)
    assert module._jumps(*arrays) == plain(own, offsets)


@examples(30)
@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 3)), max_size=300))
def test_a_full_sample_has_the_same_packets_at_all_taps(rows):
    """Whatever stays is complete: all sightings of its packets."""
    most, module.MOST_SAMPLES = module.MOST_SAMPLES, 1 << 10
    try:
        times, every = SampledTimes(), defaultdict(list)
        for part in range(8):
            batch = [
                sighting(part << 12 | psn, tap, part * SECOND + i)
                for i, (psn, tap) in enumerate(rows)
            ]
            if batch:
                times.update(tracked(batch).table)
        whole = SampledTimes()
        module.MOST_SAMPLES = most
        for part in range(8):
            batch = [
                sighting(part << 12 | psn, tap, part * SECOND + i)
                for i, (psn, tap) in enumerate(rows)
            ]
            if batch:
                whole.update(tracked(batch).table)
    finally:
        module.MOST_SAMPLES = most
    for sample in whole.samples.tolist():
        every[sample[0]].append(sample)
    kept = defaultdict(list)
    for sample in times.samples.tolist():
        kept[sample[0]].append(sample)
    assert len(times.samples) <= 1 << 10
    assert all(kept[key] == every[key] for key in kept)
    assert len(kept) > 0 or not rows
