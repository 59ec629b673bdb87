"""Flows that share a fault, and the place of a finding in words."""

from __future__ import annotations

import pytest
from cases import case_of
from conformance_traces import NAK, answer, last, write

from rocescope.analyzer.diagnosis import finding as places
from rocescope.analyzer.diagnosis.finding import by_any_host, by_hosts, of_same_hosts
from rocescope.analyzer.measures.troubles import NAK_SENT


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


ROWS = [write(0), last(1), answer(0, NAK), write(0, ip_id=80), last(1, ip_id=81), answer(1)]


def test_only():
    assert places.only(["a", "a"]) == "a"
    assert places.only(["a", "b"]) is None
    assert places.only([]) is None


def test_one_tap_needs_no_name():
    case = case_of(ROWS)
    nak = case.measuring.troubles.of(1, NAK_SENT)
    assert places.tap_of(case, [nak]) == "tap"
    assert places.before(case, "tap") == "before the tap"
    assert places.link_of_receiver(case, case.flows[0]) is None


def both_taps(limit_of_answers):
    rows = []
    for i, row in enumerate(ROWS):
        first = 1 if row.get("answer") else 0
        limits = (limit_of_answers, limit_of_answers - 1) if first else (64, 63)
        row = {"ip_id": 100 + i} | row
        for step, tap in enumerate((first, 1 - first)):
            rows.append(row | {"tap": tap, "hop_limit": limits[step], "at": 10 * i + step})
    return case_of(rows, taps=("a\x07", "b"))


def test_the_link_of_the_receiver_is_where_its_naks_begin():
    case = both_taps(64)
    assert places.link_of_receiver(case, case.flows[0]) == "b"
    assert places.before(case, "a\x07") == "before a?"
    assert places.after(case, None) == "after the last tap"
    routed = both_taps(62)
    assert places.link_of_receiver(routed, routed.flows[0]) is None


@pytest.mark.parametrize(("limit", "link"), [(64, None), (63, "b")])
def test_one_of_several_taps_needs_a_router_before_it(limit, link):
    rows = [
        {"ip_id": 100 + i, "hop_limit": 64 if row.get("answer") else limit} | row | {"tap": 1}
        for i, row in enumerate(ROWS)
    ]
    case = case_of(rows, taps=("a", "b"))
    assert places.link_of_receiver(case, case.flows[0]) == link
