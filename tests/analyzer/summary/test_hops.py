"""Records of hops, captures and clocks."""

from __future__ import annotations

import numpy as np
import pytest
from journeys import hop
from tracked_batches import START_NS, tracked

from rocescope.analyzer.measures.hops.losses import decide_losses
from rocescope.analyzer.measures.hops.measure import HopMeasure
from rocescope.analyzer.summary.summarize import capture_losses, clocks, hop_records
from rocescope.analyzer.track.state import FLOW


class Tracker:
    flows = np.zeros(2, FLOW)

    def in_part(self, _flow):
        return False


Tracker.flows["src"] = [0, 1]
Tracker.flows["dst"] = [1, 0]
NAMES = ["leaf1-spine3.pcap", "leaf2-spine3.pcap"]


def settled(rows):
    measure = HopMeasure()
    measure.update(tracked(sorted(rows, key=lambda row: row["time_ns"]), 2))
    return measure.settled()


def both_ways(delays, offset=lambda n: 0, pace=1_000_000):
    """Packets in both directions; the clock of tap 1 is `offset(n)` ahead."""
    rows = []
    for n, delay in enumerate(delays):
        there, back = pace * n, pace * n + pace // 2
        rows.append(hop(there, 0, n, 63))
        rows.append(hop(there + delay + offset(n), 1, n, 62))
        rows.append(hop(back + offset(n), 1, n, 63, flow=1))
        rows.append(hop(back + delay, 0, n, 62, flow=1))
    return rows


def test_a_hop():
    delays = [1_000 + 10 * n for n in range(100)]
    rows = [
        r for n, d in enumerate(delays) for r in (hop(10_000 * n, 0, n), hop(10_000 * n + d, 1, n))
    ]
    rows += [hop(2_000_000, 0, 500), hop(3_000_000, 0, 501), hop(3_001_500, 1, 501)]
    measure = settled(rows)
    (record, *_) = hop_records(decide_losses(measure, Tracker(), NAMES), measure, NAMES)
    assert (record.from_tap, record.to_tap, record.device) == (*NAMES, "spine3")
    assert (record.packets, record.passed_packets, record.lost_packets) == (102, 101, 1)
    assert record.lost_percent == pytest.approx(100 / 102)
    assert record.wire_bytes == 10_200
    assert record.first_lost_ns == record.last_lost_ns == START_NS + 2_000_000
    (lost,) = record.lost_by_flow
    assert (lost.flow, lost.packets, lost.of_packets) == (0, 1, 102)
    assert record.hop_limit_drop == 1
    assert (record.delay_ns.min, record.delay_ns.max) == (1_000, 1_990)
    values = [*delays, 1_500]
    assert record.delay_ns.mean == pytest.approx(np.mean(values))
    assert record.delay_ns.p50 == pytest.approx(np.quantile(values, 0.5), rel=0.07)
    assert record.delay_ns.p99 == pytest.approx(np.quantile(values, 0.99), rel=0.07)
    assert record.queueing_ns.min == 0
    assert record.queueing_ns.max == 990


