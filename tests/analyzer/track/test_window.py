"""Windows of PSNs, and copies of packets without a PSN order."""

from __future__ import annotations

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from traffic import ACK, READ_REQUEST, START_NS, WRITE_ONLY, packets, track

from rocescope.analyzer.track import state
from rocescope.analyzer.track.batch import NOT_SEQUENCED, TAP_COPY
from rocescope.analyzer.track.tracker import FlowTracker
from rocescope.analyzer.track.window import holds, horizon
from rocescope.analyzer.wire.bth import PSN_MASK, psn_distance
from rocescope.analyzer.wire.packets import IPV6

MTU = 1024


def write(psn, **more):
    return {"psn": psn, "opcode": WRITE_ONLY, **more}


@examples(60)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([1, 1, 1, 2, 5, 40, 300]),  # PSNs from packet to packet
            st.integers(1, 400),  # packets
            st.sampled_from([0, 0, 1, 90]),  # taps that appear
        ),
        max_size=8,
    ),
    st.integers(0, PSN_MASK),
)
def test_a_seen_psn_within_the_horizon_is_held(stretches, first):
    tracker, taps, psn, seen = FlowTracker(), 1, first, []
    for step, count, more_taps in stretches:
        taps += more_taps
        tracker.see_taps(taps)
        psns = [(psn + step * n) & PSN_MASK for n in range(count)]
        track(tracker, packets([write(each) for each in psns]))
        psn, seen = (psn + step * count) & PSN_MASK, seen + psns
        stream = tracker.state.streams[2 * 0 + state.REQUESTS]
        reach = horizon(tracker.state, stream)
        for each in seen:
            if 0 < psn_distance(int(stream["next"]), each) <= reach:
                assert holds(tracker.state, stream, each)


def read(psn, count):
    length = count * MTU
    return {"psn": psn, "opcode": READ_REQUEST, "dma_length": length, "payload_bytes": 0}


@examples(60)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([1, 3, 500, 1 << 16, (1 << 17) + 1, (1 << 18) + 3, 1 << 21]),
            st.integers(1, 300),  # READs
        ),
        max_size=6,
    ),
    st.integers(0, PSN_MASK),
)
def test_a_seen_read_within_the_horizon_is_held_however_many_psns_it_reserves(stretches, first):
    """Compared with places that never wrap: a PSN that comes again was not seen lately."""
    tracker, place, seen = FlowTracker(), first, []
    for step, count in stretches:
        places = [place + step * n for n in range(count)]
        track(tracker, packets([read(each & PSN_MASK, step) for each in places]))
        place, seen = place + step * count, seen + places
        stream = tracker.state.streams[2 * 0 + state.REQUESTS]
        following = seen[-1] + psn_distance(int(stream["next"]), seen[-1] & PSN_MASK)
        reach = int(horizon(tracker.state, stream))
        assert 0 <= reach <= 1 << state.MAX_WINDOW_BITS
        for each in seen:
            if following - each <= reach:
                assert holds(tracker.state, stream, each & PSN_MASK)


def test_the_horizon_of_large_reads_is_that_of_the_largest_window():
    """Each of 128 slots and more has 2^16 PSNs of its own: what left is 2^23 back."""
    tracker, count = FlowTracker(), (1 << 16) + 1
    track(tracker, packets([read(count * n & PSN_MASK, count) for n in range(200)]))
    stream = tracker.state.streams[state.REQUESTS]
    assert stream["forgets"] == 1
    assert horizon(tracker.state, stream) == 1 << state.MAX_WINDOW_BITS


@pytest.mark.parametrize("lag", [100, 500, 900])
@pytest.mark.parametrize("late", [False, True], ids=["from the start", "late"])
def test_a_tap_that_appears_late_makes_no_reason_for_a_repeated_read(lag, late):
    """The window has forgotten the first request: whether it was inside another READ is unknown."""
    tracker = FlowTracker()
    if not late:
        tracker.see_taps(2)
    count = 100_000
    table = packets([write(0)]).take(np.zeros(count, np.int64))
    table.psn[:] = np.arange(count)
    table.time_ns[:] += 1000 * np.arange(count)
    table.ip_id[:] = np.arange(count) & 0xFFFF
    tracker.update(table)
    now = int(table.time_ns[-1])
    again = {
        "psn": count - lag, "opcode": READ_REQUEST, "dma_length": MTU, "payload_bytes": 0,
        "time_ns": now + 5000, "ip_id": 7,
    }  # fmt: skip
    track(tracker, packets([write(count, tap=1, time_ns=now + 1000), again]))
    by = tracker.flows[0]["retransmitted_by"]
    assert by[state.BY_IMPLIED] == 0 and by.sum() == 1


def test_copies_at_a_late_tap_are_those_of_a_tap_from_the_start():
    """100,000 packets at one tap, then all at two, the second one 100 packets behind."""
    verdicts = []
    for late in (False, True):
        tracker = FlowTracker()
        if not late:
            tracker.see_taps(2)
        alone, both = 100_000, 3_000
        near = np.arange(alone + both)
        far = near[alone:] + 100
        at = np.argsort(np.concatenate([near, far]), kind="stable")
        psns = np.concatenate([near, near[alone:]])[at]
        table = packets([write(0)]).take(np.zeros(len(psns), np.int64))
        table.psn[:] = psns
        table.ip_id[:] = psns & 0xFFFF
        table.tap[:] = at >= alone + both
        table.time_ns[:] += 1000 * np.arange(len(psns))
        verdicts.append(track(tracker, table, range(0, len(psns), 16_384)))
        assert tracker.flows[0]["packets"] == alone + both
        assert tracker.copies[0, 1] == both
    assert np.array_equal(*verdicts)


def test_flows_of_one_packet_take_few_slots():
    """Those of the PSNs before the first one are made when one of them comes."""
    tracker, flows = FlowTracker(), 1000
    rows = [write(40, dest_qp=n) for n in range(flows)]
    track(tracker, packets(rows))
    assert tracker.state.used[state.USED_SLOTS] == flows << state.LEAST_WINDOW_BITS
    assert flows << state.LEAST_WINDOW_BITS <= 8 * flows
    stream = tracker.state.streams[state.REQUESTS]
    assert all(holds(tracker.state, stream, 40 - n) for n in range(state.SKIPPED_KEPT + 1))
    assert not holds(tracker.state, stream, 40 - state.SKIPPED_KEPT - 1)


@pytest.mark.parametrize("before", [1, 31, 32])
def test_psns_before_the_first_one_are_held_until_the_first_window_is_full(before):
    """A window of 128 slots: the PSN 128 later takes the place."""
    tracker, first = FlowTracker(), 1000
    last = first - before + 128
    track(tracker, packets([write(psn) for psn in range(first, last)]))
    stream = tracker.state.streams[state.REQUESTS]
    assert holds(tracker.state, stream, first - before)
    track(tracker, packets([write(last)]))
    stream = tracker.state.streams[state.REQUESTS]
    assert not holds(tracker.state, stream, first - before)
    assert stream["forgets"] and stream["held_from"] == first - before + 1


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
