"""Flows that share a fault."""

from __future__ import annotations

from cases import case_of
from conformance_traces import write

from rocescope.analyzer.diagnosis.finders.groups import by_any_host, by_hosts, of_same_hosts


def flows(*pairs):
    return case_of([write(0, src=a, dst=b, dest_qp=9 + i) for i, (a, b) in enumerate(pairs)])


def ids(groups):
    return [[flow.id for flow in group] for group in groups]


def test_a_common_source_or_destination_joins():
    case = flows((0, 1), (0, 2), (3, 2), (4, 5), (1, 0))
    assert ids(by_hosts(case.flows)) == [[0, 1, 2], [3], [4]]


def test_both_directions_are_one_group_only_by_any_host():
    case = flows((0, 1), (1, 0), (2, 3))
    assert ids(by_hosts(case.flows)) == [[0], [1], [2]]
    assert ids(by_any_host(case.flows)) == [[0, 1], [2]]


def test_all_flows_of_the_same_hosts():
    case = flows((0, 1), (0, 1), (1, 0), (0, 2))
    assert [flow.id for flow in of_same_hosts(case, case.flows[:1])] == [0, 1]
