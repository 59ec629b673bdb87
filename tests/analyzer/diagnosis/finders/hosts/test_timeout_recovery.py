"""Retransmissions that no NAK asked for."""

from __future__ import annotations

import msgspec
from cases import case_of
from conformance_traces import answer, last, write
from factories_results import diagnosis

from rocescope.analyzer.diagnosis.finders.hosts.timeout_recovery import timeout_recoveries
from rocescope.analyzer.diagnosis.known import Known

BEGIN = [write(0, at=0), last(1, at=1), answer(1, at=9)]
LOST = [*BEGIN, last(2, at=10), last(2, at=4000, ip_id=80), answer(2, at=4010)]
LATE = [*LOST, answer(2, at=4011)]
LOST_ACK = [
    *BEGIN,
    last(2, at=10),
    answer(2, at=15),
    last(2, at=4000, ip_id=80),
    answer(2, at=4010),
]


def found(rows, known=None):
    return list(timeout_recoveries(case_of(rows), known or Known()))


def test_a_timeout_without_a_nak():
    (one,) = found(LOST)
    assert (one.kind, one.packets, one.flows) == ("timeout-recovery", 1, [0])
    assert "no NAK came" in one.sentence
    assert one.cost_ns == 3_990_000


def test_two_answers_to_one_packet_show_a_late_ack():
    (one,) = found(LATE)
    assert "the ACKs arrived late" in one.sentence


def test_an_ack_that_the_sender_did_not_get():
    (one,) = found(LOST_ACK)
    assert "the ACKs were late or lost after the tap" in one.sentence


def test_retransmissions_whose_answers_pass_no_tap():
    rows = [write(0, at=0), last(1, at=1), last(2, at=10), last(2, at=4000, ip_id=80)]
    (one,) = found(rows)
    assert "lost or late after the tap; their answers are seen at no tap" in one.sentence
    assert one.confidence == "possible"


def test_a_known_loss_explains_it():
    case = case_of(LOST)
    cause = msgspec.structs.replace(
        diagnosis().findings[0], kind="loss", flows=[0], from_ns=case.first_ns
    )
    assert list(timeout_recoveries(case, Known([cause]))) == []


def test_one_that_costs_little_is_a_note():
    (one,) = found([*LOST, last(3, at=10**6, ip_id=81), answer(3, at=10**6 + 9)])
    assert one.severity == "note"


def test_the_host_that_all_share_is_named():
    """10.0.0.2 waits as a sender and as a receiver, with two other hosts."""
    there = [row | ({"dst": 3} if row.get("answer") else {"src": 3}) for row in LOST]
    back = [row | {"at": row["at"] + 20} for row in LOST]
    back = [
        row | ({"src": 4, "dst": 1} if row.get("answer") else {"src": 1, "dst": 4}) for row in back
    ]
    (one,) = found([*there, *back])
    assert one.place.host == "10.0.0.2"
    assert "between 10.0.0.2 and 2 hosts" in one.sentence


def test_clean_flows():
    assert found(BEGIN) == []
