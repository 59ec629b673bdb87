"""Peers, times and counts of a case."""

from __future__ import annotations

import factories_results as factories
import numpy as np
import pytest
from captures import data
from cases import case_of
from conformance_traces import ACK, NAK, answer, last, write
from factories_results import flow, hop
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.diagnosis import finding as places
from rocescope.analyzer.diagnosis import finding as words
from rocescope.analyzer.diagnosis.case import ALL_PRIORITIES, priorities_of, queue_pairs, unmapped
from rocescope.analyzer.diagnosis.finding import (
    by_any_host,
    by_hosts,
    death_of,
    may_be_answered,
    of_same_hosts,
)
from rocescope.analyzer.measures.hops.hops import TapHop, TapHops
from rocescope.analyzer.measures.hops.state import EDGE, VISIT
from rocescope.analyzer.measures.troubles import NAK_SENT
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.results.analysis import TapClock
from rocescope.analyzer.results.flow import Owner

# Peers, times and counts of a case.


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


# Which queue pairs are dead.

MS = 1000
REFUSAL = 0x62
BEGIN = [write(0, at=0), last(1, at=1), answer(1, at=9)]


def death(rows):
    case = case_of([*BEGIN, *rows])
    return death_of(case, case.flows[0])


def resend(at, ip_id):
    return last(2, at=at, ip_id=ip_id)


def test_an_answered_queue_pair_lives():
    assert death([]) is None
    assert death([last(2, at=10), resend(60 * MS, 90), answer(2, at=60 * MS + 5)]) is None


def test_three_rewinds_without_an_answer():
    rows = [last(2, at=10), *(resend(60 * MS * n, 90 + n) for n in (1, 2, 3))]
    assert death(rows[:3]) is None
    dead = death(rows)
    assert (dead.why, dead.packets) == ("unanswered", 3)
    case = case_of([*BEGIN, *rows])
    assert dead.since_ns == case.first_ns + 10_000  # of the request, not of its retransmission


def test_answers_without_a_partner_may_be_those_of_the_sender():
    """Where no tap sees any, they pass elsewhere; where some are seen, they have ended."""
    begin = [write(0, at=0), last(1, at=1), last(2, at=10)]
    again = [resend(60 * MS * n, 90 + n) for n in (1, 2, 3)]
    other = answer(5000, at=12)  # of a PSN that no tap saw
    seen, unseen = case_of([*begin, other, *again]), case_of([*begin, *again])
    assert not seen.connections
    assert death_of(seen, seen.flows[0]).why == "unanswered"
    assert death_of(unseen, unseen.flows[0]) is None
    fewer = case_of([*begin, other, *again[:2]])
    assert death_of(fewer, fewer.flows[0]) is None


def test_two_answers_that_only_this_sender_can_have_got_are_its_own():
    """They are too few for a connection: the queue pair ended after two ACKs."""
    begin = [write(0, at=0), last(1, at=1), last(2, at=10)]
    again = [resend(200 * MS, 91), resend(520 * MS, 92), last(9, at=1100 * MS, dest_qp=0x77)]
    mine = [answer(psn, at=11 + psn, udp_sport=50_001) for psn in (0, 1)]
    case = case_of([*begin, *mine, *again])
    assert not case.connections
    dead = death_of(case, case.flows[0])
    assert (dead.why, dead.packets) == ("unanswered", 2)
    one = case_of([*begin, *mine[1:], *again])
    assert death_of(one, one.flows[0]) is None
    also = answer(4000, at=14, udp_sport=50_001)  # of a PSN that no tap saw
    doubtful = case_of([*begin, *mine, also, *again])
    assert death_of(doubtful, doubtful.flows[0]) is None


def test_two_rewinds_and_half_a_second():
    rows = [last(2, at=10), resend(200 * MS, 91), resend(520 * MS, 92)]
    assert death(rows).why == "unanswered"
    assert death([*rows, answer(2, at=521 * MS)]) is None


def test_a_rewind_that_goes_on_to_new_packets_got_no_answer():
    """The second rewind passes what the first one sent."""
    more = [last(3, at=560 * MS), last(4, at=561 * MS), last(9, at=700 * MS, dest_qp=0x77)]
    rows = [last(2, at=10), resend(200 * MS, 91), resend(520 * MS, 92), *more]
    assert death(rows).why == "unanswered"
    assert death([*rows, answer(2, at=701 * MS)]) is None


def test_a_refusal_is_death_unless_the_sender_goes_on():
    refused = [last(2, at=10), answer(2, REFUSAL, at=20)]
    assert death(refused).why == "refused"
    assert death([*refused, write(3, at=30), last(4, at=31), answer(4, at=40)]) is None


def test_silence_after_an_unanswered_request():
    other = [last(7, at=5000 * MS, dest_qp=0x77)]  # the capture continues
    assert death([last(2, at=10), *other]).why == "silent"
    assert death([last(2, at=10), answer(2, at=20), *other]) is None
    assert death([last(2, at=4500 * MS), *other]) is None
    assert death([write(2, at=10), *other]) is None  # nobody asked for an ACK


def test_one_direction_tells_nothing():
    case = case_of([last(0, at=0), last(7, at=5000 * MS, dest_qp=0x77)])
    assert death_of(case, case.flows[0]) is None


