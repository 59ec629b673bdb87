"""One packet that a receiver refuses, and packets lost at random."""

from __future__ import annotations

import pytest
from cases import case_of
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
