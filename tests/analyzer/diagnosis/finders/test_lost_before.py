"""Packets of one flow that were lost before the tap."""

from __future__ import annotations

import pytest
from cases import case_of
from conformance_traces import NAK, answer, last, write

from rocescope.analyzer.diagnosis.finders.lost_before import lost_before

SENT = [write(n, at=n, ip_id=n) for n in range(8)]
REPAIR = [write(8, at=90, ip_id=22), last(9, at=91, ip_id=23), answer(9, at=99)]
GAP = [*SENT, last(9, at=9, ip_id=9), answer(8, NAK, at=30), *REPAIR]
WHOLE = [*SENT, write(8, at=8, ip_id=8), last(9, at=9, ip_id=9), answer(9, at=30)]
DATAGRAMS = [write(n, at=n, opcode=0x64) for n in (1, 5, 9)]
UC = [write(n, at=n, opcode=0x27, ip_id=n) for n in range(20) if n not in (7, 8)]


@pytest.mark.parametrize(
    ("rows", "lost"),
    [(GAP, 1), (WHOLE, 0), (DATAGRAMS, 0), (UC, 2)],
    ids=["gap", "whole", "datagrams", "UC"],
)
def test_packets_of_the_sender_that_no_tap_saw_in_time(rows, lost):
    case = case_of(rows)
    assert lost_before(case, case.flows[0]) == lost


def test_a_sender_that_skips_what_was_acknowledged_out_of_sight_lost_nothing():
    """It goes back to PSN 0 and on to 12 after PSN 9: an ACK told it that 10 and 11 arrived."""
    begin = [write(n, at=n, ip_id=n) for n in range(12)]
    again = [write(n, at=900 + n, ip_id=100 + n) for n in (*range(10), *range(12, 16))]
    unseen, seen = case_of([*begin, *again]), case_of([*begin, *again, answer(15, at=999)])
    assert lost_before(unseen, unseen.flows[0]) == 0
    assert lost_before(seen, seen.flows[0]) == 2
