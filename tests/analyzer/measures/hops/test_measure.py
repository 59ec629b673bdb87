"""The hop measure: growth, horizon and bounds."""

from __future__ import annotations

import numpy as np
import pytest
from journeys import edge, hop
from tracked_batches import parts, tracked

from rocescope.analyzer.measures.hops import measure as measure_module
from rocescope.analyzer.measures.hops import state
from rocescope.analyzer.measures.hops.measure import HopMeasure

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
