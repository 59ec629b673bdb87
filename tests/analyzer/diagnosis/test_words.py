"""Numbers, times and names as findings write them."""

from __future__ import annotations

import pytest
from cases import case_of
from conformance_traces import write
from factories_results import flow

from rocescope.analyzer.diagnosis import finding as words
from rocescope.analyzer.results.flow import Owner


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
