"""Answers and the flows that they acknowledge; MRC responses as answers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from traffic import ACK, READ_ONLY, READ_REQUEST, START_NS, WRITE_MIDDLE, WRITE_ONLY, packets, track

from rocescope.analyzer.decode.mrc import MRC_ROW, NETH, SETH
from rocescope.analyzer.track import state
from rocescope.analyzer.track.answers import with_answers
from rocescope.analyzer.track.batch import (
    AHEAD,
    DUPLICATE,
    IN_ORDER,
    NOT_SEQUENCED,
    OVERTAKEN,
    RECOVERED,
    REORDERED,
    RETRANSMITTED,
    TAP_COPY,
)
from rocescope.analyzer.track.pairing import CmPairs, settle
from rocescope.analyzer.track.tracker import FlowTracker
from rocescope.analyzer.wire.packets import IPV6, RTX


def tracked(rows):
    tracker = FlowTracker()
    return tracker, track(tracker, packets(rows)).tolist()


def write(psn, qp=0x11):
    return {"psn": psn, "opcode": WRITE_ONLY, "dest_qp": qp}


def ack(psn, qp=0x12):
    return {"answer": True, "psn": psn, "opcode": ACK, "syndrome": 0x1F, "dest_qp": qp}


def partners(tracker):
    """{destination QPN: destination QPN of the peer}"""
    flows = tracker.flows
    return {int(f["dest_qp"]): int(flows[f["peer"]]["dest_qp"]) for f in flows if f["peer"] >= 0}


def test_the_slower_queue_pair_is_not_taken_for_the_one_that_answers():
    """NCCL begins all queue pairs at PSN 0; ACKs lag behind by more than is remembered."""
    rows = [write(p, qp) for p in range(1000) for qp in (0x21, 0x22)]
    rows += [write(p, 0x22) for p in range(1000, 1300)]  # 0x21 stalls
    rows += [ack(p, 0x32) for p in range(900, 1000, 8)]  # of the other one
    tracker, _ = tracked(rows)
    assert partners(tracker) in ({}, {0x22: 0x32, 0x32: 0x22})
    more = [ack(p, 0x32) for p in range(1000, 1300, 8)]
    tracker, _ = tracked(rows + more)
    assert partners(tracker) == {0x22: 0x32, 0x32: 0x22}


def test_a_queue_pair_number_used_again_finds_its_new_partner():
    """QP 0x12 is taken down and made anew, now connected with QP 0x15."""
    rows = [row for p in range(40) for row in (write(p), ack(p))]
    rows += [row for p in range(5_000_000, 5_000_200) for row in (write(p, 0x15), ack(p))]
    tracker, _ = tracked(rows)
    assert partners(tracker) == {0x15: 0x12, 0x12: 0x15}


def test_responses_acknowledge_what_was_sent_before_the_read():
    """A WRITE this tap missed, then a READ that is answered: the WRITE has arrived."""
    rows = [row for p in range(10) for row in (write(p), ack(p))]
    rows += [{"psn": 11, "opcode": READ_REQUEST, "dma_length": 100, "payload_bytes": 0}]
    rows += [{"answer": True, "psn": 11, "opcode": READ_ONLY, "payload_bytes": 100}]
    tracker, _ = tracked(rows)
    assert tracker.missing(0, state.REQUESTS) == (1, 1)


@pytest.mark.parametrize("theirs", [256, 4096])
@pytest.mark.parametrize("mtu", [1024, 2048])
def test_the_path_mtu_of_other_queue_pairs_proves_no_loss(theirs, mtu):
    """Only requests are captured, and between the hosts another QP uses another path MTU."""
    rows = [
        {"psn": p, "dest_qp": 0x99, "opcode": WRITE_MIDDLE, "payload_bytes": theirs}
        for p in range(5)
    ]
    rows += [
        {"psn": 65536 // mtu * i, "opcode": READ_REQUEST, "dma_length": 65536, "payload_bytes": 0}
        for i in range(50)
    ]
    tracker, found = tracked(rows)
    assert found == [IN_ORDER] * 55
    assert [tracker.missing(f, state.REQUESTS) for f in range(2)] == [(0, 0)] * 2


def test_missing_responses_are_not_acknowledged_by_what_acknowledges_requests():
    """Given up, they must not become suspected capture loss: ACKs of A's requests name other PSNs.

    A's responses 100 to 139 are lost, then so many more follow that their slots are needed.
    """
    rows = [row for p in range(200_000, 200_010) for row in (write(p), ack(p))]
    length = 1 << 31
    rows += [{"answer": True, "psn": 100, "opcode": READ_REQUEST, "dma_length": length}]
    lone = {"opcode": 0x0E, "payload_bytes": 1024}
    rows += [{"psn": p} | lone for p in (100, 141)]
    rows += [{"psn": p} | lone for p in range(142, 142 + state.MAX_WINDOW + 200)]
    tracker, _ = tracked(rows)
    assert tracker.stream(0, state.RESPONSES)["missing_evicted"] == 40
    assert tracker.missing(0, state.RESPONSES) == (40, 0)


def test_a_pair_dissolved_while_the_analysis_goes_on_may_be_found_again():
    """Four stray answers of seven; what comes then is beyond doubt."""
    rows = [row for p in range(3) for row in (write(p), ack(p))] + [ack(5000 + p) for p in range(4)]
    tracker, _ = tracked(rows)
    settle(tracker, CmPairs())
    assert partners(tracker) == {}
    track(tracker, packets([row for p in range(3, 13) for row in (write(p), ack(p))]))
    settle(tracker, CmPairs())
    assert partners(tracker) == {0x11: 0x12, 0x12: 0x11}


MIDDLE, SACK, NACK = 0xC7, 0xDC, 0xDD
MS = 1_000_000


def verdicts(rows, ipv6=True):
    rows = [{"opcode": MIDDLE, "decode_flags": IPV6 if ipv6 else 0, "ip_id": 0} | r for r in rows]
    tracker = FlowTracker()
    tracker.ran(0, START_NS - 1000 * MS)
    return tracker, track(tracker, packets(rows)).tolist()


def again(psn, sport=0xC100, **more):
    return {"psn": psn, "udp_sport": sport, "bth_flags": RTX, **more}


@pytest.mark.parametrize("ipv6", [True, False])
def test_late_without_the_bit_is_the_original_however_late(ipv6):
    rows = [{"psn": 1}, {"psn": 3}, {"psn": 2, "time_ns": START_NS + 50 * MS}]
    assert verdicts(rows, ipv6)[1] == [IN_ORDER, AHEAD, REORDERED]


@pytest.mark.parametrize("ipv6", [True, False])
def test_late_with_the_bit_was_lost_however_soon(ipv6):
    tracker, found = verdicts([{"psn": 1}, {"psn": 3}, again(2), {"psn": 4}], ipv6)
    assert found == [IN_ORDER, AHEAD, RECOVERED, IN_ORDER]
    flow = tracker.flows[0]
    assert flow["rewinds"] == 0  # one packet is retransmitted, not all behind it
    assert flow["retransmitted_by"].tolist() == [0, 0, 0, 0, 1]


def test_seen_and_sent_again_or_doubled():
    rows = [{"psn": n, "udp_sport": 0xC000 + n} for n in (1, 2, 3)]
    rows += [again(2), {"psn": 3, "udp_sport": 0xC003, "time_ns": START_NS + 5 * MS}]
    tracker, found = verdicts(rows)
    assert found[3:] == [RETRANSMITTED, DUPLICATE]
    assert tracker.stream(0, state.REQUESTS)["retransmitted"] == 1


def test_sent_again_twice_on_one_path_is_no_copy():
    """A sender with few paths left uses one for two retransmissions; a network copies at once."""
    rows = [{"psn": 1}, {"psn": 2}, again(1)]
    rows += [again(1, time_ns=START_NS + 60 * MS), again(1, time_ns=START_NS + 60 * MS + 5_000)]
    tracker, found = verdicts(rows)
    assert found[2:] == [RETRANSMITTED, RETRANSMITTED, DUPLICATE]
    assert tracker.stream(0, state.REQUESTS)["retransmitted"] == 2


@pytest.mark.parametrize("ipv6", [True, False])
def test_sent_again_and_overtaking_its_original(ipv6):
    """The retransmission comes first and looks like a recovery; then the original, late."""
    late = {"psn": 2, "udp_sport": 0xC002, "time_ns": START_NS + 30_000}
    rows = [{"psn": 1}, {"psn": 3}, {"psn": 4}, again(2), {"psn": 5}, late, {"psn": 6}]
    tracker, found = verdicts(rows, ipv6)
    assert found == [
        IN_ORDER, AHEAD, IN_ORDER, RECOVERED, IN_ORDER, OVERTAKEN, IN_ORDER,
    ]  # fmt: skip
    stream = tracker.stream(0, state.REQUESTS)
    counts = [int(stream[n]) for n in ("retransmitted", "recovered", "reordered", "missing")]
    assert counts == [1, 0, 1, 0]
    # 3, 4 and 5 came between the gap and the packet; late since 3 came, 1 us after 1.
    assert stream["max_extent"] == 3
    late_time = tracker.histograms.quantiles(0, state.LATE_TIME)
    assert late_time.max == 29_000


def test_an_original_behind_its_retransmission_at_the_second_tap():
    """Seen in order at the sender, retransmitted, then both at the receiver the other way round."""
    tracker = FlowTracker(taps=2)
    first = {"psn": 1, "udp_sport": 0xC001}
    rows = [{"psn": 0, "tap": 0}, {"psn": 0, "tap": 1}, first, again(1), again(1, tap=1)]
    rows += [first | {"tap": 1}]
    rows = [{"opcode": MIDDLE, "decode_flags": IPV6, "ip_id": 0, **r} for r in rows]
    found = track(tracker, packets(rows)).tolist()
    assert found == [IN_ORDER, TAP_COPY, IN_ORDER, RETRANSMITTED, TAP_COPY, TAP_COPY]


def test_copies_at_another_tap():
    rows = [{"psn": 1, "tap": 0}, {"psn": 1, "tap": 1}, again(1, tap=0), again(1, tap=1)]
    tracker = FlowTracker(taps=2)
    rows = [{"opcode": MIDDLE, "decode_flags": IPV6, "ip_id": 0, **r} for r in rows]
    found = track(tracker, packets(rows)).tolist()
    assert found == [IN_ORDER, TAP_COPY, RETRANSMITTED, TAP_COPY]


@pytest.mark.parametrize("seed", range(4))
def test_any_order_of_transmissions(seed):
    """Some packets never come the first time; all are late by up to 200 packets, over the wrap."""
    rng = np.random.default_rng(seed)
    first = (1 << 24) - 500
    sent = []
    for n in range(1000):
        lost = n > 0 and rng.random() < 0.05
        if not lost:
            sent.append((n + (rng.integers(200) if n else 0), n, False))
        if lost or (n and rng.random() < 0.05):
            sent.append((n + 100 + rng.integers(400), n, True))
    sent.sort()
    rows = []
    for i, (_, n, resent) in enumerate(sent):
        row = {"psn": (first + n) & 0xFFFFFF, "udp_sport": 0xC000 + int(rng.integers(64))}
        rows.append(row | {"bth_flags": RTX if resent else 0, "time_ns": START_NS + 100 * i})
    _, found = verdicts(rows)
    highest, seen, only_again, expected = -1, set(), set(), []
    for _, n, resent in sent:
        if n in seen:
            late = not resent and n in only_again
            only_again.discard(n)
            expected.append(OVERTAKEN if late else RETRANSMITTED)
        elif n > highest:
            expected.append(IN_ORDER if n == highest + 1 else AHEAD)
        else:
            expected.append(RECOVERED if resent else REORDERED)
            if resent:
                only_again.add(n)
        highest = max(highest, n)
        seen.add(n)
    assert found == expected


def answers(rows):
    """A table of SACKs and NACKs of which `psn` is that of their SETH or NETH."""
    common = {"decode_flags": IPV6, "psn": 0xABC, "ip_id": 0}
    table = packets([common | {"opcode": r["opcode"]} for r in rows])
    mrc = np.zeros(len(rows), MRC_ROW)
    mrc["row"] = np.arange(len(rows))
    for record, row in zip(mrc, rows, strict=True):
        record["present"] = SETH if row["opcode"] == SACK else NETH
        for name, value in row.items():
            if name not in ("opcode", "tap"):
                record[name] = value
    for i, row in enumerate(rows):
        table.tap[i] = row.get("tap", 0)
    return replace(table, mrc=mrc)


def test_a_sack_acknowledges_by_the_psn_of_its_seth():
    table = answers([{"opcode": SACK, "psn": 7, "entropy": 1}, {"opcode": NACK, "psn": 9}])
    told = with_answers(table)
    assert told.subject_psn.tolist() == [7, 9]
    assert told.psn is table.psn and told.aeth is table.aeth  # columns hold what they say
    assert told.psn.tolist() == [0xABC, 0xABC]
    assert told.take(np.array([1])).subject_psn.tolist() == [9]
    assert told.slice(1, 2).fingerprint.tolist() == told.fingerprint[1:].tolist()
    plain = packets([{"psn": 1}])
    assert with_answers(plain) is plain


def test_equal_sacks_at_two_taps_are_copies_and_different_ones_are_not():
    rows = [
        {"opcode": SACK, "psn": 7, "entropy": 1, "tap": 0},
        {"opcode": SACK, "psn": 7, "entropy": 1, "tap": 1},
        {"opcode": SACK, "psn": 7, "entropy": 2, "tap": 1},
        {"opcode": SACK, "psn": 7, "entropy": 1, "sack_bitmap": 1, "tap": 1},
    ]
    tracker = FlowTracker(taps=2)
    found = tracker.update(with_answers(answers(rows))).verdict.tolist()
    assert found == [NOT_SEQUENCED, TAP_COPY, NOT_SEQUENCED, NOT_SEQUENCED]
