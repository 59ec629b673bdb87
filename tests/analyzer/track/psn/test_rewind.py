"""What made a sender send again, and what says so for READs and their responses."""

from __future__ import annotations

import pytest
from traffic import (
    ACK,
    NAK_SEQUENCE_ERROR,
    READ_FIRST,
    READ_LAST,
    READ_MIDDLE,
    READ_REQUEST,
    RNR_NAK,
    START_NS,
    WRITE_ONLY,
    packets,
    track,
)

from rocescope.analyzer.measures.series import Totals
from rocescope.analyzer.track import state
from rocescope.analyzer.track.batch import (
    AHEAD,
    IN_ORDER,
    NOT_SEQUENCED,
    RECOVERED,
    REORDERED,
    RETRANSMITTED,
)
from rocescope.analyzer.track.tracker import FlowTracker
from rocescope.analyzer.wire.packets import IPV6

MTU = 1024
NO_ID = {"ip_id": 0, "decode_flags": IPV6}


def write(psn, **more):
    return {"psn": psn, "opcode": WRITE_ONLY, **more}


def ack(psn, syndrome=0x1F, **more):
    return {"answer": True, "psn": psn, "opcode": ACK, "syndrome": syndrome, **more}


def read(psn, count, **more):
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


def verdicts(rows):
    tracker = FlowTracker()
    found = track(tracker, packets(rows)).tolist()
    assert tracker.flows["peer"].tolist() == [1, 0]
    return tracker, found


def by(tracker, flow=0):
    """{trigger: packets}"""
    counts = tracker.flows[flow]["retransmitted_by"].tolist()
    return {name: n for name, n in zip(state.TRIGGER_NAMES, counts, strict=True) if n}


def test_a_lost_response_asked_for_again_is_recovered_without_identifications():
    """Response 14 is lost, the requester asks again from there: nothing came late."""
    rows = paired(**NO_ID) + [read(10, 8, **NO_ID)]
    answer = responses(10, 8, **NO_ID)
    rows += answer[:4] + answer[5:] + [read(14, 4, **NO_ID)] + responses(14, 4, **NO_ID)
    tracker, found = verdicts(rows)
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
    rows += [read(40, 4, answer=True, **NO_ID)]
    own = [r | {"answer": False} for r in responses(40, 4, **NO_ID)]
    rows += [own[0], write(41, **NO_ID), ack(40, NAK_SEQUENCE_ERROR, **NO_ID)]
    rows += [own[2], own[1], own[3]]
    _, found = verdicts(rows)
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
    rows = paired() + [read(10, 8)]
    answer = responses(10, 8)
    rows += [answer[i] for i in seen]
    first_lost = next(i for i in range(8) if i not in seen)
    again = START_NS + 1000 * len(rows) + pause_ns
    rows += [read(10 + first_lost, 8 - first_lost, time_ns=again)]
    tracker, _ = verdicts(rows)
    assert by(tracker) == {trigger: 1}


def test_the_oldest_of_many_outstanding_reads_times_out():
    """32 READs of 256 PSNs each: their requests are thousands of PSNs apart."""
    rows = paired() + [read(10 + 256 * i, 256) for i in range(32)]
    rows.insert(20, read(10, 2))
    rows[21:21] = responses(10, 2)
    for row in rows[23:]:
        row["psn"] += 2
    again = START_NS + 1000 * len(rows) + 40_000_000
    rows += [read(12 + 256 * i, 256, time_ns=again + 1000 * i) for i in range(32)]
    tracker, found = verdicts(rows)
    assert found[-32:] == [RETRANSMITTED] * 32
    assert by(tracker) == {"timeout": 32}
    assert tracker.flows[0]["rewinds"] == 1


def test_a_resend_overtaken_by_new_data_is_not_blamed_on_a_nak_that_never_was():
    """Selective repeat over several paths: the resent packet comes behind newer ones."""
    rows = paired() + [write(10), write(12), write(13), write(15), write(11), write(16)]
    for row, ip_id in zip(rows[20:], (100, 102, 103, 106, 105, 107), strict=True):
        row["ip_id"] = ip_id
    tracker, found = verdicts(rows)
    assert found[20:] == [IN_ORDER, AHEAD, IN_ORDER, AHEAD, RECOVERED, IN_ORDER]
    assert by(tracker) == {"unknown": 1}


def test_a_nak_repeated_is_one_nak_to_act_on():
    """Four NAKs for one PSN, one resend: a later packet that is merely late is not asked for."""
    rows = paired(**NO_ID) + [write(11, **NO_ID)]
    rows += [ack(10, NAK_SEQUENCE_ERROR, **NO_ID)] * 4
    rows += [write(p, **NO_ID) for p in (10, 12, 14, 13, 15)]
    tracker, found = verdicts(rows)
    assert found[-5:] == [RECOVERED, IN_ORDER, AHEAD, REORDERED, IN_ORDER]
    assert by(tracker) == {"nak": 1}
    assert tracker.flows[1]["naks"] == 4


def test_a_single_send_answered_by_rnr_is_sent_again_soon():
    """The shortest RNR timer is 10 us, shorter than what makes twins of the network."""
    rows = paired(**NO_ID) + [write(10, **NO_ID), ack(10, RNR_NAK, **NO_ID)]
    rows += [write(10, time_ns=START_NS + 32_000, **NO_ID)]
    tracker, found = verdicts(rows)
    assert found[-3:] == [IN_ORDER, NOT_SEQUENCED, RETRANSMITTED]
    assert by(tracker) == {"rnr": 1}


def test_naks_mirrored_twice_count_once():
    rows = paired() + [write(11)]
    nak = ack(10, NAK_SEQUENCE_ERROR, ip_id=500)
    rows += [nak, nak | {"hop_limit": 63}, write(10), write(11)]
    tracker, _ = verdicts(rows)
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
    tracker, _ = verdicts(rows)
    assert tracker.missing(0, state.REQUESTS) == (1 + 5, 0)
    assert tracker.flows[0]["ack_psn"] == 2_000_010