def between_taps(longest_ns):
    """The hop between two taps, where one packet of flow 0 waited this long."""
    passed = np.zeros(2, EDGE)
    passed["flow"] = 0, -1
    passed["delay_max"], passed["delay_min"] = longest_ns, 1000
    way = TapHop(0, 1, total=passed[1], passed=passed[:1])
    empty = np.zeros(0, VISIT)
    ways = TapHops([way], [], empty, 1, 0, 0, 0, 0, 0, ["a", "b"], {})
    return {"tap_hops": ways, "hops": [hop(from_tap="a", to_tap="b")]}


def test_a_request_may_wait_in_a_queue_that_others_left():
    """Three rewinds in 180 ms prove nothing beside a queue of 100 ms."""
    rows = [*BEGIN, last(2, at=10), *(resend(60 * MS * n, 90 + n) for n in (1, 2, 3))]
    for waited_ms, lives in ((100, True), (80, False)):
        case = case_of(rows, **between_taps(waited_ms * MS * 1000))
        assert (death_of(case, case.flows[0]) is None) == lives
    clock = TapClock("b", "a", 0.0, 0.0, None, 1)
    case = case_of(rows, **between_taps(100 * MS * 1000), clocks=[clock])
    assert death_of(case, case.flows[0]) is not None  # a clock that jumps is no queue


def test_a_nak_is_an_answer():
    rows = [last(2, at=10)]
    for n in range(1, 6):
        rows += [answer(2, NAK, at=60 * MS * n - 5), resend(60 * MS * n, 90 + n)]
    assert death([*rows, answer(2, ACK, at=301 * MS)]) is None


def test_a_sender_that_goes_back_to_a_later_packet_got_answers_elsewhere():
    """Requests and answers take different ways, and the tap is on one of them."""
    rows = [write(0, at=0), write(1, at=1), last(2, at=2)]
    case = case_of([*rows, *(resend(60 * MS * n, 90 + n) for n in (1, 2, 3))])
    assert death_of(case, case.flows[0]) is None
    assert may_be_answered(case, case.flows[0])
    from_the_first = [write(0, at=60 * MS * n, ip_id=90 + n) for n in (1, 2, 3)]
    case = case_of([*rows, *from_the_first])
    assert death_of(case, case.flows[0]).why == "unanswered"
    assert not may_be_answered(case, case.flows[0])


# Flows that share a fault, and the place of a finding in words.


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


# Numbers, times and names as findings write them.


def test_packets_of():
    assert words.packets_of(71, 7_904) == "0.9 % of the packets (71 of 7,904)"
    assert words.packets_of(3, 10_000) == "3 of 10,000 packets"
    assert words.packets_of(20_000, 20_000) == "100 % of the packets (20,000 of 20,000)"
    assert words.packets_of(1, 1) == "1 of 1 packet"


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0, "0 %"),
        (1, "100 %"),
        (0.5, "50.0 %"),
        (0.0057, "0.57 %"),
        (0.00012, "0.012 %"),
        (0.9999, ">99.9 %"),
        (1e-9, "<0.0001 %"),
    ],
)
def test_percent(share, text):
    assert words.percent(share) == text


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (850, "850 ns"),
        (999.9, "1 us"),
        (12_345, "12.3 us"),
        (310_000_000, "310 ms"),
        (3_100_000_000, "3.1 s"),
        (250_000_000_000, "4 min 10 s"),
    ],
)
def test_duration(ns, text):
    assert words.duration(ns) == text


def test_times_are_those_since_the_first_packet():
    case = case_of([write(1, at=0), write(2, at=5_000_000)])
    t0 = case.first_ns
    assert words.when(case, t0, None) == "all the time"
    assert words.when(case, t0 + 10**9, None) == "from 1.000 s to the end"
    assert words.when(case, t0 + 10**9, None, 10**9) == "all the time"
    assert words.when(case, t0 + 10**9, t0 + 2 * 10**9) == "from 1.000 s to 2.000 s"
    assert words.when(case, t0 + 10**9, t0 + 10**9) == "at 1.000 s"
    assert words.when(case, t0, t0 + 10**9) == "until 1.000 s"
    short = case_of([write(1, at=0), write(2, at=50_000)])
    assert words.when(short, t0 + 2_040_000, None) == "from 2.0 ms to the end"
    shorter = case_of([write(1, at=0), write(2, at=900)])
    assert words.when(shorter, t0 + 2_040, None) == "from 2 us to the end"
    long = case_of([write(1, at=0), write(2, at=20_000_000)])
    assert words.when(long, t0 + 10**9, None) == "from 1.0 s to the end"


def test_ways_of_flows():
    case = case_of([write(1), write(1, src=2), write(9, dst=3)])
    first, second, third = case.flows
    assert words.flow_name(first) == "10.0.0.1 to 10.0.0.2 QP 0x000011"
    assert words.hosts([first]) == "10.0.0.1 to 10.0.0.2"
    assert words.hosts([first, second]) == "2 hosts to 10.0.0.2"
    assert words.hosts([first, third]) == "10.0.0.1 to 2 hosts"
    assert (words.counted(1, "flow"), words.counted(1200, "flow")) == ("1 flow", "1,200 flows")


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([], ""),
        ([(None, 3), (11, None)], ""),
        ([(11, 3), (11, 3), None], " (rank 11 to rank 3)"),
        ([(11, 3), (0, 7)], " (ranks 0 to 7, 11 to 3)"),
        ([(n, n + 1) for n in range(5)], " (ranks 0 to 1, 1 to 2, 2 to 3 and 2 more)"),
    ],
)
def test_ranks(ranks, text):
    flows = [
        flow(number, 1, owner=pair and Owner(1, "x", pair[0], "source", peer_rank=pair[1]))
        for number, pair in enumerate(ranks)
    ]
    assert words.ranks(flows) == text
