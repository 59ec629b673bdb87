"""Since when and until when."""

from __future__ import annotations

import itertools

from cases import case_of
from conformance_traces import write
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.diagnosis.interval import (
    interval,
    longest_pause_ns,
    span_of,
    traffic_bytes,
)
from rocescope.analyzer.measures.troubles import Trouble

MS = 1_000_000
CASE = case_of([write(i, at=1000 * i) for i in range(1000)])
"""One packet per ms, for a second."""
T0 = CASE.first_ns


def seen(hits, first_ms, last_ms, pause_ms=0):
    span = T0 + first_ms * MS, T0 + last_ms * MS
    got = interval(CASE, CASE.flows, hits, span, pause_ms * MS)
    until = None if got.until_ns is None else (got.until_ns - T0) // MS
    return (got.from_ns - T0) // MS, until, got.uncertain_ns // MS


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
    span = case.first_ns, case.first_ns + 99 * MS
    assert interval(case, case.flows[:1], 50, span, 0).until_ns == span[1]


@given(st.integers(0, 999), st.integers(0, 999))
def test_traffic_of_a_span(a, b):
    begin, end = sorted((a, b))
    got = traffic_bytes(CASE, CASE.flows, T0 + begin * MS, T0 + end * MS)
    width = CASE.measuring.activity.width_ns
    assert abs(got - (end - begin) * 1094) <= 2 * 1094 * (1 + width / MS)


def test_span_of_troubles():
    troubles = [Trouble(1, 5, 9, 0, [], 0), Trouble(1, 3, 4, 0, [], 0)]
    assert span_of(troubles) == (3, 9)
