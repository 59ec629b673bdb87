"""Loss before the tap."""

from __future__ import annotations

import pytest
from cases import case_of
from conformance_traces import NAK, answer, last, write

from rocescope.analyzer.diagnosis.finders.taps.loss_before import losses_before
from rocescope.analyzer.diagnosis.known import Known
from rocescope.analyzer.wire.packets import ICRC_BAD, ICRC_OK

BEGIN = [write(n, at=n, ip_id=n) for n in range(20)]
LOST = [
    *BEGIN,
    last(21, at=21, ip_id=21),
    answer(20, NAK, at=30),
    write(20, at=90, ip_id=22),
    last(21, at=91, ip_id=23),
    answer(21, at=99),
]


def losses(rows):
    case = case_of(rows)
    return list(losses_before(case, Known()))


def test_a_gap_then_its_retransmission():
    (one,) = losses(LOST)
    assert (one.packets, one.of_packets, one.flows) == (1, 24, [0])
    assert one.place.to_tap == "tap"
    assert one.place.direction == "before the tap"
    assert one.place.host == "10.0.0.1"
    assert one.confidence == "proven"
    assert "1 of 24 packets from 10.0.0.1 to 10.0.0.2 are lost before the tap" in one.sentence


def test_a_lost_retransmission_counts_too():
    again = [
        *BEGIN,
        *(write(n, at=n, ip_id=n) for n in range(21, 25)),
        answer(20, NAK, at=30),
        *(write(n, at=70 + n, ip_id=10 + n) for n in range(21, 25)),  # 20 is lost again
        answer(20, NAK, at=120),
        *(write(n, at=170 + n, ip_id=20 + n) for n in range(20, 24)),
        last(24, at=194, ip_id=44),
        answer(24, at=199),
    ]
    (one,) = losses(again)
    assert one.packets == 2
    assert "are lost before the tap, 1 of them a retransmission, all" in one.sentence


def test_a_late_packet_is_not_lost():
    late = [*BEGIN, last(21, at=21, ip_id=21), write(20, at=22, ip_id=20), answer(21, at=30)]
    assert losses(late) == []


def test_what_an_ack_covers_is_not_lost():
    """Go-back-N: the sender skips what was acknowledged while it retransmitted."""
    rows = [
        *BEGIN,
        last(20, at=20, ip_id=20),
        write(5, at=400, ip_id=30),
        write(6, at=401, ip_id=31),
        answer(20, at=402),
        last(21, at=403, ip_id=32),
        answer(21, at=410),
    ]
    assert losses(rows) == []


@pytest.mark.parametrize("icrc_state", [ICRC_OK, ICRC_BAD])
def test_an_ack_that_the_sender_drops_says_nothing_of_skipped_packets(icrc_state):
    """Where the tap sees ACKs that the sender does not, a run may skip what another one covers."""
    rows = [
        *BEGIN,
        last(20, at=20, ip_id=20),
        answer(3, at=30, icrc_state=icrc_state),
        *(write(n, at=400 + n, ip_id=30 + n) for n in range(4, 20) if n != 9),
        last(20, at=420, ip_id=50),
        answer(20, at=430, icrc_state=ICRC_OK),
    ]
    assert bool(losses(rows)) == (icrc_state == ICRC_OK)


def test_a_selective_sender_skips_what_arrived():
    """Only the lost packet is retransmitted; the next packets are new."""
    more = [write(n, at=100 + n, ip_id=n + 1) for n in range(22, 40)]
    (one,) = losses([*LOST[:-2], *more, last(40, at=150, ip_id=50), answer(40, at=160)])
    assert one.packets == 1


def test_uc_packets_that_never_come():
    rows = [write(n, at=n, opcode=0x27, ip_id=n) for n in range(20) if n not in (7, 8)]
    (one,) = losses(rows)
    assert one.packets == 2
