"""Goodput counts what was acknowledged, over the time that it took."""

from __future__ import annotations

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from message_traffic import ack, batch_of, measure, of, read, responses, row, summary, write
from message_twin import Twin
from rings import FIRST, LAST, ONLY, message
from tracked_batches import START_NS, parts, updated
from traffic import batches, packets

from rocescope.analyzer.measures.messages import MessageStatistics, MessageTimes
from rocescope.analyzer.statistics.per_flow import kept_flows
from rocescope.analyzer.track.batch import (
    DUPLICATE,
    IN_ORDER,
    NOT_SEQUENCED,
    RECOVERED,
    REORDERED,
    RESTARTED,
    RETRANSMITTED,
    TAP_COPY,
)
from rocescope.analyzer.track.tracker import FlowTracker
from rocescope.analyzer.wire.packets import ACK_REQUEST

# Goodput counts what was acknowledged, over the time that it took.


def again(psn, packets, time):
    return [r | {"verdict": RETRANSMITTED} for r in write(psn, packets, time)]


def rate(payload, ns):
    return pytest.approx(payload * 8e9 / ns)


def test_a_dead_queue_pair_has_no_goodput():
    """It sends a window and goes back to its first packet, without any answer."""
    got = measure([*write(7, 4, 0), *again(7, 4, 1000), *again(7, 4, 2000)])
    assert got.goodput_bits_per_second(0) == 0
    assert not got.unacknowledged(0)


def test_a_queue_pair_that_dies_keeps_what_was_acknowledged_and_loses_the_time():
    rows = [*write(0, 4, 0), ack(3, 100), *write(4, 4, 200), *again(4, 4, 5000)]
    assert measure(rows).goodput_bits_per_second(0) == rate(4096, 5030)


def test_without_the_direction_of_the_acks_it_is_unknown():
    got = measure([*write(0, 4, 0), *write(4, 4, 100)])
    assert got.goodput_bits_per_second(0) is None
    assert got.unacknowledged(0)
    resent = measure([*write(0, 4, 0), *again(2, 2, 100)])  # the sender knows that 0 and 1 arrived
    assert resent.goodput_bits_per_second(0) is None
    went_on = measure([*write(0, 4, 0), *again(0, 4, 100), *write(4, 4, 200)])
    assert went_on.goodput_bits_per_second(0) is None


def test_an_ack_of_a_part_acknowledges_this_part():
    """As of receivers that acknowledge in the middle of a long message."""
    rows = [*write(0, 100, 0), ack(24, 2000)]
    assert measure(rows).goodput_bits_per_second(0) == rate(25 * 1024, 2000)
    assert measure([*rows, ack(99, 4000)]).goodput_bits_per_second(0) == rate(100 * 1024, 4000)


def test_a_nak_acknowledges_what_lies_before_it():
    rows = [*write(0, 4, 0), ack(2, 100, syndrome=0x60)]
    assert measure(rows).goodput_bits_per_second(0) == rate(2048, 100)
    assert measure([*rows, ack(0, 300)]).goodput_bits_per_second(0) == rate(2048, 100)


def test_packets_that_come_after_their_ack_count():
    """The tap sees them late, or the capture missed the first copies."""
    rows = write(0, 4, 0)
    late = rows[1] | {"verdict": REORDERED, "time_ns": rows[1]["time_ns"] + 500}
    got = measure([rows[0], *rows[2:], ack(3, 100), late])
    assert got.goodput_bits_per_second(0) == rate(4096, 510)


def test_packets_before_the_first_one_are_not_acknowledged_yet():
    rows = write(0, 4, 0)
    first = rows[0] | {"verdict": RECOVERED, "time_ns": rows[3]["time_ns"] + 10}
    assert measure([*rows[1:], first]).goodput_bits_per_second(0) is None
    got = measure([*rows[1:], first, ack(1, 100)])
    assert got.goodput_bits_per_second(0) == rate(2048, 90)


def test_a_restart_gives_up_what_was_outstanding():
    rows = [*write(0, 4, 0), ack(3, 100), *write(4, 4, 200), *write(9000, 2, 300)]
    rows[9]["verdict"] = RESTARTED
    assert measure([*rows, ack(9001, 400)]).goodput_bits_per_second(0) == rate(6 * 1024, 400)


