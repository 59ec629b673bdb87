"""Loss and reordering after the tap."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest
from cases import case_of
from conformance_traces import NAK, answer, last, write

from rocescope.analyzer.diagnosis.finders.taps.loss_after import RARE, losses_after
from rocescope.analyzer.diagnosis.known import Known

BEGIN = [write(n, at=n, ip_id=n) for n in range(20)]
LOST = [
    *BEGIN,
    last(20, at=20, ip_id=20),
    answer(15, NAK, at=40),
    *(write(n, at=60 + n, ip_id=10 + n) for n in range(15, 20)),
    last(20, at=90, ip_id=40),
    answer(20, at=99),
]
LATE = [*BEGIN, last(20, at=20, ip_id=20), answer(15, NAK, at=40), answer(20, at=41)]


def found(rows, known=None):
    return list(losses_after(case_of(rows), known or Known()))


def test_a_nak_for_what_the_tap_saw():
    (one,) = found(LOST)
    assert (one.kind, one.packets, one.flows) == ("loss", 1, [0])
    assert (one.place.from_tap, one.place.host) == ("tap", "10.0.0.2")
    assert (
        "1 of 27 packets from 10.0.0.1 to 10.0.0.2 are lost or late after the tap" in one.sentence
    )
    assert one.evidence[0].frame_number == 22


def test_a_nak_without_a_retransmission_is_a_late_packet():
    (one,) = found(LATE)
    assert one.kind == "reordering"
    assert "arrive late after the tap" in one.sentence


def sent_by(source, rows):
    return [row | ({"dst": source} if row.get("answer") else {"src": source}) for row in rows]


def test_several_hosts_that_lose_on_the_way_to_one_may_be_an_incast():
    rows = LOST
    for source in (2, 3):
        rows = rows + sent_by(source, [row | {"at": row["at"] + 1000 * source} for row in LOST])
    (one,) = found(rows)
    assert (one.kind, one.packets) == ("loss", 3)
    assert "3 hosts" in one.sentence
    assert "(incast) or a bad link" in one.next_step
    assert "incast" not in found(LOST)[0].next_step


def test_late_packets_beside_many_that_seem_lost_are_one_finding():
    later = [row | {"at": row["at"] + 1000} for row in LATE]
    few = [*LATE, *sent_by(2, [row | {"at": row["at"] + 1000} for row in LOST])]
    assert sorted(one.kind for one in found(few)) == ["loss", "reordering"]
    many = sent_by(7, later)
    for source in range(2, 7):
        many += sent_by(source, [row | {"at": row["at"] + 1000 * source} for row in LOST])
    (one,) = found(many)
    assert (one.kind, one.packets) == ("loss", 7)


def test_a_nak_for_a_gap_at_the_tap_is_no_loss_after_it():
    rows = [*BEGIN, last(21, at=21, ip_id=21), answer(20, NAK, at=40), write(20, at=90, ip_id=22)]
    assert found(rows) == []


def test_a_nak_for_packets_before_the_capture():
    assert found([*BEGIN, answer(0xFFFFF0, NAK, at=40)]) == []


@pytest.mark.parametrize("rows", [LATE, LOST])
def test_of_a_flow_that_the_tap_sees_in_part_the_place_is_unknown(rows):
    case = case_of(rows)
    parts = [msgspec.structs.replace(case.flows[0], missing_packets=None), case.flows[1]]
    (one,) = losses_after(dataclasses.replace(case, flows=parts), Known())
    assert (one.place.from_tap, one.place.direction, one.place.host) == (None, None, "10.0.0.2")
    assert "after the tap" not in one.sentence


def test_a_known_cause_explains_it():
    (cause,) = found(LOST)
    assert found(LOST, Known([cause])) == []


def through_two_taps(rows):
    """Every packet at the sender's tap, then routed, at the receiver's; answers the other way."""
    both = []
    for row in rows:
        first = 1 if row.get("answer") else 0
        row = {"ip_id": row["at"] + 1000} | row
        both.append(row | {"tap": first, "hop_limit": 64, "at": 10 * row["at"]})
        both.append(row | {"tap": 1 - first, "hop_limit": 63, "at": 10 * row["at"] + 3})
    return both


def test_a_receiver_that_drops_a_few_is_a_note():
    more = [write(n, at=200 + 4 * n, ip_id=200 + n) for n in range(21, 3000)]
    rows = [*LOST, *more, last(3000, at=12_200, ip_id=3200), answer(3000, at=12_300)]
    case = case_of(through_two_taps(rows), taps=("near", "far"))
    (one,) = losses_after(case, Known())
    assert one.severity == "note"
    assert one.place.from_tap == "far"
    assert "reach their link, but 10.0.0.2 drops them" in one.sentence
    few = case_of(through_two_taps(LOST), taps=("near", "far"))
    (one,) = losses_after(few, Known())
    assert one.severity != "note"


@pytest.mark.parametrize(("rounds", "severity"), [(9, "note"), (12, "warning")])
def test_a_receiver_that_drops_a_few_now_and_then_and_makes_the_sender_wait(rounds, severity):
    """The NAK comes late, the retransmission later: it costs much of the time."""
    rows = []
    for n in range(rounds):
        psn, at = 800 * n, 9_000 * n
        rows += [write(psn + i, at=at + 5 * i) for i in range(799)]
        rows += [answer(psn + 795, NAK, at=at + 5_000)]
        rows += [write(psn + i, at=at + 8_000 + i) for i in range(795, 799)]
        rows += [last(psn + 799, at=at + 8_900), answer(psn + 799, at=at + 8_950)]
    rows = [row | {"ip_id": number + 1} for number, row in enumerate(rows)]
    (one,) = losses_after(case_of(through_two_taps(rows), taps=("near", "far")), Known())
    assert (one.packets, one.severity) == (rounds, severity)
    assert one.share_high_percent < 100 * RARE
