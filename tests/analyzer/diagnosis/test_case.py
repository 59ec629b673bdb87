"""Peers, times and counts of a case."""

from __future__ import annotations

import factories_results as factories
import pytest
from captures import data
from cases import case_of
from conformance_traces import answer, last, write
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.diagnosis.case import ALL_PRIORITIES, priorities_of, queue_pairs, unmapped
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions


def test_a_queue_pair_and_its_answers():
    case = case_of([write(1, at=5), last(2, at=6), answer(2, at=9)])
    assert case.peers == {0: 1, 1: 0}
    assert case.queue_pairs == 1
    assert [flow.data_packets for flow in case.flows] == [2, 0]
    assert case.last_ns - case.first_ns == 4_000
    assert case.hosts_seen == {("10.0.0.1", "10.0.0.2"), ("10.0.0.2", "10.0.0.1")}


def test_too_few_answers_for_a_connection_name_a_likely_peer():
    asked = [write(0, at=0), last(1, at=1), last(2, at=10)]
    mine = [answer(psn, at=11 + psn, udp_sport=50_001) for psn in (0, 1)]
    case = case_of([*asked, *mine])
    assert not case.connections
    assert case.likely_peers == {0: 1, 1: 0}
    assert case_of([*asked, mine[0]]).likely_peers == {}
    other = answer(4000, at=14, udp_sport=50_001)  # of a PSN that no tap saw
    assert case_of([*asked, *mine, other]).likely_peers == {}


def test_an_empty_case():
    case = case_of([])
    assert (case.first_ns, case.last_ns, case.queue_pairs) == (0, 0, 0)


def test_both_halves_of_a_read_and_both_directions_of_writes_are_one_queue_pair():
    for name, pairs in (("c04_rc_read_q4_64k.atB", 4), ("c16_rc_write_bidir.atB", 2)):
        found = analyze([str(data(name))], AnalyzeOptions()).diagnosis
        assert found.summary.endswith(f"of {pairs} queue pairs"), found.summary
        assert f"{pairs} queue pairs: none stalled" in found.healthy


def test_flows_without_a_known_connection_count_alone():
    flows = [factories.flow(i, 10, connection=c) for i, c in enumerate((0, 0, 1, None, None))]
    assert queue_pairs(flows) == 4


CNP = 0x81


def packet(n, dscp=0, vlan=0, **more):
    return write(n, at=n, ip_id=n, traffic_class=dscp << 2, vlan=vlan, **more)


def tag(priority, vid=100):
    return priority << 13 | vid


@pytest.mark.parametrize(
    ("rows", "mapping", "priorities", "unknown"),
    [
        ([packet(0, 26)], {}, {3}, [26]),
        ([packet(0, 26), packet(1, 48)], {}, {3, 6}, [26, 48]),
        ([packet(0, 26)], {26: 5}, {5}, []),
        ([packet(0, 26)], {0: 5}, {3}, [26]),
        ([packet(0, 26, tag(4))], {}, {4}, []),
        ([packet(0, 26, tag(4))], {26: 5}, {4}, []),
        ([packet(0, 26, tag(0))], {}, {0, 3}, []),
        ([packet(0, 26, tag(4)), packet(1, 26)], {}, {3, 4}, [26]),
        ([packet(0, opcode=CNP)], {}, ALL_PRIORITIES, []),
    ],
    ids=[
        "DSCP", "two DSCPs", "mapped", "another mapped", "tag", "tag and mapped", "tag of 0",
        "tag at one tap", "CNPs",
    ],
)  # fmt: skip
def test_priorities(rows, mapping, priorities, unknown):
    case = case_of(rows, dscp_priority=mapping)
    assert priorities_of(case, case.flows[0]) == priorities
    assert unmapped(case) == unknown


@given(st.lists(st.tuples(st.integers(0, 63), st.integers(0, 7), st.booleans()), max_size=6))
def test_every_packet_has_one_of_the_priorities_of_its_flow(packets):
    rows = [packet(n, d, tag(p) if tagged else 0) for n, (d, p, tagged) in enumerate(packets)]
    case = case_of([packet(99), *rows])
    found = priorities_of(case, case.flows[0])
    assert found >= {p if tagged else d >> 3 for d, p, tagged in packets}
