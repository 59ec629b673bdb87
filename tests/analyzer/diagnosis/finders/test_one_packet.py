"""One packet that a receiver refuses, and packets lost at random."""

from __future__ import annotations

import pytest
from cases import case_of, found
from conformance_traces import NAK, answer, last, write

from rocescope.analyzer.diagnosis.finders.one_packet import refuses_one, rounds_of


def refused(rounds, others=0):
    """PSN 2 is NAKed so many times, although the tap sees it; then each of the others once."""
    rows = [write(n, at=n, ip_id=n) for n in range(4)]
    for n in range(rounds):
        at = 100 * n + 50
        rows += [answer(2, NAK, at=at), write(2, at=at + 20, ip_id=10 + 2 * n)]
        rows += [write(3, at=at + 21, ip_id=11 + 2 * n)]
    for n in range(others):
        psn, at = 4 + n, 10_000 + 100 * n
        rows += [write(psn, at=at, ip_id=200 + 2 * n), answer(psn, NAK, at=at + 20)]
        rows += [write(psn, at=at + 40, ip_id=201 + 2 * n)]
    return case_of([*rows, last(4 + others, at=99_000, ip_id=500), answer(4 + others, at=99_999)])


@pytest.mark.parametrize(
    ("rounds", "others", "one"), [(3, 0, False), (4, 0, True), (20, 0, True), (4, 8, False)]
)
def test_nearly_all_naks_are_for_one_packet(rounds, others, one):
    case = refused(rounds, others)
    assert rounds_of(case, 0) == rounds
    assert refuses_one(case, 0) == one


@pytest.mark.parametrize(("again", "one"), [(9, False), (2, True)])
def test_timeouts_of_another_packet_are_no_refusal(again, one):
    """Go-back-N receivers NAK a packet once, and the sender goes back to it after timeouts. PSN 2
    is NAKed; the timeouts are of it or of another one."""
    rows = [write(n, at=n, ip_id=n) for n in range(12)]
    rows += [answer(2, NAK, at=50), *(write(n, at=58 + n, ip_id=20 + n) for n in range(2, 12))]
    rows += [answer(again - 1, at=90)] * (again > 2)
    for n in range(8):
        at = 100 + 50 * n
        rows += [write(p, at=at + p, ip_id=50 + 12 * n + p) for p in range(again, 12)]
    case = case_of([*rows, last(12, at=90_000, ip_id=500), answer(12, at=99_999)])
    assert rounds_of(case, 0) >= 8
    assert refuses_one(case, 0) == one


def test_packets_naked_once_each_before_timeouts_of_one_are_lost():
    rows = [write(n, at=n, ip_id=n) for n in range(12)]
    for psn in (2, 4, 6, 8, 10):
        at = 100 * psn
        rows += [answer(psn, NAK, at=at)]
        rows += [write(n, at=at + n, ip_id=20 * psn + n) for n in range(psn, 12)]
    for n in range(8):
        rows += [write(p, at=2_000 + 50 * n + p, ip_id=500 + 2 * n + p) for p in (10, 11)]
    case = case_of([*rows, last(12, at=90_000, ip_id=900), answer(12, at=99_999)])
    assert rounds_of(case, 0) >= 8
    assert not refuses_one(case, 0)
    assert ("loss", 5) in [(kind, packets) for kind, _, packets in found(case)]