def test_read_responses_are_the_answer_and_unreliable_writes_have_none():
    got = measure([*responses(7, 3, 0)])
    assert got.goodput_bits_per_second(1) == rate(3 * 1024, 20)
    unreliable = [row("UC_WRITE_FIRST", 0, 10, payload=512), row("UC_WRITE_LAST", 1, 20, payload=5)]
    assert measure(unreliable).goodput_bits_per_second(0) is None
    assert not measure(unreliable).unacknowledged(0)


# Messages and latencies of known flows.


def test_writes_in_order_across_the_psn_wrap():
    first = (1 << 24) - 2
    rows = [*write(first, 4, 0, payload=1000), ack(first + 3, 500)]
    rows += [*write(first + 4, 1, 600, payload=10), ack(first + 4, 700)]
    got = measure(rows)
    messages = got.messages(0)
    assert (messages.count, messages.incomplete, messages.max_outstanding) == (2, 0, 1)
    assert summary(messages.size_bytes) == of(4000, 10)
    assert summary(messages.duration_ns) == of(30)
    assert summary(messages.completion_ns) == of(500, 100)
    assert summary(got.latency(0).request_to_ack_ns) == of(470, 100)
    assert got.goodput_bits_per_second(0) == 4010 * 8e9 / 700
    assert got.messages(1).count == got.untracked(0) == 0
    assert got.messages(1).max_outstanding is None


def test_a_reordered_message_is_as_good_as_one_in_order():
    rows = write(100, 6, 0)
    for place, i in enumerate((3, 5, 1, 0, 4, 2)):
        rows[i]["time_ns"] = START_NS + 10 * place
        rows[i]["verdict"] = REORDERED if i < 5 else IN_ORDER
    shuffled = sorted(rows, key=lambda r: r["time_ns"])
    got = measure([*shuffled, ack(105, 300)])
    assert got.messages(0).count == 1
    assert got.messages(0).incomplete == 0
    assert summary(got.messages(0).size_bytes) == of(6 * 1024)
    assert summary(got.messages(0).duration_ns) == of(50)
    assert summary(got.messages(0).completion_ns) == of(300)
    assert summary(got.latency(0).request_to_ack_ns) == of(290)


def test_copies_and_retransmissions_are_no_messages():
    rows = write(0, 3, 0)
    for verdict in (RETRANSMITTED, DUPLICATE, TAP_COPY):
        rows += write(0, 3, 100, verdict=verdict)
    got = measure([*rows, ack(2, 500)])
    assert got.messages(0).count == 1
    assert summary(got.messages(0).completion_ns) == of(500)
    assert got.latency(0).request_to_ack_ns is None  # Karn: which of them was acknowledged?


def test_one_ack_completes_all_messages_before_it():
    rows = [r for k in range(5) for r in write(2 * k, 2, 100 * k)]
    got = measure([*rows, ack(9, 1000), ack(9, 1200)])
    assert summary(got.messages(0).completion_ns) == of(1000, 900, 800, 700, 600)
    assert got.messages(0).max_outstanding == 5
    assert summary(got.latency(0).request_to_ack_ns) == of(1000 - 410)


def test_a_nak_acknowledges_what_lies_before_it_measure():
    rows = [*write(0, 2, 0), *write(2, 2, 100)]
    got = measure([*rows, ack(2, 500, syndrome=0x60), ack(3, 900, syndrome=0x2E)])
    assert summary(got.messages(0).completion_ns) == of(500)
    assert got.latency(0).request_to_ack_ns is None


def test_reads_complete_with_their_last_response():
    rows = [read(7, 3000, 0), read(10, 100, 5), *responses(7, 3, 100), *responses(10, 1, 200, 100)]
    got = measure(rows)
    assert got.messages(0).count == 2
    assert got.messages(1).count == 0
    assert summary(got.messages(0).size_bytes) == of(3000, 100)
    assert summary(got.messages(0).completion_ns) == of(120, 195)
    assert summary(got.latency(0).read_to_first_response_ns) == of(100, 195)
    assert got.latency(0).request_to_ack_ns is None
    assert got.messages(0).max_outstanding == 2
    assert got.goodput_bits_per_second(1) == (3 * 1024 + 100) * 8e9 / 100
    assert got.goodput_bits_per_second(0) is None


