"""The tracker: flows by name, and flows that leave memory."""

from __future__ import annotations

import numpy as np
import pytest
from captures import data
from examples import thorough
from hypothesis import given, settings
from hypothesis import strategies as st
from traffic import (
    ACK,
    READ_MIDDLE,
    READ_REQUEST,
    START_NS,
    WRITE_MIDDLE,
    WRITE_ONLY,
    batches,
    packets,
    track,
)
from work import lines_run

from rocescope.analyzer.capture.source import open_capture
from rocescope.analyzer.decode.decoder import Decoder
from rocescope.analyzer.statistics.per_flow import kept_flows
from rocescope.analyzer.track import answers, state
from rocescope.analyzer.track.batch import (
    IN_ORDER,
    MIRROR_DUPLICATE,
    NOT_SEQUENCED,
    RECOVERED,
    REORDERED,
    RESTARTED,
    RETRANSMITTED,
    TAP_COPY,
)
from rocescope.analyzer.track.tracker import FlowTracker
from rocescope.analyzer.wire.packets import HAS_AETH, HAS_RETH, IPV6
from rocescope.analyzer.wire.registry import Registry
from rocescope.analyzer.wire.taps import MANY_TAPS, Taps

# The tracker: flows by name, and flows that leave memory.


def test_expected_flows_are_tracked_as_others_and_nothing_grows_for_them():
    taps, plain, expecting = Taps(), FlowTracker(), FlowTracker()
    expecting.expect(1_000)
    room = expecting.state
    verdicts = []
    with open_capture(str(data("i01_write_loss0.5_AtoB.atB")), taps) as capture:
        decoder = Decoder(Registry(taps=taps))
        for frames in capture.batches():
            table = decoder.decode(frames)
            verdicts.append((plain.update(table).verdict, expecting.update(table).verdict))
    assert verdicts and all((a == b).all() for a, b in verdicts)
    assert (plain.flows == expecting.flows).all() and len(plain) == len(expecting) > 0
    for name in ("flows", "streams", "slots", "recents"):
        assert getattr(expecting.state, name) is getattr(room, name)
    expecting.expect(10)
    assert len(expecting.state.flows) == 1_000