def test_delays_keep_their_resolution_with_clocks_far_apart():
    offset = 3_600 * 10**6
    delays = [2_000 + 100 * (n % 50) for n in range(200)]
    rows = [
        row
        for n, d in enumerate(delays)
        for row in (hop(50_000 * n, 0, n), hop(50_000 * n + d - offset // 2, 1, n))
    ]
    measure = settled(rows)
    (record, *_) = hop_records(decide_losses(measure, Tracker(), NAMES), measure, NAMES)
    assert record.delay_ns.min == 2_000 - offset // 2
    assert record.queueing_ns.max == 4_900
    assert record.queueing_ns.p50 == pytest.approx(2_450, rel=0.1)


def test_clocks():
    measure = settled(both_ways([1_000] * 200, lambda n: 5_000_000))
    (clock,) = clocks(decide_losses(measure, Tracker(), NAMES), NAMES)
    assert (clock.tap, clock.relative_to) == (NAMES[1], NAMES[0])
    assert clock.offset_ns == pytest.approx(5_000_000, abs=1)
    assert clock.uncertainty_ns == pytest.approx(1_000, abs=1)
    assert clock.steps == 0
    assert clock.drift_ppm == pytest.approx(0, abs=0.1)


def test_a_drifting_clock():
    measure = settled(both_ways([1_000] * 400, lambda n: 20 * n))
    (clock,) = clocks(decide_losses(measure, Tracker(), NAMES), NAMES)
    assert clock.drift_ppm == pytest.approx(20, rel=0.1)  # 20 ns each millisecond
    assert clock.steps == 0


def test_a_clock_that_drifts_through_a_pause_does_not_step():
    """4 us every 20 ms; then no packet passes for 1.2 s."""
    rows = both_ways([1_000] * 150, lambda n: 4_000 * n, pace=20_000_000)
    sparse = [row for n, row in enumerate(rows) if not 60 <= n // 4 < 120]
    (clock,) = clocks(decide_losses(settled(sparse), Tracker(), NAMES), NAMES)
    assert clock.drift_ppm == pytest.approx(200, rel=0.1)
    assert clock.steps == 0


def test_a_clock_that_steps():
    measure = settled(both_ways([1_000] * 200, lambda n: 0 if n < 100 else 400_000))
    ways = decide_losses(measure, Tracker(), NAMES)
    (clock,) = clocks(ways, NAMES)
    assert clock.steps == 1
    assert clock.first_step_ns == clock.last_step_ns
    assert abs(clock.first_step_ns - (START_NS + 100 * 10**6)) <= 2 * ways.window_ns


def test_a_clock_that_steps_inside_a_window_of_many_packets():
    """The least delays of both directions are those of different clocks in this window."""
    measure = settled(both_ways([1_000] * 6_000, lambda n: 0 if n < 3_001 else 400_000))
    (clock,) = clocks(decide_losses(measure, Tracker(), NAMES), NAMES)
    assert clock.steps == 1


def test_a_queue_is_no_clock_step():
    """Only one direction waits: the offset seems to change, and so does the round trip."""
    rows = []
    for n in range(200):
        delay = 1_000 if n < 100 else 800_000
        rows += [hop(10**6 * n, 0, n, 63), hop(10**6 * n + delay, 1, n, 62)]
        rows += [hop(10**6 * n + 500_000, 1, n, 63, flow=1)]
        rows += [hop(10**6 * n + 501_000, 0, n, 62, flow=1)]
    measure = settled(rows)
    (clock,) = clocks(decide_losses(measure, Tracker(), NAMES), NAMES)
    assert clock.steps == 0


def test_queues_that_change_sides_are_no_clock_step():
    """One direction's queue empties while that of the other fills: the round trip stays."""
    rows = []
    for n in range(200):
        there, back = (400_000, 1_000) if n < 100 else (1_000, 400_000)
        rows += [hop(10**6 * n, 0, n, 63), hop(10**6 * n + there, 1, n, 62)]
        rows += [hop(10**6 * n + 450_000, 1, n, 63, flow=1)]
        rows += [hop(10**6 * n + 450_000 + back, 0, n, 62, flow=1)]
    measure = settled(rows)
    (clock,) = clocks(decide_losses(measure, Tracker(), NAMES), NAMES)
    assert clock.steps == 0


def test_what_a_capture_missed():
    names = ["a", "b", "c"]
    rows = []
    for n in range(50):
        rows += [hop(10_000 * n + 500 * t, t, n) for t in range(3) if not (n == 9 and t == 1)]
    measure = settled(rows)
    (loss,) = capture_losses(decide_losses(measure, Tracker(), names), names)
    assert (loss.tap, loss.packets, loss.of_packets, loss.flows) == ("b", 1, 50, [0])
