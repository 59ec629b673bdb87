"""Copies at other taps of packets without a PSN order, however many are in flight."""

from __future__ import annotations

import numpy as np
import pytest
from traffic import ACK, START_NS, packets, track

from rocescope.analyzer.track import state
from rocescope.analyzer.track.batch import NOT_SEQUENCED, TAP_COPY
from rocescope.analyzer.track.tracker import FlowTracker
from rocescope.analyzer.wire.packets import IPV6

CNP = 0x81


def in_series(acks, delays, shuffle=0):
    """The ACKs at tap 0 one microsecond apart, and at each other tap so much later."""
    rng = np.random.default_rng(1)
    seen = []
    for tap, delay in enumerate([0, *delays]):
        for i, ack in enumerate(acks):
            late = rng.integers(shuffle) if shuffle and tap else 0
            seen.append((i + delay + late, tap, ack))
    seen.sort(key=lambda one: one[:2])
    return [{**ack, "tap": tap, "time_ns": START_NS + 1000 * at} for at, tap, ack in seen]


def acks(count, **more):
    return [
        {"psn": 7 * i, "opcode": ACK, "syndrome": 0x1F, "ip_id": 0, **more} for i in range(count)
    ]


@pytest.mark.parametrize("delays", [[1500], [40, 1500], [300, 300]])
@pytest.mark.parametrize("flags", [0, IPV6])
def test_a_thousand_on_their_way(delays, flags):
    rows = in_series(acks(3000, decode_flags=flags), delays, shuffle=20)
    tracker = FlowTracker(taps=1 + len(delays))
    found = track(tracker, packets(rows), range(0, len(rows), 1000))
    assert np.count_nonzero(found == TAP_COPY) == 3000 * len(delays)
    assert tracker.flows[0]["ack_packets"] == 3000
    assert tracker.copies[0].tolist() == [0, *[3000] * len(delays)]


def test_identifications_that_count_up():
    rows = in_series([a | {"ip_id": i & 0xFFFF} for i, a in enumerate(acks(3000))], [1000])
    tracker = FlowTracker(taps=2)
    track(tracker, packets(rows))
    assert tracker.flows[0]["ack_packets"] == tracker.flows[0]["tap_copies"] == 3000


def test_equal_packets_one_behind_the_other_pair_up():
    """All CNPs are alike: three at one tap, then the same three at the next."""
    cnp = {"psn": 0, "opcode": CNP, "ip_id": 0}
    tracker = FlowTracker(taps=2)
    found = track(tracker, packets([cnp | {"tap": tap} for tap in (0, 0, 0, 1, 1, 1, 0, 1)]))
    assert found.tolist() == [NOT_SEQUENCED] * 3 + [TAP_COPY] * 3 + [NOT_SEQUENCED, TAP_COPY]


def test_tables_of_parallel_taps_are_bounded():
    """No copy ever comes: the table ends growing, at last in all flows together."""
    rows = [a | {"tap": i % 2, "dest_qp": 5 + i % 3} for i, a in enumerate(acks(30_000))]
    tracker = FlowTracker(taps=2)
    track(tracker, packets(rows))
    assert set(tracker.flows["recent_bits"].tolist()) == {state.MAX_RECENT_BITS}
    assert int(tracker.state.used[state.USED_RECENTS]) < 3 * (2 << state.MAX_RECENT_BITS)
    assert tracker.flows["ack_packets"].sum() == 30_000


def test_one_tap_keeps_a_small_table():
    tracker = FlowTracker()
    track(tracker, packets(acks(5000)))
    assert tracker.flows[0]["recent_bits"] == state.FIRST_RECENT_BITS