@pytest.mark.parametrize("taps", [600, MANY_TAPS + 1])
def test_taps_that_appear_one_by_one_cost_no_more_than_all_at_once(taps):
    """60,000 interfaces of a capture are MANY_TAPS taps and one for the rest."""
    tracker, copied = FlowTracker(), 0
    for tap in range(taps):
        before = tracker.state.copies
        tracker.see_taps(tap + 1)
        tracker.state.copies[tap, tap // 2] += tap
        if tracker.state.copies is not before:
            copied += before.size
        tracker.ran(tap, 7)
    assert copied < 1.5 * taps * taps
    assert tracker.copies.shape == (taps, taps)
    assert tracker.copies.sum() == sum(range(taps))
    assert (tracker.state.began[:taps] == 7).all()


@given(
    st.lists(st.tuples(st.integers(0, 70), st.integers(0, 255)), max_size=80),
    st.lists(st.integers(0, 80), max_size=3),
)
def test_packets_per_opcode_are_counted_in_few_columns(rows, cuts):
    """As in a plain table of all 256 opcodes, however many flows and opcodes appear, and when."""
    tracker, expected = FlowTracker(), np.zeros((71, 256), np.int64)
    table = packets(
        [{"dest_qp": 2 + qp, "opcode": op, "psn": i, "ip_id": i} for i, (qp, op) in enumerate(rows)]
    )
    for part in batches(table, cuts):
        found = tracker.update(part)
        kept = found.verdict != TAP_COPY
        np.add.at(expected, (part.dest_qp[kept].astype(np.int64) - 2, part.opcode[kept]), 1)
    numbers = tracker.flows["dest_qp"].astype(np.int64) - 2
    assert np.array_equal(tracker.opcodes(np.arange(len(tracker))), expected[numbers])
    assert tracker._opcodes.arrays.packets.shape[1] <= max(8, 2 * len({op for _, op in rows}))


CNP = 0x81
CONSTANT = {"ip_id": 0}
NONE = {"ip_id": 0, "decode_flags": IPV6}


def verdicts(rows):
    tracker = FlowTracker()
    return tracker, track(tracker, packets(rows)).tolist()


def test_the_first_packet_sent_again_and_again_is_no_duplicate():
    """A peer that is gone: one SEND and seven retries, all with the identification 0."""
    rows = [
        {"psn": 5, "opcode": WRITE_ONLY, "time_ns": START_NS + 4_000_000 * i} | CONSTANT
        for i in range(8)
    ]
    tracker, found = verdicts(rows)
    assert found == [IN_ORDER] + [RETRANSMITTED] * 7
    assert tracker.flows[0]["retransmitted_by"][state.BY_TIMEOUT] == 7


def test_cnps_with_a_constant_identification_on_two_taps():
    """In series each CNP counts once, not twice; all CNPs have PSN 0."""
    rows = []
    for i in range(20):
        ack = {"psn": 8 * i, "opcode": ACK, "syndrome": 0x1F} | CONSTANT
        rows += [ack | {"tap": 0}, ack | {"tap": 1}]
        cnp = {"psn": 0, "opcode": CNP} | CONSTANT
        rows += [cnp | {"tap": 0}, cnp | {"tap": 1}]
    tracker, found = verdicts(rows)
    assert found == [NOT_SEQUENCED, TAP_COPY] * 40
    assert tracker.flows[0]["cnps"] == tracker.flows[0]["ack_packets"] == 20


@pytest.mark.parametrize("same", [CONSTANT, NONE])
def test_acks_of_every_64th_packet_on_their_way_between_two_taps(same):
    """The second tap sees each of them ten ACKs later."""
    acks = [{"psn": 64 * i, "opcode": ACK, "syndrome": 0x1F} | same for i in range(100)]
    rows = []
    for i in range(110):
        rows += [a | {"tap": 0} for a in acks[i : i + 1]]
        rows += [a | {"tap": 1} for a in acks[max(i - 10, 0) : i - 9] if i >= 10]
    tracker, found = verdicts(rows)
    assert found.count(TAP_COPY) == found.count(NOT_SEQUENCED) == 100
    assert tracker.flows[0]["ack_packets"] == 100


@pytest.mark.parametrize("same", [CONSTANT, NONE])
def test_a_mirror_further_on_without_identifications(same):
    """Its copies come five packets later, with one hop less: nothing was sent twice."""
    rows = []
    for i in range(105):
        rows += [{"psn": i} | same] if i < 100 else []
        rows += [{"psn": i - 5, "hop_limit": 63} | same] if i >= 5 else []
    tracker, found = verdicts(rows)
    assert found.count(IN_ORDER) == found.count(MIRROR_DUPLICATE) == 100
    assert tracker.flows[0]["rewinds"] == 0


def test_identifications_of_a_busy_sender_date_nothing_after_a_timeout():
    """The counter of all its queue pairs has gone round meanwhile: 0x9000 further is "before"."""
    rows = [{"psn": p, "ip_id": 40 * p & 0xFFFF} for p in [*range(100), 101]]
    resend = {"psn": 100, "ip_id": (40 * 101 + 0x9000) & 0xFFFF, "time_ns": START_NS + 50_000_000}
    tracker, found = verdicts([*rows, resend])
    assert found[-1] == RECOVERED
    assert tracker.stream(0, state.REQUESTS)["reordered"] == 0


@pytest.mark.parametrize("ids", ["ascending", "constant", "random"])
def test_a_sprayed_flow_seen_from_its_middle_on(ids):
    """Paths differ by hundreds of packets: PSNs before the first one seen are not retransmitted.

    Oracle: every packet is sent once and comes once.
    """
    rng = np.random.default_rng(4)
    psns = np.arange(3000)
    arrival = np.argsort(psns + rng.integers(0, 600, 3000), kind="stable")
    order = psns[arrival][400:]  # the capture begins here
    rows = []
    for i, p in enumerate(order.tolist()):
        ip_id = {"ascending": p & 0xFFFF, "constant": 0, "random": int(rng.integers(0, 1 << 16))}
        row = {"psn": 70_000 + p, "opcode": WRITE_MIDDLE, "ip_id": ip_id[ids]}
        rows.append(row | {"time_ns": START_NS + 100 * i})
    tracker, found = verdicts(rows)
    highest = np.maximum.accumulate(order)
    assert [v == REORDERED for v in found] == (order < highest).tolist()
    assert RETRANSMITTED not in found and RECOVERED not in found


@pytest.mark.parametrize("same", [{}, NONE])
def test_unreliable_connections_send_nothing_again(same):
    """Late by any time and with any identification: it is the only transmission."""
    middle = {"opcode": 0x27} | same
    rows = [{"psn": p} | middle for p in [*range(30), 31]]
    rows += [{"psn": 30, "time_ns": START_NS + 5_000_000} | middle]
    assert verdicts(rows)[1][-1] == REORDERED


def test_flows_of_unknown_opcodes_and_of_cnps_name_their_transport():
    tracker, _ = verdicts([{"opcode": 0xC0, "psn": 1}, {"opcode": CNP, "psn": 0, "dest_qp": 0x21}])
    assert tracker.flows["transport"].tolist() == [6, 4]


QPS = 6
ROWS = st.lists(
    st.tuples(st.integers(0, QPS - 1), st.integers(0, 60), st.booleans()), min_size=1, max_size=60
)


def table(rows, start):
    """Every queue pair between hosts of its own, so that no flow can be a candidate of another."""
    return packets(
        [
            {"src": 2 * qp, "dst": 2 * qp + 1, "dest_qp": 100 + qp, "psn": psn, "ip_id": psn & 3,
             "time_ns": start + 1000 * at, "opcode": ACK if ack else WRITE_MIDDLE}
            for at, (qp, psn, ack) in enumerate(rows)
        ]
    )  # fmt: skip


@settings(deadline=None, max_examples=60)
@given(ROWS, st.lists(st.booleans(), min_size=QPS, max_size=QPS), ROWS)
def test_verdicts_and_counts_after_flows_left_are_those_without_them(before, stays, after):
    stays_of_qp = dict(enumerate(stays))
    with_all, without = FlowTracker(), FlowTracker()
    for tracker in (with_all, without):
        tracker.ran(0, 0)
    with_all.update(table(before, 0))
    first = table(before, 0)
    without.update(first.take(np.array([stays_of_qp[qp] for qp, _, _ in before])))
    qps = with_all.flows["dest_qp"] - 100
    with_all.keep(kept_flows(np.array([stays_of_qp[int(qp)] for qp in qps])))
    assert len(with_all) == len(without)
    later = table(after, 1_000_000_000)
    verdicts = [tracker.update(later).verdict.tolist() for tracker in (with_all, without)]
    assert verdicts[0] == verdicts[1]
    for name in ("dest_qp", "packets", "wire_bytes", "path_mtu", "peer", "next_in_pair"):
        assert with_all.flows[name].tolist() == without.flows[name].tolist()
    for name in ("arrivals", "missing", "reordered", "recovered", "duplicates", "retransmitted"):
        ours, theirs = (t.state.streams[name][: 2 * len(t)].tolist() for t in (with_all, without))
        assert ours == theirs
    used = [
        t.state.used[[state.USED_FLOWS, state.USED_PAIRS]].tolist() for t in (with_all, without)
    ]
    assert used[0] == used[1]


def test_events_of_flows_that_left_count_as_omitted():
    tracker = FlowTracker()
    jump = [(qp, psn, False) for psn in (0, 1) for qp in (0, 1)]
    tracker.update(table(jump, 0))
    far = packets(
        [{"src": 2 * qp, "dst": 2 * qp + 1, "dest_qp": 100 + qp, "psn": 1 << 22} for qp in (0, 1)]
    )
    tracker.update(far)  # two restarts
    assert tracker.state.used[state.USED_EVENTS] == 2
    tracker.keep(kept_flows(np.array([False, True])))
    assert tracker.state.used[[state.USED_EVENTS, state.OMITTED_EVENTS]].tolist() == [1, 1]
    assert tracker.state.events["flow"][0] == 0


@pytest.mark.parametrize("flows", [0, 1, 3, 5])
def test_a_tracker_read_from_a_file_finds_its_flows(flows):
    """Any number of flows: the hash tables have a size that is a power of two."""
    tracker, back = FlowTracker(), FlowTracker()
    pairs = packets([{"src": 2 * n, "dst": 2 * n + 1, "dest_qp": 9 + n} for n in range(flows)])
    tracker.update(pairs)
    vars(back).update(tracker.saved())
    back.restore()
    assert back.knows(pairs).all()
    assert len(back._flow_slots).bit_count() == 1


# Hostile sequences need a bounded multiple of the work of orderly ones, and lose no count.

PACKETS = 100_000
LINES_PER_PACKET, LINES_PER_SLOT = 4_000, 150
"""Most lines of plain Python per packet, and once per slot of a window that grows to its largest.

A packet in order takes 130. Unbounded, each of the sequences below would take millions for some
packets: one for each PSN in between.
"""


def flood(count=PACKETS, **columns):
    """A table of `count` packets."""
    table = packets([{}] * 2).take(np.zeros(count, np.int64))
    table.time_ns[:] += 1000 * np.arange(count)
    table.ip_id[:] = np.arange(count) & 0xFFFF
    table.opcode[:] = WRITE_ONLY
    for name, values in columns.items():
        getattr(table, name)[:] = values
    table.psn[:] &= 0xFFFFFF
    return table


def random_psns(rng, i):
    return {"psn": rng.integers(0, 1 << 24, len(i))}


def jumps_forward(rng, i):
    return {"psn": i * 32_767}


def jumps_forward_of_responses(rng, i):
    return {"psn": i * 32_767, "opcode": READ_MIDDLE}


def half_the_space(rng, i):
    return {"psn": i << 23}


def reversed_order(rng, i):
    return {"psn": len(i) - i}


def enormous_reads(rng, i):
    return {
        "psn": rng.integers(0, 1 << 24, len(i)),
        "opcode": np.where(i % 2, READ_REQUEST, WRITE_ONLY),
        "dma_length": 0xFFFFFFFF,
        "decode_flags": HAS_RETH,
    }


def answers_to_nobody(rng, i):
    """5,000 queue pairs each way between two hosts, and ACKs that fit many or none."""
    forth = i % 2 == 0
    return {
        "src": np.where(forth, 0, 1),
        "dst": np.where(forth, 1, 0),
        "dest_qp": rng.integers(2, 5_002, len(i)),
        "psn": i // 10_000,
        "opcode": np.where(forth, WRITE_ONLY, ACK),
        "aeth": 0x1F << 24,
        "decode_flags": HAS_AETH,
    }


KINDS = [
    random_psns,
    jumps_forward,
    jumps_forward_of_responses,
    half_the_space,
    reversed_order,
    enormous_reads,
    answers_to_nobody,
]
WINDOWS_GROW = (jumps_forward, jumps_forward_of_responses)
BRIEF = (random_psns, half_the_space, reversed_order, enormous_reads)
"""Whose work is counted within seconds."""


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [*BRIEF, *thorough(k for k in KINDS if k not in BRIEF)])
def test_work_per_packet_is_bounded(kind, monkeypatch):
    # The search for peers is unlimited up to this number of candidates, and rationed after it.
    monkeypatch.setattr(answers, "_CANDIDATES_FREE", 1 << 12)
    count = 16 if kind in WINDOWS_GROW else 1_000 if kind is answers_to_nobody else 150
    table = flood(count, **kind(np.random.default_rng(1), np.arange(count)))
    lines = lines_run(lambda: track(FlowTracker(), table, [count // 2]))
    growing = LINES_PER_SLOT * state.MAX_WINDOW if kind in WINDOWS_GROW else 0
    assert lines < LINES_PER_PACKET * count + growing


@pytest.mark.parametrize("kind", KINDS)
def test_no_packet_is_lost(kind):
    table, tracker = flood(**kind(np.random.default_rng(1), np.arange(PACKETS))), FlowTracker()
    track(tracker, table, range(0, PACKETS, 10_000))
    assert tracker.flows["packets"].sum() == PACKETS
    for flow in range(min(len(tracker), 10)):
        assert tracker.missing(flow, state.REQUESTS)[0] >= 0


def test_after_a_restart_all_is_as_at_the_beginning():
    """Whatever window the sequence before has left: the next one is judged like the first."""
    rng = np.random.default_rng(7)
    before = [*range(100), *range(20_000, 20_100), 19_000, *range(45_000, 45_100)]
    parts = [np.arange(9_000_000, 9_000_400)]
    for start in (9_000_400, 9_001_500, 9_004_000, 9_020_000):  # gaps that widen the window
        block = np.arange(start, start + 300)
        rng.shuffle(block)
        parts += [block, np.arange(start - 60, start - 40)]
    after = np.concatenate(parts).tolist()
    alone = track(FlowTracker(), packets([{"psn": p, "ip_id": 0} for p in after]))
    both = packets([{"psn": p, "ip_id": 0} for p in [*before, *after]])
    both.time_ns[len(before) :] += 10_000_000_000
    tracker = FlowTracker()
    verdicts = track(tracker, both)[len(before) :]
    assert (alone[0], verdicts[0]) == (IN_ORDER, RESTARTED)
    assert np.array_equal(verdicts[1:], alone[1:])
    assert tracker.stream(0, state.REQUESTS)["restarts"] == 1
