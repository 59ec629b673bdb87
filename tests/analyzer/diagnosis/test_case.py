"""Peers, times and counts of a case."""

from __future__ import annotations

from cases import case_of
from conformance_traces import answer, last, write

from rocescope.analyzer.diagnosis.case import carries_data


def test_a_queue_pair_and_its_answers():
    case = case_of([write(1, at=5), last(2, at=6), answer(2, at=9)])
    assert case.peers == {0: 1, 1: 0}
    assert case.queue_pairs == 1
    assert [carries_data(flow) for flow in case.flows] == [True, False]
    assert case.last_ns - case.first_ns == 4_000
    assert case.hosts_seen == {("10.0.0.1", "10.0.0.2"), ("10.0.0.2", "10.0.0.1")}


def test_an_empty_case():
    case = case_of([])
    assert (case.first_ns, case.last_ns, case.queue_pairs) == (0, 0, 0)