def test_a_response_acknowledges_the_writes_before_its_read_but_an_ack_no_read():
    rows = [*write(0, 2, 0), read(2, 2048, 20), *write(4, 1, 30), ack(4, 100), ack(4, 150)]
    got = measure([*rows, *responses(2, 2, 200)])
    assert summary(got.messages(0).completion_ns) == of(100, 70, 210 - 20)
    got = measure([*write(0, 2, 0), read(2, 2048, 20), *responses(2, 2, 200)])
    assert summary(got.messages(0).completion_ns) == of(200, 190)


def test_atomics_complete_with_their_ack():
    rows = [row("RC_FETCH_ADD", 5, 0), row("RC_ATOMIC_ACK", 5, 80, flow=1)]
    got = measure(rows)
    assert got.messages(0).count == 1
    assert summary(got.messages(0).size_bytes) == of(8)
    assert summary(got.messages(0).completion_ns) == of(80)


def test_datagrams_and_unreliable_writes_have_sizes_only():
    rows = [row("UD_SEND_ONLY", 3, 0, payload=77, verdict=NOT_SEQUENCED)]
    rows += [
        row("UC_WRITE_FIRST", 0, 10, flow=1, payload=512),
        row("UC_WRITE_LAST", 1, 20, flow=1, payload=5),
    ]
    got = measure(rows)
    assert summary(got.messages(0).size_bytes) == of(77)
    assert summary(got.messages(1).size_bytes) == of(517)
    assert got.messages(1).completion_ns is got.messages(1).max_outstanding is None
    assert got.untracked(1) == 0


def test_messages_cut_off_or_broken_are_incomplete():
    """The first lacks its beginning, the second its middle, the third its end."""
    rows = [*write(0, 3, 0)[1:], *write(3, 3, 100)[::2], *write(6, 3, 200)[:2]]
    got = measure(rows)
    assert got.messages(0).count == 0
    assert got.messages(0).incomplete == 2  # two begun and not ended, two ended and not begun
    late = batch_of([write(3, 3, 100)[1] | {"verdict": RECOVERED, "time_ns": START_NS + 300}])
    got.update(late)
    assert (got.messages(0).count, got.messages(0).incomplete) == (1, 1)


def test_a_restart_gives_up_what_was_open():
    rows = [*write(0, 2, 0), *write(2, 3, 50)[:2], *write(90_000, 2, 100)]
    rows[4]["verdict"] = RESTARTED
    got = measure([*rows, ack(90_001, 400)])
    assert (got.messages(0).count, got.messages(0).incomplete) == (2, 1)
    assert summary(got.messages(0).completion_ns) == of(300)
    assert got.untracked(0) == 1


def test_answers_from_before_the_pairing_do_not_lengthen_completions():
    unpaired = batch_of(
        [*write(0, 2, 0), ack(1, 50), *write(2, 2, 100), *write(4, 2, 200)], (-1, -1)
    )
    paired = batch_of([*write(6, 2, 300), ack(7, 500)])
    got = updated(MessageStatistics(), [unpaired, paired])
    assert summary(got.messages(0).completion_ns) == of(200)
    assert got.messages(0).max_outstanding == 1


def test_more_outstanding_than_the_ring_holds():
    rows = [r for k in range(200) for r in write(k, 1, k)]
    got = measure([*rows, ack(199, 1000), *write(200, 1, 1001), ack(200, 1100)])
    assert got.untracked(0) == 72
    assert got.messages(0).completion_ns.count == 129
    assert got.messages(0).max_outstanding == 200


# Messages and latencies equal a plain twin's, however packets are lost, split and merged.


def check(got, rows):
    twin = Twin(rows)
    for flow in (0, 1):
        messages, latency = got.messages(flow), got.latency(flow)
        assert messages.count == twin.count[flow]
        assert messages.incomplete == twin.incomplete(flow)
        assert summary(messages.size_bytes) == twin.of(flow, "size")
        assert summary(messages.duration_ns) == twin.of(flow, "duration")
        assert summary(messages.completion_ns) == twin.of(flow, "completion")
        assert messages.max_outstanding in (None, twin.most[flow])
        assert summary(latency.request_to_ack_ns) == twin.of(flow, "ack")
        assert summary(latency.read_to_first_response_ns) == twin.of(flow, "first")
        assert got.goodput_bits_per_second(flow) == twin.delivered[flow].bits_per_second()


BASE = (1 << 24) - 20


