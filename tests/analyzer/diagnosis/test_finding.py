"""One finding: share, severity, victims, sentence."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from cases import case_of
from conformance_traces import NAK, answer, last, write
from factories_results import SECOND, flow, lossy_flow, quantiles
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.diagnosis.finding import (
    MOST_EVIDENCE,
    cheap,
    cost_ns,
    finding,
    interval,
    longest_pause_ns,
    severity_of,
    span_of,
    traffic_bytes,
)
from rocescope.analyzer.measures.troubles import NAK_SENT, Trouble
from rocescope.analyzer.results.diagnosis import Place

MS = 1000
LOSSY = [
    write(0, at=0),
    last(1, at=1),
    answer(1, at=9),
    write(2, at=10),
    last(3, at=20),
    answer(2, NAK, at=30),
    write(2, at=200, ip_id=90),
    last(3, at=201, ip_id=91),
    answer(3, at=220),
    last(4, at=1000),
    answer(4, at=1010),
]


def made(case, **options):
    span = case.first_ns + 30_000, case.first_ns + 30_000
    return finding(
        case, "loss", Place(host="10.0.0.2"), 5, "a packet was lost", "look",
        hits={0: 1}, span=span, **options,
    )  # fmt: skip


def test_victims_cost_and_sentence():
    case = case_of(LOSSY)
    one = made(case, seen=[case.measuring.troubles.of(1, NAK_SENT)])
    assert one.cost_ns == 170_000  # from the NAK to the retransmission
    assert one.sentence == "a packet was lost, at 30 us; 1 of 1 QP lost 170 us"
    assert (one.packets, one.of_packets, one.share_percent) == (1, 5, 20.0)
    assert one.share_low_percent == pytest.approx(3.62, abs=0.01)
    assert one.share_high_percent == pytest.approx(62.45, abs=0.01)
    assert [(e.tap, e.frame_number) for e in one.evidence] == [("tap", 6)]
    assert [(a.flow, a.dest_qp, a.packets, a.cost_ns) for a in one.affected] == [
        (0, 0x11, 1, 170_000)
    ]
    assert one.severity == "warning"
    assert made(case, costs=False).cost_ns == 0


def test_most_of_the_time_lost_is_critical():
    case = case_of(LOSSY[:-2])  # 170 of 220 us
    assert made(case).severity == "critical"
    assert severity_of(case, case.flows, 109_000) == "warning"


def test_a_dead_queue_pair_is_critical():
    case = case_of([*LOSSY, *(last(5, at=MS * n, ip_id=90 + n) for n in (2, 60, 120, 180))])
    one = made(case)
    assert one.severity == "critical"
    assert one.sentence.endswith("1 of 1 QP dead")


def test_what_costs_little():
    assert not cheap(case_of(LOSSY).flows)
    assert cheap(case_of([*LOSSY, last(5, at=30 * MS), answer(5, at=30 * MS + 9)]).flows)


def test_evidence_is_bounded():
    case = case_of(LOSSY)
    many = [Trouble(4, 0, 9, 0, [(time, time, 0) for time in range(4)], 0)] * 9
    assert len(made(case, seen=many).evidence) == MOST_EVIDENCE


MS_INTERVAL = 1_000_000
CASE = case_of([write(i, at=1000 * i) for i in range(1000)])
"""One packet per ms, for a second."""
T0 = CASE.first_ns


def seen(hits, first_ms, last_ms, pause_ms=0):
    span = T0 + first_ms * MS_INTERVAL, T0 + last_ms * MS_INTERVAL
    got = interval(CASE, CASE.flows, hits, span, pause_ms * MS_INTERVAL)
    until = None if got.until_ns is None else (got.until_ns - T0) // MS_INTERVAL
    return (got.from_ns - T0) // MS_INTERVAL, until, got.uncertain_ns // MS_INTERVAL


def test_a_steady_fault_has_no_onset_and_no_end():
    assert seen(100, 5, 990) == (5, None, 5)


def test_an_onset_in_the_middle():
    begin, until, uncertain = seen(51, 500, 999)
    assert (begin, until) == (500, None)
    assert uncertain == 29  # three times 499 ms / 50


def test_a_fault_that_ends():
    assert seen(51, 0, 500)[:2] == (0, 500)


def test_few_hits_do_not_prove_an_end():
    assert seen(3, 100, 500)[:2] == (100, None)


def test_bursts_do_not_prove_an_end():
    assert seen(100, 0, 800, pause_ms=20)[1] == 800
    assert seen(100, 0, 800, pause_ms=120)[1] is None


HITS = st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=8), min_size=1, max_size=5)


def trouble(times):
    times = sorted(times)
    pauses = [b - a for a, b in itertools.pairwise(times)]
    return Trouble(len(times), times[0], times[-1], max(pauses, default=0), [], 0)


@given(HITS)
def test_the_longest_pause_of_several_flows_is_at_most_so_long(flows):
    times = sorted(itertools.chain(*flows))
    true = max((b - a for a, b in itertools.pairwise(times)), default=0)
    found = longest_pause_ns([trouble(flow) for flow in flows])
    assert true <= found <= times[-1] - times[0]
    if len(flows) == 1:
        assert found == true


def test_hits_of_other_flows_shorten_a_pause():
    assert longest_pause_ns([trouble([0, 90]), trouble([20, 50])]) == 40
    assert longest_pause_ns([]) == 0


def test_a_single_hit_is_a_moment():
    assert seen(1, 400, 400) == (400, 400, 0)


def test_flows_that_ended_do_not_show_the_fault_go_on():
    rows = [write(i, at=1000 * i) for i in range(100)]
    case = case_of([*rows, write(7, at=10**6, dest_qp=0x77)])
    span = case.first_ns, case.first_ns + 99 * MS_INTERVAL
    assert interval(case, case.flows[:1], 50, span, 0).until_ns == span[1]


@given(st.integers(0, 999), st.integers(0, 999))
def test_traffic_of_a_span(a, b):
    begin, end = sorted((a, b))
    got = traffic_bytes(CASE, CASE.flows, T0 + begin * MS_INTERVAL, T0 + end * MS_INTERVAL)
    width = CASE.measuring.activity.width_ns
    assert abs(got - (end - begin) * 1094) <= 2 * 1094 * (1 + width / MS_INTERVAL)


def test_span_of_troubles():
    troubles = [Trouble(1, 5, 9, 0, [], 0), Trouble(1, 3, 4, 0, [], 0)]
    assert span_of(troubles) == (3, 9)


def test_the_waits_of_the_recovery_add_up():
    lossy = lossy_flow(0)
    r = lossy.recovery
    waits = (r.gap_to_nak_ns, r.nak_to_resend_ns, r.timeout_ns)
    total = sum(q.count * q.mean for q in waits)
    lossy = msgspec.structs.replace(lossy, last_time_ns=lossy.first_time_ns + 100 * SECOND)
    assert cost_ns(lossy) == round(total) > 537_000_000


def test_a_clean_flow_lost_nothing():
    assert cost_ns(flow(0, 1000)) == 0


def test_datagrams_do_not_tell():
    assert cost_ns(flow(0, 1000, retransmitted_packets=None)) is None


def test_a_flow_cannot_lose_more_than_its_time():
    r = msgspec.structs.replace(
        lossy_flow(0).recovery, timeout_ns=quantiles(9, SECOND, SECOND, SECOND)
    )
    assert cost_ns(flow(0, 1000, recovery=r)) == SECOND
