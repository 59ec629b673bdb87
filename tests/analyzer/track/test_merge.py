"""Windows of two trackers become one."""

from __future__ import annotations

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from traffic import ACK, NAK_SEQUENCE_ERROR, START_NS, WRITE_LAST, WRITE_ONLY, packets, track

from rocescope.analyzer.track.batch import RECOVERED, REORDERED
from rocescope.analyzer.track.merge import merge_trackers
from rocescope.analyzer.track.state import NAMED, REQUESTS
from rocescope.analyzer.track.tracker import FlowTracker
from rocescope.analyzer.wire.packets import HAS_AETH

HOSTS, TAPS = np.arange(2, dtype=np.uint32), np.arange(1, dtype=np.uint16)
QPS = (17, 18)


def writes(psns, **more):
    rows = [{"psn": n, "opcode": WRITE_ONLY, "dest_qp": qp, **more} for n in psns for qp in QPS]
    return packets(rows)


def missing(tracker):
    return [tracker.missing(flow, REQUESTS)[0] for flow in range(len(QPS))]


def test_windows_of_any_size_are_merged():
    """A gap of 389 PSNs needs 512 slots; of two flows, so that their windows may not overlap."""
    one, two = FlowTracker(), FlowTracker()
    track(one, writes(range(10)))
    track(two, writes([10, 400]))
    merge_trackers(one, two, HOSTS, TAPS)
    assert missing(one) == [389, 389]
    verdicts = track(one, writes(range(11, 400)))
    assert np.isin(verdicts, (RECOVERED, REORDERED)).all()
    assert missing(one) == [0, 0]
    assert not one.state.streams["missing_evicted"].any()


def test_packets_before_the_first_of_a_merged_part_may_be_late():
    """Between the parts PSNs 3 to 39 are open; 8 and 39 are the last and the first of those that
    the second part recognises by itself."""
    whole, one, two = FlowTracker(), FlowTracker(), FlowTracker()
    early, later, late = writes([0, 1, 2]), writes([40, 41]), writes([39, 8], ip_id=5)
    track(two, later)
    track(two, late.slice(0, 2))  # one of them has a slot already
    track(one, early)
    merge_trackers(one, two, HOSTS, TAPS)
    for table in (early, later, late.slice(0, 2)):
        track(whole, table)
    rest = late.slice(2, 4)
    assert np.array_equal(track(one, rest), track(whole, rest))


LOST, MESSAGE = 40, 8


def lost_before_the_tap(by_ack, calm):
    """The first PSNs are lost before the tap; an answer names them, and they are retransmitted.

    calm: packets in order at first, before a clean cut, and after it. Returns rows, the cut, and
    where the second part ends: before the retransmissions that the answer explains.
    """
    nak = {"answer": True, "psn": 0, "opcode": ACK, "syndrome": NAK_SEQUENCE_ERROR}
    ack = {"answer": True, "psn": MESSAGE - 1, "opcode": ACK, "decode_flags": HAS_AETH}
    ack["aeth"] = 0x1F << 24 | 1
    again = [{"psn": n} for n in range(LOST)]
    again[MESSAGE - 1]["opcode"] = WRITE_LAST
    before, rest = (again[:MESSAGE], [ack, *again[MESSAGE:]]) if by_ack else ([nak], again)
    new = [{"psn": LOST + k} for k in range(sum(calm))]
    rows = [*new[: calm[0]], *before, *new[calm[0] :], *rest]
    return rows, calm[0] + len(before) + calm[1], sum(calm) + len(before)


@examples(60)
@given(
    by_ack=st.booleans(),
    paired=st.booleans(),
    ran_us=st.sampled_from([None, 500, 2000]),
    calm=st.tuples(st.integers(9, 40), st.integers(0, 20), st.integers(9, 40)),
)
def test_what_answers_name_below_the_first_packet_outlives_a_clean_cut(
    by_ack, paired, ran_us, calm
):
    rows, cut, stop = lost_before_the_tap(by_ack, calm)
    sport = {"udp_sport": 49458} if paired else {}
    table = packets([row | sport for row in rows])
    whole, one, two = (FlowTracker() for _ in range(3))
    if ran_us is not None:
        for tracker in (whole, one):
            tracker.ran(0, START_NS - 1000 * ran_us)
    expected = track(whole, table, [cut, stop])
    track(one, table.slice(0, cut))
    track(two, table.slice(cut, stop))
    merge_trackers(one, two, HOSTS, TAPS)
    assert np.array_equal(track(one, table.slice(stop, len(table))), expected[stop:])
    for name in ("recovered", "retransmitted", "reordered", "missing", "first", "named", "below"):
        assert one.stream(0, REQUESTS)[name] == whole.stream(0, REQUESTS)[name], name
    for name in ("rewinds", "nak_codes", "retransmitted_by", "rewound_bytes"):
        assert np.array_equal(one.flows[0][name], whole.flows[0][name]), name
    proven = ran_us == 2000 and (paired or not by_ack)
    assert one.stream(0, REQUESTS)["recovered"] == proven * (LOST - MESSAGE * by_ack)


@pytest.mark.parametrize("gap", [0, 5])
def test_psns_of_the_earlier_part_are_not_lost_before_the_later_one(gap):
    """The later part knows a NAK for a PSN that the earlier one saw."""
    one, two = FlowTracker(), FlowTracker()
    two.ran(0, START_NS)
    nak = {"answer": True, "psn": 20, "opcode": ACK, "syndrome": NAK_SEQUENCE_ERROR}
    again = packets([{"psn": n, "udp_sport": 49458} for n in range(20, 40)])
    later = [{"psn": 40 + gap + n} for n in range(12)]
    later = packets([row | {"udp_sport": 49458} for row in [*later, nak]])
    later.time_ns[:] += 2_000_000
    track(one, packets([{"psn": n, "udp_sport": 49458} for n in range(40)]))
    track(two, later)
    assert two.stream(0, REQUESTS)["named"] == NAMED
    merge_trackers(one, two, HOSTS, TAPS)
    track(one, again)
    assert one.stream(0, REQUESTS)["recovered"] == 0
    assert one.missing(0, REQUESTS) == (0, 0)


def test_answers_too_few_for_a_connection_still_name_their_flow():
    mine, theirs = FlowTracker(), FlowTracker()
    acks = [
        {"psn": n, "opcode": ACK, "answer": True, "aeth": n, "decode_flags": HAS_AETH,
         "udp_sport": 50_001}
        for n in (1, 2)
    ]  # fmt: skip
    track(mine, packets([{"psn": 0, "opcode": WRITE_ONLY, "dest_qp": 99}]))
    track(theirs, packets([{"psn": n, "opcode": WRITE_ONLY} for n in (1, 2, 3)] + acks))
    flow_map = merge_trackers(mine, theirs, HOSTS + 2, TAPS)
    requests, answers = flow_map.tolist()
    record = mine.flows[answers]
    assert (record["peer"], record["candidate"], record["candidate_hits"]) == (-1, requests, 2)