@st.composite
def conversations(draw):
    """Messages of flow 0 with ACKs and responses of flow 1: shuffled, lost, retransmitted."""
    rows, psn = [], BASE
    for kind, size in draw(
        st.lists(st.tuples(st.sampled_from("wwwsra"), st.integers(1, 5)), max_size=12)
    ):
        at = 100 * len(rows)
        if kind == "r":
            rows += [read(psn, 1000 * size, at), *responses(psn, size, at + 150)]
        elif kind == "a":
            rows += [row("RC_FETCH_ADD", psn, at), row("RC_ATOMIC_ACK", psn, at + 150, flow=1)]
        else:
            rows += write(psn, size, at, payload=draw(st.integers(0, 1024)))
        psn += size if kind != "a" else 1
        if draw(st.booleans()):
            rows.append(ack(psn - 1, at + 140, syndrome=draw(st.sampled_from([0x1F, 0x60, 0x20]))))
    delays = draw(st.lists(st.sampled_from([0, 0, 0, 170, 450]), min_size=80, max_size=80))
    rows = [r | {"time_ns": r["time_ns"] + d} for r, d in zip(rows, delays, strict=False)]
    rows = [r for r in rows if draw(st.integers(0, 9)) != 9]
    for r in draw(st.lists(st.sampled_from(rows), max_size=3)) if rows else []:
        again = draw(st.sampled_from([RETRANSMITTED, DUPLICATE]))
        if r["verdict"] != NOT_SEQUENCED:
            rows.append(r | {"time_ns": r["time_ns"] + 333, "verdict": again})
    rows.sort(key=lambda r: r["time_ns"])
    fates = draw(
        st.lists(st.sampled_from([IN_ORDER, IN_ORDER, RECOVERED]), min_size=90, max_size=90)
    )
    blank = {"bth_flags": 0, "dma_length": 0, "aeth": 0, "decode_flags": 0}
    return [
        blank | r | ({"verdict": fate} if r["verdict"] == IN_ORDER else {})
        for r, fate in zip(rows, fates, strict=False)
    ]


@st.composite
def nonsense(draw):
    """Any opcodes at any near PSNs; the first copy of each PSN is new."""
    names = [
        "SEND_FIRST",
        "SEND_MIDDLE",
        "SEND_MIDDLE",
        "SEND_LAST",
        "WRITE_ONLY",
        "READ_RESPONSE_LAST",
        "ATOMIC_ACK",
        "ACK",
    ]
    rows, seen = [], set()
    for time, (name, psn, wants) in enumerate(
        draw(
            st.lists(
                st.tuples(st.sampled_from(names), st.integers(0, 40), st.booleans()), max_size=100
            )
        )
    ):
        answer = name.startswith("READ") or "ACK" in name
        r = {"aeth": 0, "dma_length": 0, "bth_flags": ACK_REQUEST if wants and not answer else 0}
        r |= row(f"RC_{name}", BASE + psn, time, int(answer), psn)
        if name == "ACK":
            r = ack(BASE + psn, time)
        elif (answer, psn) in seen:
            r["verdict"] = RETRANSMITTED
        seen.add((answer, psn))
        rows.append(r)
    return rows


@pytest.mark.thorough
@examples(200)
@given(conversations() | nonsense(), st.lists(st.integers(0, 60), max_size=4))
def test_equals_the_twin_however_the_capture_is_split(rows, cuts):
    check(updated(MessageStatistics(), parts(batch_of(rows), cuts)), rows)


@examples(60)
@given(conversations(), conversations(), st.integers(0, 60))
def test_merge(rows, others, cut):
    """The flows of both sides continue after the merge."""
    left = measure(rows)
    right = measure(others[:cut])
    left.merge(right, np.array([70, 71], np.int32))
    moved = [r | {"flow": r["flow"] + 70} for r in others[cut:]]
    left.update(batch_of(moved, [1, 0, *[-1] * 68, 71, 70]))
    check(left, rows)
    alone = measure(others)
    for flow in (0, 1):
        assert left.messages(70 + flow) == alone.messages(flow)
        assert left.latency(70 + flow) == alone.latency(flow)
        assert left.untracked(70 + flow) == alone.untracked(flow)
        assert left.goodput_bits_per_second(70 + flow) == alone.goodput_bits_per_second(flow)


# Times of single messages, against a plain twin.

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
