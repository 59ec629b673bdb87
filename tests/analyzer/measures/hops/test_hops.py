"""The hop measure: growth, horizon and bounds."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from journeys import edge, hop
from tracked_batches import parts, tracked

from rocescope.analyzer.measures.hops import measure, state
from rocescope.analyzer.measures.hops import measure as measure_module
from rocescope.analyzer.measures.hops import measure as module
from rocescope.analyzer.measures.hops.measure import LEAST_SAMPLES, HopMeasure, SampledTimes
from rocescope.analyzer.measures.hops.passing import LEAST_HORIZON_NS

# The hop measure: growth, horizon and bounds.

SECOND = 10**9


def updated(rows, cuts=(), n_flows=None):
    measure = HopMeasure()
    for batch in parts(tracked(rows, n_flows), list(cuts)):
        measure.update(batch)
    return measure


def series(packets, taps, pace=10_000, flows=1):
    return [
        hop(pace * n + 500 * tap, tap, n, flow=n % flows)
        for n in range(packets)
        for tap in range(taps)
    ]


def test_tables_and_rings_grow():
    """3,000 packets in flight of 300 flows at 30 taps outgrow every first size."""
    rows = series(3_000, 3, pace=2_000, flows=300)
    rows += [hop(10**7 + 10_000 * t + 500 * k, t + k, 9, limit=64 - k) for t in range(27)
             for k in range(2)]  # fmt: skip
    measure = updated(rows)
    assert len(measure.state.transmissions) > 1 << 10
    assert len(measure.state.sightings) > 1 << 10
    settled = measure.settled()
    assert edge(settled, 0, 1)["packets"] >= 3_000
    assert edge(settled, 1, 2)["packets"] >= 3_000
    assert all(edge(settled, 0, 1, flow)["packets"] >= 10 for flow in range(300))
    assert settled.state.used[state.HEAD] == settled.state.used[state.TAIL]
    # The measure itself still waits.
    assert measure.state.used[state.HEAD] > measure.state.used[state.TAIL]


def test_the_horizon_follows_the_longest_delay():
    rows = []
    for n in range(4_000):
        delay = 5_000 if n < 2_000 else min(5_000 + 400_000 * (n - 2_000), 600_000_000)
        rows += [hop(2_000_000 * n, 0, n), hop(2_000_000 * n + delay, 1, n)]
    rows.sort(key=lambda row: row["time_ns"])
    measure = updated(rows, range(100, 8_000, 100))
    assert measure.state.used[state.TAIL] > 1_000  # long delays did not stop the conclusions
    passed = edge(measure.settled(), 0, 1)
    assert passed["packets"] == 4_000
    assert passed["delay_max"] == 600_000_000


@pytest.mark.parametrize("held_ns", [240_000_000, 600_000_000, 3_500_000_000])
def test_packets_held_back_for_longer_than_any_before_arrive(held_ns):
    """A paused output: flow 1 waits at tap 0, while flow 0 goes on as in the 10 s before."""
    begin, end = 10 * SECOND, 10 * SECOND + held_ns
    rows = []
    for n in range(8_000):
        sent = 2_000_000 * n
        for flow in range(2):
            arrives = max(sent, end) if flow and sent >= begin else sent
            rows += [hop(sent, 0, n, 64, flow=flow)]
            rows += [hop(arrives + 5_000, 1, n, 63, flow=flow)]
    rows.sort(key=lambda row: row["time_ns"])
    measure = updated(rows, range(500, len(rows), 500)).settled()
    passed = edge(measure, 0, 1)
    assert passed["packets"] == 16_000
    assert passed["delay_max"] == held_ns + 5_000
    ended = edge(measure, 1, state.END)
    assert ended["packets"] == 16_000
    assert measure.state.clock[state.HURRIED] == 0


def test_what_is_held_is_bounded_by_packets_in_flight_and_not_by_those_that_passed():
    """Four times the packets at the same pace: no more of them wait, and no array is longer."""

    def held(packets):
        measure, most = HopMeasure(), 0
        for batch in parts(
            tracked(series(packets, 3, pace=2_000_000)), range(500, 3 * packets, 500)
        ):
            measure.update(batch)
            used = measure.state.used
            most = max(most, int(used[state.HEAD] - used[state.TAIL]))
        assert edge(measure.settled(), 1, 2)["packets"] == packets
        return most, [len(array) for array in measure.state]

    waiting, lengths = held(6_000)
    assert waiting < 6_000 / 2  # many followed packets have left
    assert held(24_000) == (waiting, lengths)


def test_full_rings_conclude_the_oldest_early(monkeypatch):
    monkeypatch.setattr(measure_module, "MOST_IN_FLIGHT", 1 << 10)
    measure = updated(series(5_000, 2, pace=1_000))
    assert len(measure.state.transmissions) == len(measure.state.sightings) == 1 << 10
    assert measure.state.clock[state.HURRIED] > 0
    assert edge(measure.settled(), 0, 1)["packets"] == 5_000


def test_moments_beyond_the_bound_are_counted(monkeypatch):
    monkeypatch.setattr(measure_module, "MOST_MOMENTS", 1 << 10)
    passing = series(10, 2)
    lost = [hop(10**6 + 1_000 * n, 0, 100 + n) for n in range(3_000)]
    measure = updated(passing + lost).settled()
    assert len(measure.ends) == 1 << 10
    end = edge(measure, 0, state.END)
    assert end["packets"] == 3_000
    logged = np.count_nonzero(measure.ends["tap"] == 0)
    assert measure.state.used[state.UNLOGGED] >= end["packets"] - logged


def test_packets_of_flows_that_left_are_settled_by_tap():
    measure = HopMeasure()
    measure.left_at = {0: 3, 1: 4}
    settled = measure.settled()
    measure.left_at[1] = 14
    assert settled.left_at == {0: 3, 1: 4}


# Layouts of the hop measure.


def test_numbers_in_place_of_taps_are_no_taps():
    """65,534 taps are possible besides START and END."""
    assert {state.START, state.END} == {0xFFFE, 0xFFFF}


def test_items_of_arrays_do_not_overlap():
    clock = [
        state.HORIZON,
        state.NEWEST,
        state.HURRIED,
        state.LONGEST,
        state.WIDTH,
        state.ORIGIN,
        state.AWAY,
    ]
    used = [state.HEAD, state.TAIL, state.SIGHTED, state.EDGES, state.HOPS, state.VISITS]
    empty = measure.HopMeasure().state
    clock += [state.FROM, state.TO]
    used += [state.ENDS, state.RESENT, state.UNLOGGED, state.AWAY_FROM, state.MOVES]
    used += [state.DOUBTED]
    assert sorted(clock) == list(range(len(empty.clock)))
    assert sorted(used) == list(range(len(empty.used)))
    assert empty.windows.shape[1:] == (state.WINDOWS, state.WINDOW_VALUES)


# Clocks that are set forward, by the times of the same packets at several taps.

MS, CLOCKS_SECOND = 10**6, 10**9


def sighting(psn, tap, time_ns, **more):
    return {"flow": 0, "psn": psn, "tap": tap, "time_ns": time_ns, "ip_id": psn & 0xFFFF, **more}


def seen(rows):
    times = SampledTimes()
    times.update(tracked(sorted(rows, key=lambda row: row["time_ns"])).table)
    return times


def passing(late, packets=200, taps=3, gap=MS):
    """Packets that pass all taps, and are late by `late(psn, tap)`."""
    return [
        sighting(psn, tap, CLOCKS_SECOND + psn * gap + tap * 1000 + late(psn, tap))
        for psn in range(packets)
        for tap in range(taps)
    ]


def found(rows, clocks=(0, 1, 2), set_back=frozenset()):
    return seen(rows).jumps(list(clocks), set(set_back))


@pytest.mark.parametrize("taps", [2, 3])
@pytest.mark.parametrize("tap", [0, 1])
@pytest.mark.parametrize("ns", [300 * MS, 5 * CLOCKS_SECOND, 3600 * CLOCKS_SECOND])
def test_one_clock_is_set_forward(taps, tap, ns):
    rows = passing(lambda psn, at: ns if at == tap and psn >= 100 else 0, taps=taps)
    assert list(found(rows, range(taps))) == [tap]
    times, total = found(rows, range(taps))[tap]
    assert times == 1
    assert abs(total - ns) < MS


def test_a_clock_is_set_forward_twice():
    rows = passing(lambda psn, tap: (5 * CLOCKS_SECOND) * ((psn >= 50) + (psn >= 120)) * (tap == 1))
    assert found(rows) == {1: (2, 10 * CLOCKS_SECOND)}


def test_taps_with_one_clock_jump_together():
    rows = passing(lambda psn, tap: 5 * CLOCKS_SECOND * (tap < 3 and psn >= 100), taps=5)
    assert set(found(rows, (0, 0, 0, 3, 4))) == {0, 1, 2}


@pytest.mark.parametrize(
    "late",
    [
        lambda psn, tap: 0,
        lambda psn, tap: 3600 * CLOCKS_SECOND * (tap == 1),  # differs all the time
        lambda psn, tap: (150 - psn) * 50 * MS * (tap == 2 and 100 <= psn < 150),  # held back
        lambda psn, tap: (
            2 * CLOCKS_SECOND * (tap == 2 and psn >= 100 and psn % 16 > 0)
        ),  # one direction
        lambda psn, tap: (psn - 100) * 50 * MS * (tap == 2 and psn >= 100),  # it grows
        lambda psn, tap: 200 * MS * (tap == 1 and psn >= 100),  # less than packets wait
        lambda psn, tap: 5 * CLOCKS_SECOND * (tap == 1 and psn >= 200 - LEAST_SAMPLES + 1),
        lambda psn, tap: 5 * CLOCKS_SECOND * (psn >= 100),  # all of them: a pause
        lambda psn, tap: (
            10 * CLOCKS_SECOND * (tap == 2 and psn >= 150 and psn % 4 == 0)
        ),  # a slow class
    ],
)
def test_no_jump(late):
    assert found(passing(late, gap=50 * MS)) == {}


def test_times_that_go_back_make_no_other_clock_jump():
    rows = passing(lambda psn, tap: -900 * MS * (tap == 0 and psn >= 100), taps=2)
    assert found(rows, (0, 1), {0}) == {}


def test_packets_retransmitted_after_a_pause_are_no_jump():
    """Lost after the first tap, and retransmitted with the same identification."""
    rows = passing(lambda psn, tap: 5 * CLOCKS_SECOND * (psn >= 100 and tap > 0))
    again = [
        sighting(psn, 0, CLOCKS_SECOND + psn * MS + 5 * CLOCKS_SECOND) for psn in range(100, 200)
    ]
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
                sighting(part << 12 | psn, tap, part * CLOCKS_SECOND + i)
                for i, (psn, tap) in enumerate(rows)
            ]
            if batch:
                times.update(tracked(batch).table)
        whole = SampledTimes()
        module.MOST_SAMPLES = most
        for part in range(8):
            batch = [
                sighting(part << 12 | psn, tap, part * CLOCKS_SECOND + i)
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
