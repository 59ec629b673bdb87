"""Times of single messages, against a plain twin."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from rings import FIRST, LAST, ONLY, message
from traffic import batches, packets

from rocescope.analyzer.measures.messages import MessageTimes
from rocescope.analyzer.statistics.per_flow import kept_flows
from rocescope.analyzer.track.tracker import FlowTracker

MIDDLE = 0x07


def logged(rows, cuts=(), most=1 << 20):
    tracker, times = FlowTracker(), MessageTimes(most)
    for batch in batches(packets(rows), cuts):
        times.update(tracker.update(batch))
    return times


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), min_size=1, max_size=30),
    st.integers(0, 0xFFFFFF),
    st.sets(st.integers(1, 100), max_size=4),
)
def test_every_message_has_the_times_of_its_first_and_last_packet(sent, psn, cuts):
    rows, expected, next_psn = [], [], {}
    for src, length in sent:
        begun = len(rows) * 1000
        for at in range(length):
            opcode = ONLY if length == 1 else FIRST if at == 0 else MIDDLE
            opcode = LAST if at == length - 1 > 0 else opcode
            number = next_psn.get(src, psn)
            next_psn[src] = number + 1 & 0xFFFFFF
            rows.append(message(src, 9, number, opcode, len(rows) * 1000))
        expected.append((src, begun, (len(rows) - 1) * 1000))
    found = logged(rows, cuts).messages()
    order = list(dict.fromkeys(src for src, _ in sent))
    got = [(order[m["flow"]], int(m["begun_ns"]), int(m["ended_ns"])) for m in found]
    assert sorted(got) == sorted(expected)


def test_late_and_retransmitted_packets():
    rows = [
        message(0, 9, 0, FIRST, 0),
        message(0, 9, 2, FIRST, 2000),  # overtakes the last packet of the first message
        message(0, 9, 1, LAST, 3000) | {"ip_id": 2},
        message(0, 9, 3, LAST, 4000),
        message(0, 9, 2, FIRST, 900_000),  # retransmitted: not a new message
    ]
    found = logged(rows).messages()
    assert found[["begun_ns", "ended_ns"]].tolist() == [(0, 3000), (2000, 4000)]


def test_what_is_too_much_is_left_out_and_said():
    rows = [message(0, 9, at, ONLY, at * 1000) for at in range(10)]
    times = logged(rows, cuts=(5,), most=7)
    assert times.full and len(times.messages()) == 5
    assert len(logged([message(0, 9, 0, MIDDLE, 0)]).messages()) == 0


def test_flows_that_leave_take_their_messages_along():
    times = logged([message(src, 9, 0, ONLY, src) for src in range(3)])
    times.keep(kept_flows(np.array([True, False, True])))
    assert times.messages()[["flow", "begun_ns"]].tolist() == [(0, 0), (1, 2)]


def test_a_live_session_keeps_the_newest():
    rows = [message(0, 9, at, ONLY, at * 1000) for at in range(10)]
    tracker, times = FlowTracker(), MessageTimes(7, newest=True)
    for batch in batches(packets(rows), (3, 6, 8)):
        times.update(tracker.update(batch))
    assert not times.full
    assert times.messages()["begun_ns"].tolist() == [at * 1000 for at in range(3, 10)]


def test_a_batch_beyond_the_most_leaves_its_newest():
    tracker, times = FlowTracker(), MessageTimes(4, newest=True)
    rows = [message(1, 9, psn, ONLY, psn * 1000) for psn in range(12)]
    for batch in batches(packets(rows), {10}):
        times.update(tracker.update(batch))
    assert not times.full
    begun = logged(rows).messages()["begun_ns"].tolist()
    assert len(begun) == 12 and times.messages()["begun_ns"].tolist() == begun[-2:]
