"""Verdicts on PSNs, reordering metrics and rewinds equal their plain twins."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from rfc4737_twin import measure
from traffic import (
    ACK,
    ATOMIC_ACK,
    FETCH_ADD,
    NAK_SEQUENCE_ERROR,
    READ_FIRST,
    READ_LAST,
    READ_MIDDLE,
    READ_ONLY,
    READ_REQUEST,
    RNR_NAK,
    START_NS,
    WRITE_FIRST,
    WRITE_LAST,
    WRITE_MIDDLE,
    WRITE_ONLY,
    packets,
    track,
)

from rocescope.analyzer.measures.series import Totals
from rocescope.analyzer.track import state
from rocescope.analyzer.track.batch import (
    AHEAD,
    DUPLICATE,
    IN_ORDER,
    MIRROR_DUPLICATE,
    NOT_SEQUENCED,
    OVERTAKEN,
    RECOVERED,
    REORDERED,
    RESTARTED,
    RETRANSMITTED,
    TAP_COPY,
)
from rocescope.analyzer.track.matching import Matching
from rocescope.analyzer.track.tracker import FlowTracker
from rocescope.analyzer.wire.bth import ACKNOWLEDGE, OPCODE_CLASS, SEQUENCED
from rocescope.analyzer.wire.packets import HAS_AETH, IPV6

UD_SEND = 0x64


def verdicts(rows, cuts=()):
    tracker = FlowTracker()
    return tracker, track(tracker, packets(rows), cuts).tolist()


def in_order(count, start=0, **more):
    return [{"psn": start + i, **more} for i in range(count)]


def read(psn, mtu, length):
    """A READ request and all its responses."""
    count = max(1, -(-length // mtu))
    rows = [{"psn": psn, "opcode": READ_REQUEST, "dma_length": length, "payload_bytes": 0}]
    for i in range(count):
        name = (
            READ_ONLY if count == 1 else {0: READ_FIRST, count - 1: READ_LAST}.get(i, READ_MIDDLE)
        )
        size = min(mtu, length - i * mtu)
        rows.append({"answer": True, "psn": psn + i, "opcode": name, "payload_bytes": size})
    return rows, count


@examples(60)
@given(
    st.lists(st.tuples(st.sampled_from("RWA"), st.integers(0, 20_000)), min_size=1, max_size=25),
    st.sampled_from([256, 1024, 4096]),
    st.sampled_from([7, 0xFFFFF5]),
    st.lists(st.integers(1, 300), max_size=4),
)
def test_reads_reserve_the_psns_of_their_responses(operations, mtu, psn, cuts):
    """READs, WRITEs and atomics of one QP in any mixture: every PSN is where it must be."""
    rows = in_order(4, psn - 4, opcode=WRITE_MIDDLE, payload_bytes=mtu)
    for kind, length in operations:
        if kind == "R":
            new, count = read(psn, mtu, length)
        elif kind == "W":
            new, count = [{"psn": psn, "opcode": WRITE_ONLY, "payload_bytes": 8}], 1
            new.append({"answer": True, "psn": psn, "opcode": ACK, "syndrome": 0x1F})
        else:
            new, count = [{"psn": psn, "opcode": FETCH_ADD, "payload_bytes": 0}], 1
            new.append({"answer": True, "psn": psn, "opcode": 0x12, "syndrome": 0x1F})
        rows += new
        psn += count
    tracker, found = verdicts(rows, cuts)
    assert set(found) <= {IN_ORDER, NOT_SEQUENCED}
    assert [tracker.missing(f, w) for f in range(len(tracker)) for w in (0, 1)] == [(0, 0)] * (
        2 * len(tracker)
    )


def test_reads_of_unknown_path_mtu_claim_no_loss():
    """Only requests are captured; two of three PSN steps fit a path MTU, one fits none."""
    rows = [
        {"psn": p, "opcode": READ_REQUEST, "dma_length": 65536, "payload_bytes": 0}
        for p in (0, 64, 128, 333)
    ]
    tracker, found = verdicts(rows)
    assert found == [IN_ORDER] * 4
    assert tracker.missing(0, state.REQUESTS) == (0, 0)


def test_a_lost_read_response_is_missing():
    rows, _ = read(100, 1024, 8192)
    del rows[4]
    tracker, found = verdicts(rows)
    assert found.count(AHEAD) == 1 and set(found) == {IN_ORDER, AHEAD}
    assert tracker.missing(1, state.RESPONSES) == (1, 0)


def test_a_read_asked_again_in_its_middle_is_implied():
    rows = in_order(10, 0, opcode=WRITE_ONLY)
    first, count = read(10, 1024, 8192)
    again, _ = read(14, 1024, 4096)
    after = in_order(3, 10 + count, opcode=WRITE_ONLY)
    tracker, _ = verdicts(rows + first[:5] + again + after)
    by = tracker.flows[0]["retransmitted_by"]
    assert by[state.BY_IMPLIED] == 1 and by.sum() == 1
    assert tracker.stream(1, state.RESPONSES)["retransmitted"] == 0
    assert tracker.missing(1, state.RESPONSES) == (0, 0)
    assert tracker.missing(0, state.REQUESTS) == (0, 0)


@pytest.mark.parametrize("ipv6", [False, True])
def test_a_read_asked_again_in_its_middle_has_copies_at_other_taps(ipv6):
    """No packet had its PSN before; asked again, it is another transmission."""
    same = {"decode_flags": IPV6, "ip_id": 0} if ipv6 else {}
    rows = [{"psn": 9, "opcode": WRITE_MIDDLE, "ip_id": 0, **same}]  # it tells the path MTU
    for n, psn in enumerate((10, 18, 22, 22, 26)):
        (request, *_), _ = read(psn, 1024, 4096 if psn == 22 else 8192)
        for tap in range(4):
            time = START_NS + n * 50_000_000 + tap * 5_000
            at = {"time_ns": time, "tap": tap, "hop_limit": 64 - tap}
            rows.append({"ip_id": n + 1, **request, **at, **same})
    _, found = verdicts(rows)
    copies = [TAP_COPY] * 3
    again = [RETRANSMITTED, *copies]
    new = [IN_ORDER, *copies]
    assert found == [IN_ORDER, *new, *new, *again, *again, *new]


def test_acks_and_requests_of_one_flow_do_not_mix():
    """The PSNs of ACKs belong to the other side: any value changes nothing."""
    rows = []
    for i in range(50):
        rows.append({"psn": 1000 + i, "opcode": WRITE_ONLY})
        rows.append({"psn": (i * 7919) & 0xFFFFFF, "opcode": ACK, "syndrome": 0x1F})
    _, found = verdicts(rows)
    assert found == [IN_ORDER, NOT_SEQUENCED] * 50


def test_datagrams_have_no_order():
    _, found = verdicts([{"psn": p, "opcode": UD_SEND} for p in (5, 9, 1, 1000, 4)])
    assert found == [NOT_SEQUENCED] * 5


def test_a_far_jump_is_another_sequence_not_a_loss():
    rows = in_order(20) + in_order(20, 5_000_000)
    tracker, found = verdicts(rows)
    assert found == [IN_ORDER] * 20 + [RESTARTED] + [IN_ORDER] * 19
    assert tracker.missing(0, state.REQUESTS) == (0, 0)
    assert tracker.stream(0, state.REQUESTS)["restarts"] == 1


def test_missing_before_a_restart_stays_missing():
    rows = in_order(20) + in_order(20, 25) + in_order(20, 9_000_000)
    tracker, _ = verdicts(rows)
    assert tracker.missing(0, state.REQUESTS) == (5, 0)


def test_a_capture_that_begins_in_a_rewind_or_in_disorder():
    rows = [{"psn": p, "ip_id": 100 + p} for p in (12, 10, 11, 13, 14)]
    _, found = verdicts(rows)
    assert found == [IN_ORDER, REORDERED, REORDERED, IN_ORDER, IN_ORDER]


def test_mirror_at_two_hops():
    rows = []
    for i in range(40):
        rows += [{"psn": i, "ip_id": i, "hop_limit": 64}, {"psn": i, "ip_id": i, "hop_limit": 63}]
    tracker, found = verdicts(rows)
    assert found == [IN_ORDER, MIRROR_DUPLICATE] * 40
    assert tracker.stream(0, state.REQUESTS)["mirror_duplicates"] == 40


def test_two_taps_in_series_and_an_answer_seen_the_other_way_round():
    rows = []
    for i in range(60):
        rows += [{"psn": i, "ip_id": i, "tap": 0}, {"psn": i, "ip_id": i, "tap": 1}]
        ack = {"answer": True, "psn": i, "opcode": ACK, "syndrome": 0x1F, "ip_id": 500 + i}
        rows += [ack | {"tap": 1}, ack | {"tap": 0}]
    tracker, found = verdicts(rows)
    assert found == [IN_ORDER, TAP_COPY, NOT_SEQUENCED, TAP_COPY] * 60
    assert tracker.copies.tolist() == [[0, 60], [60, 0]]


@pytest.mark.parametrize(("ip_id", "verdict"), [(501, REORDERED), (503, RECOVERED), (9, RECOVERED)])
def test_late_in_a_young_flow(ip_id, verdict):
    """Two packets say little about identifications, but one just below the next was sent before."""
    late = {"psn": 1, "ip_id": ip_id, "time_ns": START_NS + 5_000_000}
    rows = [{"psn": 0, "ip_id": 500}, {"psn": 2, "ip_id": 502}, late]
    assert verdicts(rows)[1] == [IN_ORDER, AHEAD, verdict]


@pytest.mark.parametrize("serial", [True, False])
def test_an_original_overtaken_by_its_resend(serial):
    """On parallel paths it is one more transmission; taps in series have seen it before."""
    rows = []
    for i in range(40):
        rows += [{"psn": i, "ip_id": i, "tap": 0}]
        rows += [{"psn": i, "ip_id": i, "tap": 1}] if serial else []
    rows += [{"psn": 40, "ip_id": 40, "tap": 0}, {"psn": 40, "ip_id": 41, "tap": 0}]
    rows += [{"psn": 40, "ip_id": 40, "tap": 1}]
    _, found = verdicts(rows)
    assert found[-3:] == [IN_ORDER, RETRANSMITTED, TAP_COPY if serial else RETRANSMITTED]


def test_resend_and_late_original_are_told_apart_by_identification():
    """PSN 20 is lost and retransmitted (new ID); PSN 25 is late (old ID)."""
    rows = in_order(20, ip_id=0)
    for i, row in enumerate(rows):
        row["ip_id"] = i
    rows += [{"psn": 21, "ip_id": 21}, {"psn": 20, "ip_id": 22}, {"psn": 22, "ip_id": 23}]
    rows += [{"psn": 23, "ip_id": 24}, {"psn": 24, "ip_id": 25}, {"psn": 26, "ip_id": 27}]
    rows += [{"psn": 25, "ip_id": 26}, {"psn": 27, "ip_id": 28}]
    _, found = verdicts(rows)
    assert found[20:] == [
        AHEAD,
        RECOVERED,
        IN_ORDER,
        IN_ORDER,
        IN_ORDER,
        AHEAD,
        REORDERED,
        IN_ORDER,
    ]


class TestWithoutIdentification:
    """IPv6, and NICs that send one constant identification."""

    SAME = pytest.mark.parametrize("same", [{"ip_id": 0, "decode_flags": IPV6}, {"ip_id": 0}])

    @SAME
    def test_late_within_microseconds(self, same):
        rows = [r | same for r in in_order(30)] + [{"psn": p} | same for p in (31, 30, 32)]
        _, found = verdicts(rows)
        assert found[30:] == [AHEAD, REORDERED, IN_ORDER]

    @SAME
    def test_resent_after_a_nak(self, same):
        rows = [r | same for r in in_order(30, opcode=WRITE_ONLY)]
        acks = [{"answer": True, "psn": p, "opcode": ACK, "syndrome": 0x1F} for p in (9, 19, 29)]
        nak = {"answer": True, "psn": 30, "opcode": ACK, "syndrome": NAK_SEQUENCE_ERROR}
        rows += acks + [{"psn": 31} | same, nak, {"psn": 30} | same, {"psn": 31} | same]
        tracker, found = verdicts(rows)
        assert found[33:] == [AHEAD, NOT_SEQUENCED, RECOVERED, RETRANSMITTED]
        assert tracker.flows[0]["retransmitted_by"][state.BY_NAK] == 2

    @SAME
    def test_resent_after_a_silence(self, same):
        rows = [r | same for r in in_order(30)] + [{"psn": 31} | same]
        rows += [{"psn": p, "time_ns": START_NS + 10_000_000} | same for p in (30, 31)]
        tracker, found = verdicts(rows)
        assert found[30:] == [AHEAD, RECOVERED, RETRANSMITTED]
        assert tracker.flows[0]["retransmitted_by"][state.BY_TIMEOUT] == 2

    @SAME
    def test_twins_back_to_back(self, same):
        rows = [r | same for r in in_order(30)] + [{"psn": 29} | same, {"psn": 30} | same]
        _, found = verdicts(rows)
        assert found[30:] == [DUPLICATE, IN_ORDER]


def test_acknowledged_but_never_seen_is_suspected_capture_loss():
    rows = in_order(30, opcode=WRITE_ONLY) + in_order(20, 33, opcode=WRITE_ONLY)
    rows += [
        {"answer": True, "psn": p, "opcode": ACK, "syndrome": 0x1F} for p in (10, 20, 29, 45, 52)
    ]
    tracker, _ = verdicts(rows)
    assert tracker.missing(0, state.REQUESTS) == (3, 3)


@pytest.mark.thorough
@examples(40)
@given(st.integers(0, 2**31), st.lists(st.integers(1, 2000), max_size=6))
def test_any_packets_in_any_batches(seed, cuts):
    """Nonsense of every kind: batches change nothing, and no count is lost.

    READs are short: how many PSNs a long one reserves may be learned later in its batch. Nor are
    queue pairs compared: what pairs them may come later in the batch, too.
    """
    random = np.random.default_rng(seed)
    table = packets([{} for _ in range(1500)])
    table.psn[:] = random.choice([0, 2**24 - 1, 5000], 1500) + random.integers(0, 300, 1500)
    table.psn[:] &= 0xFFFFFF
    for name, high in (
        ("opcode", 256), ("tap", 3), ("dest_qp", 4), ("src", 3), ("dst", 3), ("ip_id", 2**16),
        ("aeth", 2**32), ("dma_length", 200), ("payload_bytes", 5000), ("hop_limit", 4),
    ):  # fmt: skip
        getattr(table, name)[:] = random.integers(0, high, 1500)
    one, other, comparing = FlowTracker(3), FlowTracker(3), FlowTracker(3)
    for tracker in (one, other, comparing):
        for tap in range(3):
            tracker.ran(tap, START_NS - 1_000_000_000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Matching, "look_ahead", lambda *_: [])
        whole, pieces = track(one, table), track(other, table, cuts)
    assert np.array_equal(whole, pieces)
    for name in one.flows.dtype.names:
        assert np.array_equal(one.flows[name], other.flows[name]), name
    check_counts(table, one, whole)
    check_counts(table, comparing, track(comparing, table, cuts))


def check_counts(table, one, whole):
    """Every packet counts once, by its verdict."""
    total = one.flows["packets"].sum() + one.flows["tap_copies"].sum()
    assert total == 1500 == one.opcodes(np.arange(len(one))).sum() + one.flows["tap_copies"].sum()
    assert one.flows["wire_bytes"].sum() == table.wire_bytes[whole != TAP_COPY].sum()
    streams = one.state.streams
    assert (streams["missing"] >= 0).all()
    for verdict, field in (
        (REORDERED, "reordered"), (RECOVERED, "recovered"), (RETRANSMITTED, "retransmitted"),
        (MIRROR_DUPLICATE, "mirror_duplicates"), (RESTARTED, "restarts"),
    ):  # fmt: skip
        sequenced = OPCODE_CLASS[table.opcode] & (SEQUENCED | ACKNOWLEDGE) == SEQUENCED
        assert streams[field].sum() == np.count_nonzero((whole == verdict) & sequenced), field


def atomic(psn):
    return {"psn": psn, "opcode": FETCH_ADD, "payload_bytes": 0}


def atomic_ack(psn):
    return {"answer": True, "psn": psn, "opcode": ATOMIC_ACK, "syndrome": 0x1F}


def test_a_lost_atomic_ack_is_missing_and_then_recovered():
    """The requester repeats the atomics from the lost ACK on; the responder answers them again."""
    rows = [row for p in range(10) for row in (atomic(p), atomic_ack(p))]
    rows += [atomic(p) for p in range(10, 15)]
    rows += [atomic_ack(p) for p in (10, 11, 13, 14)]
    tracker, _ = verdicts(rows)
    assert tracker.missing(1, state.RESPONSES)[0] == 1
    again = [atomic(p) for p in range(12, 15)] + [atomic_ack(p) for p in range(12, 15)]
    tracker, found = verdicts([*rows, *again])
    assert found[-3:] == [RECOVERED, RETRANSMITTED, RETRANSMITTED]
    assert tracker.missing(1, state.RESPONSES)[0] == 0
    assert tracker.stream(1, state.RESPONSES)["recovered"] == 1


def test_atomics_and_reads_follow_each_other_without_gaps():
    rows, count = read(0, 1024, 4096)
    for p in range(count, 12):
        rows += [atomic(p), atomic_ack(p)]
    more, _ = read(12, 1024, 4096)
    rows += [*more, atomic(16), atomic(17), atomic_ack(17)]
    tracker, _ = verdicts(rows)
    assert tracker.missing(1, state.RESPONSES)[0] == 1


def test_between_atomics_and_writes_no_ack_is_known_to_be_missing():
    rows = [row for p in range(8) for row in (atomic(p), atomic_ack(p))]
    write = {"psn": 8, "opcode": WRITE_ONLY, "payload_bytes": 8}
    tracker, _ = verdicts([*rows, write, atomic(9), atomic_ack(9)])
    assert tracker.missing(1, state.RESPONSES)[0] == 0


def test_a_lost_read_leaves_none_of_the_psns_that_it_reserves_missing():
    """A READ of four path MTUs is lost, NAKed and retransmitted: one packet was lost."""
    again = {"psn": 10, "opcode": READ_REQUEST, "dma_length": 4096, "payload_bytes": 0}
    nak = {"answer": True, "psn": 10, "opcode": ACK, "syndrome": NAK_SEQUENCE_ERROR}
    rows = [*in_order(10), {"psn": 14}, nak, again, {"psn": 14}]
    rows = [row | {"udp_sport": 49458} for row in rows]
    tracker, found = verdicts(rows)
    assert found[10:] == [AHEAD, NOT_SEQUENCED, RECOVERED, RETRANSMITTED]
    assert tracker.missing(0, state.REQUESTS) == (0, 0)


def from_the_first(count):
    """The packets of a connection, from the first message on."""
    return [{"psn": 0, "opcode": WRITE_FIRST}, *in_order(count - 1, 1)]


@pytest.mark.parametrize("ran_us", [None, 2_000, 200_000])
@pytest.mark.parametrize("begins", [False, True])
def test_the_first_packets_of_a_connection(ran_us, begins):
    """PSNs 0 to 39 are lost before the tap; the receiver NAKs them and gets them afterwards."""
    nak = {"answer": True, "psn": 0, "opcode": ACK, "syndrome": NAK_SEQUENCE_ERROR}
    nak |= {} if begins else {"aeth": NAK_SEQUENCE_ERROR << 24 | 5, "decode_flags": 0x10}
    rows = [*in_order(300, 40), nak, *from_the_first(340)]
    rows = [row | {"udp_sport": 49458} for row in rows]
    if not begins:
        rows[300].pop("syndrome")
    tracker = FlowTracker()
    if ran_us is not None:
        tracker.ran(0, START_NS - 1000 * ran_us)
    found = track(tracker, packets(rows)).tolist()
    proven = begins and ran_us == 200_000
    assert found[301:341] == [RECOVERED if proven else RETRANSMITTED] * 40
    assert found[341:] == [RETRANSMITTED] * 300
    assert tracker.stream(0, state.REQUESTS)["recovered"] == 40 * proven
    assert tracker.missing(0, state.REQUESTS) == (0, 0)


@pytest.mark.parametrize("ran_us", [2_000, 200_000])
@pytest.mark.parametrize("twin", [None, 0, 40])
def test_the_first_packets_before_the_pair_is_known(ran_us, twin):
    """The source port shows nothing: only ACKs after the retransmission make the pair.

    A second queue pair of the two hosts begins at the same PSNs, or after them.
    """
    nak = {"answer": True, "psn": 0, "opcode": ACK, "syndrome": NAK_SEQUENCE_ERROR}
    acks = [nak | {"psn": psn, "syndrome": 0x1F} for psn in range(330, 340)]
    rows = [*in_order(300, 40), nak, *from_the_first(340), *acks]
    if twin is not None:
        others = [{"psn": twin + p, "dest_qp": 0x21} for p in (0, 1, 3, 2, 4)]
        rows = [*others[:1], *rows[:100], *others[1:], *rows[100:]]
    tracker = FlowTracker()
    tracker.ran(0, START_NS - 1000 * ran_us)
    track(tracker, packets(rows))
    flow = next(f for f, one in enumerate(tracker.flows) if one["dest_qp"] == 0x11)
    stream = tracker.stream(flow, state.REQUESTS)
    assert tracker.flows["dest_qp"][tracker.flows["peer"][flow]] == 0x12
    proven = 40 * (ran_us == 200_000)
    assert (stream["recovered"], stream["retransmitted"]) == (proven, 340 - proven)
    assert tracker.missing(flow, state.REQUESTS) == (0, 0)
    for other in set(range(len(tracker))) - {flow}:
        quiet = tracker.stream(other, state.REQUESTS)
        assert (quiet["recovered"], quiet["retransmitted"], quiet["missing"]) == (0, 0, 0)


def test_a_quick_retransmission_answers_the_nak_of_a_pair_that_is_not_known_yet():
    """It comes too soon to be known by its time: the NAK says that it is not a late packet."""
    nak = {"answer": True, "psn": 0, "opcode": ACK, "syndrome": NAK_SEQUENCE_ERROR}
    tracker = FlowTracker()
    tracker.ran(0, START_NS - 200_000_000)
    found = track(tracker, packets([*in_order(9, 3), nak, *from_the_first(12)])).tolist()
    assert found[10:] == [RECOVERED] * 3 + [RETRANSMITTED] * 9
    flow = tracker.flows[0]
    assert (flow["peer"], flow["rewinds"], flow["nak_codes"][0]) == (-1, 1, 1)
    assert flow["rewind_trigger"] == state.BY_NAK
    assert tracker.missing(0, state.REQUESTS) == (0, 0)


@pytest.mark.parametrize("ran_us", [None, 2_000])
def test_a_quick_retransmission_below_the_first_is_not_late_if_the_capture_has_just_begun(ran_us):
    """Whether the packets passed before the capture is unknown; that they were not late is not."""
    nak = {"answer": True, "psn": 0, "opcode": ACK, "syndrome": NAK_SEQUENCE_ERROR}
    tracker = FlowTracker()
    if ran_us is not None:
        tracker.ran(0, START_NS - 1000 * ran_us)
    found = track(tracker, packets([*in_order(9, 3), nak, *from_the_first(12)])).tolist()
    assert found[10:] == [RETRANSMITTED] * 12
    stream, flow = tracker.stream(0, state.REQUESTS), tracker.flows[0]
    assert (stream["recovered"], stream["reordered"]) == (0, 0)
    assert (flow["peer"], flow["rewinds"], flow["nak_codes"][0]) == (-1, 1, 1)
    assert tracker.missing(0, state.REQUESTS) == (0, 0)


def test_a_quick_retransmission_into_a_gap_answers_the_nak_of_a_pair_that_is_not_known_yet():
    """The first message is not complete: no ACK has shown the pair."""
    nak = {"answer": True, "psn": 2, "opcode": ACK, "syndrome": NAK_SEQUENCE_ERROR}
    rows = [*in_order(2), *in_order(3, 3), nak, *in_order(4, 2)]
    tracker = FlowTracker()
    found = track(tracker, packets(rows)).tolist()
    assert found[6:] == [RECOVERED, *[RETRANSMITTED] * 3]
    assert tracker.flows[0]["rewind_trigger"] == state.BY_NAK


FIRST_MESSAGE = 8


def lost_without_a_nak(msn, acked):
    """PSNs 0 to 39 are lost before the tap, and the NAK on its way back: a timeout, then an ACK.

    The message of PSNs 0 to 7 is acknowledged at `acked` with `msn`.
    """
    again = from_the_first(80)
    again[FIRST_MESSAGE - 1]["opcode"] = WRITE_LAST
    again[FIRST_MESSAGE]["opcode"] = WRITE_FIRST
    ack = {"answer": True, "psn": acked, "opcode": ACK, "decode_flags": HAS_AETH}
    ack["aeth"] = 0x1F << 24 | msn
    rows = [*in_order(40, 40), *again[:FIRST_MESSAGE], ack, *again[FIRST_MESSAGE:]]
    rows = [row | {"udp_sport": 49458} for row in rows]
    table = packets(rows)
    table.time_ns[40:] += 4_000_000
    return table


@pytest.mark.parametrize(
    ("msn", "acked", "ran_us", "proven"),
    [(1, 7, 200_000, True), (1, 7, 2_000, False), (1, 7, None, False), (2, 7, 200_000, False),
     (0, 7, 200_000, False), (1, 6, 200_000, False), (1, 38, 200_000, False)],
)  # fmt: skip
def test_the_first_packets_as_an_ack_names_them(msn, acked, ran_us, proven):
    """An ACK of the first message that a receiver completed, seen only as a retransmission."""
    tracker = FlowTracker()
    if ran_us is not None:
        tracker.ran(0, START_NS - 1000 * ran_us)
    found = track(tracker, lost_without_a_nak(msn, acked)).tolist()
    lost = 40 - FIRST_MESSAGE
    assert found[40 : 40 + FIRST_MESSAGE] == [RETRANSMITTED] * FIRST_MESSAGE
    assert found[49 : 49 + lost] == [RECOVERED if proven else RETRANSMITTED] * lost
    assert found[49 + lost :] == [RETRANSMITTED] * 40
    assert tracker.stream(0, state.REQUESTS)["recovered"] == lost * proven
    assert tracker.missing(0, state.REQUESTS) == (0, 0)


@pytest.mark.parametrize("acked", [0, 30, 38, 39])
def test_an_ack_below_the_first_packet_is_no_loss(acked):
    """What it acknowledges passed before the capture began, or by a path without a tap."""
    ack = {"answer": True, "psn": acked, "opcode": ACK, "decode_flags": HAS_AETH}
    ack["aeth"] = 0x1F << 24 | 1
    rows = [*in_order(5, 40), *[ack] * 3, *in_order(40, 45)]
    tracker = FlowTracker()
    tracker.ran(0, START_NS - 200_000_000)
    found = track(tracker, packets([row | {"udp_sport": 49458} for row in rows]))
    assert set(found[[*range(5), *range(8, 48)]]) == {IN_ORDER}
    assert tracker.missing(0, state.REQUESTS) == (0, 0)


def test_the_first_packets_as_cm_messages_name_them():
    """The capture has the CM messages: packets before the first one seen are missing."""
    tracker = FlowTracker()
    tracker.update(packets(in_order(100, 5)), {(0, 1, 0x11): 0, (0, 1, 0x12): 7})
    assert tracker.missing(0, state.REQUESTS) == (5, 0)


MTU = 1024
NO_ID = {"ip_id": 0, "decode_flags": IPV6}


def write(psn, **more):
    return {"psn": psn, "opcode": WRITE_ONLY, **more}


def ack(psn, syndrome=0x1F, **more):
    return {"answer": True, "psn": psn, "opcode": ACK, "syndrome": syndrome, **more}


def reread(psn, count, **more):
    return {
        "psn": psn, "opcode": READ_REQUEST, "dma_length": count * MTU, "payload_bytes": 0, **more
    }  # fmt: skip


def responses(psn, count, **more):
    opcodes = [READ_FIRST, *[READ_MIDDLE] * (count - 2), READ_LAST]
    return [
        {"answer": True, "psn": psn + i, "opcode": op, "payload_bytes": MTU, **more}
        for i, op in enumerate(opcodes)
    ]


def paired(psn=0, count=10, **more):
    """WRITEs and ACKs, enough to know who answers whom."""
    return [row for p in range(psn, psn + count) for row in (write(p, **more), ack(p, **more))]


def rewind_verdicts(rows):
    tracker = FlowTracker()
    found = track(tracker, packets(rows)).tolist()
    assert tracker.flows["peer"].tolist() == [1, 0]
    return tracker, found


def by(tracker, flow=0):
    """{trigger: packets}"""
    counts = tracker.flows[flow]["retransmitted_by"].tolist()
    return {name: n for name, n in zip(state.TRIGGER_NAMES, counts, strict=True) if n}


def test_a_late_packet_beside_its_retransmission_is_late_with_few_identifications():
    """Its identification is below that of the retransmission, which came first."""
    sent = [(0, 1), (1, 3), (3, 7), (2, 9), (2, 5), (3, 11), (4, 13)]
    tracker = FlowTracker()
    rows = [
        write(psn, ip_id=ip_id, time_ns=START_NS + n * 10_000_000)
        for n, (psn, ip_id) in enumerate(sent)
    ]
    found = track(tracker, packets(rows)).tolist()
    assert found == ([IN_ORDER] * 2 + [AHEAD, RECOVERED, OVERTAKEN, RETRANSMITTED, IN_ORDER])
    assert tracker.state.streams[0]["recovered"] == 0


def test_a_transmission_that_waits_behind_its_retransmission_is_a_copy_at_the_next_tap():
    """A slow link is between the taps; nothing but the order tells the transmissions apart."""
    near, far = {"tap": 0, "hop_limit": 64}, {"tap": 1, "hop_limit": 62}
    seen = [(1, near), (12, near), (20, far), (28, far), (30, near), (45, far)]
    rows = [write(0, time_ns=START_NS, **NO_ID, **near), write(0, time_ns=START_NS, **NO_ID, **far)]
    rows += [write(1, time_ns=START_NS + ms * 1_000_000, **NO_ID, **tap) for ms, tap in seen]
    tracker = FlowTracker(taps=2)
    found = track(tracker, packets(rows)).tolist()
    assert found == [
        IN_ORDER, TAP_COPY,
        IN_ORDER, RETRANSMITTED, TAP_COPY, TAP_COPY, RETRANSMITTED, TAP_COPY,
    ]  # fmt: skip


def test_what_a_tap_misses_at_its_beginning_is_not_lost_before_it():
    """Tap 1 sees PSNs up to 9 and tap 0, before it, those from 20 on, when its capture begins; its
    PSNs 10 to 19 may have passed it before and be lost between the two."""
    psns = [*range(10), *range(20, 40)]
    rows = [
        write(psn, time_ns=START_NS + psn * 10_000_000)
        | {"tap": psn < 20, "hop_limit": 64 - (psn < 20)}
        for psn in psns
    ]
    tracker = FlowTracker(taps=2)
    track(tracker, packets(rows))
    assert tracker.missing(0, state.REQUESTS) == (0, 0)


def test_a_lost_response_asked_for_again_is_recovered_without_identifications():
    """Response 14 is lost, the requester asks again from there: nothing came late."""
    rows = paired(**NO_ID) + [reread(10, 8, **NO_ID)]
    answer = responses(10, 8, **NO_ID)
    rows += answer[:4] + answer[5:] + [reread(14, 4, **NO_ID)] + responses(14, 4, **NO_ID)
    tracker, found = rewind_verdicts(rows)
    assert found[21:] == (
        [IN_ORDER] * 4 + [AHEAD] + [IN_ORDER] * 2 + [RETRANSMITTED] + [RECOVERED]
        + [RETRANSMITTED] * 3
    )  # fmt: skip
    assert tracker.missing(1, state.RESPONSES) == (0, 0)


def test_a_nak_of_requests_says_nothing_about_responses():
    """Both sides count from the same PSNs, as NCCL's queue pairs do: the spaces stay apart.

    The NAK asks A for its request 40; what comes late is A's response 41 to a READ of B.
    """
    rows = paired(psn=30, **NO_ID)
    rows += [reread(40, 4, answer=True, **NO_ID)]
    own = [r | {"answer": False} for r in responses(40, 4, **NO_ID)]
    rows += [own[0], write(41, **NO_ID), ack(40, NAK_SEQUENCE_ERROR, **NO_ID)]
    rows += [own[2], own[1], own[3]]
    _, found = rewind_verdicts(rows)
    assert found[-3:] == [AHEAD, REORDERED, IN_ORDER]


@pytest.mark.parametrize(
    ("seen", "pause_ns", "trigger"),
    [
        ([0, 1, 2, 4, 5], 5_000, "implied"),  # a later response came: the gap shows at once
        ([4, 5], 5_000, "implied"),  # so it does when the first ones are lost
        ([0, 1, 2], 40_000_000, "timeout"),  # the last ones are lost: only a timer notices
        ([], 40_000_000, "timeout"),
    ],
)
def test_reads_asked_again(seen, pause_ns, trigger):
    rows = paired() + [reread(10, 8)]
    answer = responses(10, 8)
    rows += [answer[i] for i in seen]
    first_lost = next(i for i in range(8) if i not in seen)
    again = START_NS + 1000 * len(rows) + pause_ns
    rows += [reread(10 + first_lost, 8 - first_lost, time_ns=again)]
    tracker, _ = rewind_verdicts(rows)
    assert by(tracker) == {trigger: 1}


def test_the_oldest_of_many_outstanding_reads_times_out():
    """32 READs of 256 PSNs each: their requests are thousands of PSNs apart."""
    rows = paired() + [reread(10 + 256 * i, 256) for i in range(32)]
    rows.insert(20, reread(10, 2))
    rows[21:21] = responses(10, 2)
    for row in rows[23:]:
        row["psn"] += 2
    again = START_NS + 1000 * len(rows) + 40_000_000
    rows += [reread(12 + 256 * i, 256, time_ns=again + 1000 * i) for i in range(32)]
    tracker, found = rewind_verdicts(rows)
    assert found[-32:] == [RETRANSMITTED] * 32
    assert by(tracker) == {"timeout": 32}
    assert tracker.flows[0]["rewinds"] == 1


def test_a_resend_overtaken_by_new_data_is_not_blamed_on_a_nak_that_never_was():
    """Selective repeat over several paths: the resent packet comes behind newer ones."""
    rows = paired() + [write(10), write(12), write(13), write(15), write(11), write(16)]
    for row, ip_id in zip(rows[20:], (100, 102, 103, 106, 105, 107), strict=True):
        row["ip_id"] = ip_id
    tracker, found = rewind_verdicts(rows)
    assert found[20:] == [IN_ORDER, AHEAD, IN_ORDER, AHEAD, RECOVERED, IN_ORDER]
    assert by(tracker) == {"unknown": 1}


def test_a_nak_repeated_is_one_nak_to_act_on():
    """Four NAKs for one PSN, one resend: a later packet that is merely late is not asked for."""
    rows = paired(**NO_ID) + [write(11, **NO_ID)]
    rows += [ack(10, NAK_SEQUENCE_ERROR, **NO_ID)] * 4
    rows += [write(p, **NO_ID) for p in (10, 12, 14, 13, 15)]
    tracker, found = rewind_verdicts(rows)
    assert found[-5:] == [RECOVERED, IN_ORDER, AHEAD, REORDERED, IN_ORDER]
    assert by(tracker) == {"nak": 1}
    assert tracker.flows[1]["naks"] == 4


@pytest.mark.parametrize("doubled", [True, False])
def test_the_same_nak_within_2_us_is_a_copy_where_data_is_doubled(doubled):
    """Else a receiver may NAK every packet after a gap."""
    nak = ack(10, NAK_SEQUENCE_ERROR, **NO_ID)
    rows = [*paired(**NO_ID), *[write(11, **NO_ID)] * (1 + doubled), nak, nak]
    tracker, found = rewind_verdicts(rows)
    assert found[-2:] == [NOT_SEQUENCED, DUPLICATE if doubled else NOT_SEQUENCED]
    assert tracker.flows[1]["naks"] == 2 - doubled


@pytest.mark.parametrize(("lag_ns", "due"), [(300, False), (1900, False), (1900, True)])
def test_a_packet_again_within_2_us_is_a_copy_unless_a_nak_asks_for_it(lag_ns, due):
    rows = paired(**NO_ID) + [write(p, **NO_ID) for p in range(10, 13)]
    for at, row in enumerate(rows):
        row["time_ns"] = START_NS + 100 * at
    sent = rows[-3]["time_ns"]
    if due:
        rows += [ack(10, NAK_SEQUENCE_ERROR, time_ns=sent + 1500, **NO_ID)]
    rows += [write(p, time_ns=sent + lag_ns + 100 * k, **NO_ID) for k, p in enumerate((10, 11))]
    _, found = rewind_verdicts(rows)
    assert found[-2:] == [RETRANSMITTED if due else DUPLICATE] * 2


def test_a_single_send_answered_by_rnr_is_sent_again_soon():
    """The shortest RNR timer is 10 us, shorter than what makes twins of the network."""
    rows = paired(**NO_ID) + [write(10, **NO_ID), ack(10, RNR_NAK, **NO_ID)]
    rows += [write(10, time_ns=START_NS + 32_000, **NO_ID)]
    tracker, found = rewind_verdicts(rows)
    assert found[-3:] == [IN_ORDER, NOT_SEQUENCED, RETRANSMITTED]
    assert by(tracker) == {"rnr": 1}


def test_naks_mirrored_twice_count_once():
    rows = paired() + [write(11)]
    nak = ack(10, NAK_SEQUENCE_ERROR, ip_id=500)
    rows += [nak, nak | {"hop_limit": 63}, write(10), write(11)]
    tracker, _ = rewind_verdicts(rows)
    assert tracker.flows[1]["naks"] == 1
    totals = Totals()
    totals.update(FlowTracker().update(packets(rows)))
    assert totals.series(["tap"]).naks == [1]
    assert tracker.flows[0]["nak_codes"][0] == 1
    assert by(tracker) == {"nak": 2}


def test_nothing_of_the_old_sequence_outlives_a_restart():
    """The queue pair is made anew with PSNs that are "before" the old ones modulo 2^24."""
    rows = paired(psn=9_000_000) + [write(9_000_011), ack(9_000_010, NAK_SEQUENCE_ERROR)]
    rows += [write(p) for p in [*range(2_000_000, 2_000_020), *range(2_000_025, 2_000_040)]]
    rows += [ack(p) for p in (2_000_005, 2_000_010)]
    tracker, _ = rewind_verdicts(rows)
    assert tracker.missing(0, state.REQUESTS) == (1 + 5, 0)
    assert tracker.flows[0]["ack_psn"] == 2_000_010


SLACK = 30
"""Packets a tracker must know again although they were sent before the first one it saw."""


@st.composite
def disordered(draw):
    """(send positions in order of arrival, positions that come twice): loss, delay, duplicates."""
    count = draw(st.integers(2, 150))
    spread = draw(st.sampled_from([0, 1, 3, 12, 60]))
    delay = draw(st.lists(st.integers(0, spread), min_size=count, max_size=count))
    keep = draw(st.lists(st.sampled_from([True] * 9 + [False]), min_size=count, max_size=count))
    order = sorted((i for i in range(count) if keep[i]), key=lambda i: (i + delay[i], i))
    if not order or order[0] > SLACK:
        order = list(range(count))
    twice = draw(st.sets(st.integers(0, len(order) - 1), max_size=5))
    return order, twice


def rows_of(order, twice, start):
    """Rows as they arrive. Identifications are given in order of sending."""
    rows = []
    for at, i in enumerate(order):
        row = {
            "psn": start + i,
            "ip_id": (1000 + i) & 0xFFFF,
            "payload_bytes": 100 + i % 7,
            "time_ns": START_NS + 1000 * at,
        }
        rows.append(row)
        if at in twice:
            rows.append(row)
    return rows


@pytest.mark.thorough
@examples(300)
@given(disordered(), st.sampled_from([0, 5, 0xFFFFF0, 0xFFFFFF]), st.lists(st.integers(1, 150)))
def test_equals_the_definitions(traffic, start, cuts):
    order, twice = traffic
    tracker = FlowTracker()
    verdicts = track(tracker, packets(rows_of(order, twice, start)), cuts)
    expected = measure([(i, START_NS + 1000 * at, 100 + i % 7) for at, i in enumerate(order)])
    stream, histograms = tracker.stream(0, state.REQUESTS), tracker.histograms

    assert stream["arrivals"] == len(order)
    assert stream["reordered"] == expected.reordered == np.count_nonzero(verdicts == REORDERED)
    assert stream["duplicates"] == len(twice) == np.count_nonzero(verdicts == DUPLICATE)
    assert stream["retransmitted"] == stream["recovered"] == 0
    assert stream["max_extent"] == max(expected.extents, default=0)
    small = {b.low: b.count for b in histograms.bins(0, state.EXTENT) if b.high == b.low + 1}
    assert small == {e: n for e, n in expected.extents.items() if e < 32}
    for kind, values in (
        (state.LATE_TIME, expected.late_times),
        (state.HELD_PACKETS, expected.held),
        (state.BYTE_OFFSET, expected.byte_offsets),
        (state.GAP_PACKETS, expected.gaps),
        (state.GAP_TIME, expected.gap_times),
    ):
        q = histograms.quantiles(0, kind)
        if not values:
            assert q is None
        else:
            assert (q.count, q.min, q.max) == (len(values), min(values), max(values))
            assert q.mean == pytest.approx(sum(values) / len(values))
    degrees = Counter(
        {n + 1: int(c) for n, c in enumerate(tracker.n_counts(0, state.REQUESTS)) if c}
    )
    capped = Counter()
    for n, c in expected.n_degrees.items():
        capped[min(n, state.STACK)] += c
    assert degrees == capped
    assert stream["max_n"] == max(expected.n_degrees, default=0)
    assert stream["runs"] == len(expected.runs)
    assert stream["run_packets"] == sum(expected.runs)
    assert stream["run_packets_squared"] == sum(r * r for r in expected.runs)


VECTORS = [  # arrivals; extents, byte offsets (100 bytes each), largest n of the late packets
    ([1, 2, 3, 5, 6, 7, 8, 4, 9, 10], [4], [400], [4]),
    ([1, 2, 3, 7, 8, 9, 10, 4, 5, 6, 11], [4, 5, 6], [400, 400, 400], [4]),
    ([1, 2, 3, 6, 8, 4, 7, 5, 9], [2, 2, 4], [200, 100, 300], [2, 1]),
]


@pytest.mark.parametrize(("arrivals", "extents", "offsets", "degrees"), VECTORS)
def test_worked_examples(arrivals, extents, offsets, degrees):
    rows = [{"psn": s, "ip_id": s, "payload_bytes": 100} for s in arrivals]
    tracker = FlowTracker()
    track(tracker, packets(rows))
    bins = {b.low: b.count for b in tracker.histograms.bins(0, state.EXTENT)}
    assert bins == Counter(extents)
    q = tracker.histograms.quantiles(0, state.BYTE_OFFSET)
    assert (q.min, q.max, q.mean) == (min(offsets), max(offsets), np.mean(offsets))
    found = tracker.n_counts(0, state.REQUESTS)
    assert sorted(n + 1 for n, c in enumerate(found) for _ in range(c)) == sorted(degrees)


def test_a_gap_wider_than_the_first_window_keeps_every_missing_psn():
    late = list(range(10, 3000))
    order = [*range(10), *range(3000, 3100), *late]
    rows = [{"psn": i, "ip_id": i, "time_ns": START_NS + at} for at, i in enumerate(order)]
    tracker = FlowTracker()
    verdicts = track(tracker, packets(rows))
    assert np.count_nonzero(verdicts == REORDERED) == len(late)
    assert tracker.missing(0, state.REQUESTS) == (0, 0)
    # All refer to the same jump; the first comes 100 packets later, each next one 1 more.
    assert tracker.stream(0, state.REQUESTS)["max_extent"] == 100 + len(late) - 1


@pytest.mark.parametrize(("sent_id", "verdict"), [(13, RECOVERED), (8, REORDERED)])
def test_the_first_identifications_tell_a_quick_retransmission_from_a_late_packet(sent_id, verdict):
    """Where no NAK is seen: it goes another way."""
    rows = [{"psn": psn, "ip_id": 2 * psn} for psn in (0, 1, 2, 3, 5)]
    rows.append({"psn": 4, "ip_id": sent_id})
    assert verdicts(rows)[1] == [*[IN_ORDER] * 4, AHEAD, verdict]
