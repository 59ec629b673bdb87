"""Causes explain their effects, and nothing else."""

from __future__ import annotations

import itertools
from typing import get_args

import msgspec
import pytest
from cases import case_of
from conformance_traces import NAK, answer, last, write
from factories_results import SECOND, diagnosis, flow, lossy_flow, quantiles
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from rocescope.analyzer.diagnosis.diagnose import FINDERS
from rocescope.analyzer.diagnosis.finders.hosts import STALL_CAUSES, TIMEOUT_CAUSES
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
from rocescope.analyzer.diagnosis.known import (
    AFTERMATH_NS,
    CLOCKS_NS,
    PAUSED_NS,
    SLOW_PATH,
    Finder,
    Known,
    in_order,
)
from rocescope.analyzer.measures.troubles import NAK_SENT, Trouble
from rocescope.analyzer.results.diagnosis import Kind, Place

# Causes explain their effects, and nothing else.

CAUSE = msgspec.structs.replace(
    diagnosis().findings[0], kind="loss", flows=[2], from_ns=10**12, until_ns=10**12 + 10**9,
    onset_uncertainty_ns=0,
)  # fmt: skip


def test_same_flow_same_time():
    known = Known([CAUSE])
    at = CAUSE.from_ns
    assert known.explains(TIMEOUT_CAUSES, 2, at, at)
    assert not known.explains(TIMEOUT_CAUSES, 3, at, at)
    assert not known.explains((), 2, at, at)
    assert not known.explains(TIMEOUT_CAUSES, 2, at - 9, at - CLOCKS_NS - 1)
    until = CAUSE.until_ns
    assert known.explains(TIMEOUT_CAUSES, 2, until + AFTERMATH_NS, until + 10**12)
    assert not known.explains(TIMEOUT_CAUSES, 2, until + AFTERMATH_NS + 1, until + 10**12)


def test_clocks_apart():
    at = CAUSE.from_ns
    known = Known([CAUSE], clocks_ns={"a": 0, "b": 10 * CLOCKS_NS, "c": -20 * CLOCKS_NS})
    assert known.explains(TIMEOUT_CAUSES, 2, at - 10**12, at - 30 * CLOCKS_NS)
    assert not known.explains(TIMEOUT_CAUSES, 2, at - 10**12, at - 30 * CLOCKS_NS - 1)
    assert not Known([CAUSE], clocks_ns={"a": 9}).explains(TIMEOUT_CAUSES, 2, 0, at - CLOCKS_NS - 1)


def test_a_wrong_clock_makes_a_loss_between_taps_seem_to_be_before_them():
    at = CAUSE.from_ns
    known = Known([CAUSE], clocks_ns={"a": 0, "b": 2 * CLOCKS_NS})
    assert known.misplaced(flow(2, 9, taps={"a": 4, "b": 5}), at, at)
    assert not known.misplaced(flow(2, 9, taps={"a": 4}), at, at)
    assert not known.misplaced(flow(3, 9, taps={"b": 4}), at, at)
    assert not Known([CAUSE]).misplaced(flow(2, 9, taps={"b": 4}), at, at)


def test_a_slow_path():
    place = msgspec.structs.replace(CAUSE.place, from_tap=None, to_tap="b")
    at = CAUSE.from_ns
    slow = msgspec.structs.replace(CAUSE, place=place, details={SLOW_PATH: "b"})
    assert Known([slow]).slow_path("b", at, at)
    assert not Known([slow]).slow_path("c", at, at)
    assert not Known([slow]).slow_path("b", at - 10**10, at - 10**9)
    assert Known([slow]).queue_explains({"a", "b"}, at, at)
    lossy = msgspec.structs.replace(CAUSE, place=place)
    assert not Known([lossy]).slow_path("b", at, at)
    assert not Known([lossy]).queue_explains({"a", "b"}, at, at)


def test_a_host_that_loses_packets_loses_answers_too():
    place = msgspec.structs.replace(CAUSE.place, host="10.0.0.9")
    known = Known([msgspec.structs.replace(CAUSE, place=place)])
    at = CAUSE.from_ns
    assert known.host_explains(("10.0.0.1", "10.0.0.9"), at, at)
    assert not known.host_explains(("10.0.0.1", "10.0.0.2"), at, at)


def test_packets_that_wait_in_a_queue_are_answered_late():
    place = msgspec.structs.replace(CAUSE.place, from_tap="a", to_tap="b")
    known = Known([msgspec.structs.replace(CAUSE, place=place, kind="rate-limit")])
    at = CAUSE.from_ns
    assert known.queue_explains({"a", "b", "c"}, at, at)
    assert not known.queue_explains({"a", "c"}, at, at)
    lossy = Known([msgspec.structs.replace(CAUSE, place=place)])
    assert not lossy.queue_explains({"a", "b"}, at, at)
    assert lossy.troubled({"b"})
    assert not lossy.troubled({"c"})
    assert lossy.troubled({"b"}, ("queueing", CAUSE.kind))
    assert not lossy.troubled({"b"}, ("queueing",))


LINK = msgspec.structs.replace(CAUSE.place, from_tap=None, to_tap="b", device=None)
ONTO = msgspec.structs.replace(CAUSE.place, from_tap="a", to_tap="b", device="leaf1")
PAUSE = msgspec.structs.replace(
    CAUSE, kind="pause", place=LINK, flows=[], details={PAUSED_NS: 10**8}
)
AT, END = CAUSE.from_ns, CAUSE.until_ns


def test_packets_wait_in_front_of_a_paused_link():
    off = msgspec.structs.replace(ONTO, from_tap="b", to_tap="c")
    known = Known([PAUSE])
    assert not known.queue_at(off, [7], (AT, AT))
    assert not known.explains(TIMEOUT_CAUSES, 7, AT, AT)
    assert known.queue_at(ONTO, [7], (AT, AT))
    assert known.explains(TIMEOUT_CAUSES, 7, AT, AT)
    lossy = Known([msgspec.structs.replace(CAUSE, place=LINK, kind="rate-limit")])
    assert not lossy.queue_at(ONTO, [7], (AT, AT))


@pytest.mark.parametrize(
    ("span", "held"),
    [
        ((AT - 10**9, AT - CLOCKS_NS - 1), False),
        ((AT - 10**9, AT), True),
        ((END + CLOCKS_NS, END + 10**9), True),
        ((END + CLOCKS_NS + 1, END + 10**9), False),
    ],
    ids=["before", "until it", "drains", "after"],
)
def test_a_pause_holds_packets_while_it_lasts(span, held):
    """Its flows wait at its link; what they meet elsewhere has another cause."""
    known = Known([msgspec.structs.replace(PAUSE, flows=[2])])
    assert known.queue_at(ONTO, [7], span) == ({7} if held else set())
    assert known.explains(TIMEOUT_CAUSES, 7, *span) == held
    assert not known.explains(TIMEOUT_CAUSES, 2, *span)
    other = Known([PAUSE])
    assert not other.queue_at(ONTO, [7], span, in_pauses=False)
    assert not other.explains(TIMEOUT_CAUSES, 7, *span)


def test_a_pause_of_unknown_length_makes_no_longer_queue():
    known = Known([msgspec.structs.replace(PAUSE, details=UNSET)])
    assert known.queue_at(ONTO, [7], (AT, END))
    assert not known.queue_at(ONTO, [7], (AT, END + 10**8))
    assert known.queue_at(ONTO, [7], (AT, END + 10**8), 10**8)
    assert not known.queue_at(ONTO, [7], (AT - 10**8, END))
    assert known.queue_at(ONTO, [7], (AT - 10**8, END), 10**8)
    goes_on = Known([msgspec.structs.replace(PAUSE, details=UNSET, until_ns=None)])
    assert goes_on.queue_at(ONTO, [7], (AT, END + 10**12))


def test_what_overtakes_on_several_ways_from_a_tap_waits_on_each():
    fork = msgspec.structs.replace(ONTO, to_tap=None, device=None)
    known = Known([msgspec.structs.replace(CAUSE, kind="reordering", place=fork)])
    hit = CAUSE.flows[0]
    assert known.queue_at(ONTO, [hit, 77], (AT, END)) == {hit}
    elsewhere = msgspec.structs.replace(ONTO, from_tap="c")
    assert not known.queue_at(elsewhere, [hit], (AT, END))


def test_a_queue_before_its_cause_has_another():
    known = Known([msgspec.structs.replace(CAUSE, kind="rate-limit", place=ONTO)])
    assert not known.queue_at(ONTO, [7], (AT - 10**9, AT - CLOCKS_NS - 1))
    assert known.queue_at(ONTO, [7], (AT, END))


def test_a_host_without_a_link_sends_nothing_either():
    (victim,) = CAUSE.affected
    at = CAUSE.from_ns
    dead = msgspec.structs.replace(CAUSE, kind="outage")
    assert Known([dead]).cut_off(victim.dst, at, at)
    assert Known([dead]).host_explains((victim.src, victim.dst), at, at)
    assert not Known([dead]).cut_off(victim.src, at, at)
    assert not Known([CAUSE]).cut_off(victim.dst, at, at)
    other = msgspec.structs.replace(victim, dst="10.9.9.9")
    two = msgspec.structs.replace(dead, affected=[victim, other])
    assert not Known([two]).cut_off(victim.dst, at, at)


def test_a_loss_after_the_tap_loses_answers_of_other_queue_pairs():
    (victim,) = CAUSE.affected
    at, place = CAUSE.from_ns, msgspec.structs.replace(CAUSE.place, direction="after the tap")
    known = Known([msgspec.structs.replace(CAUSE, place=place)])
    asks = flow(7, 10, src=victim.dst, dst=victim.src)
    assert known.loses_answers(asks, at, at)
    assert not known.loses_answers(flow(7, 10, src=victim.src, dst=victim.dst), at, at)
    assert not Known([CAUSE]).loses_answers(asks, at, at)


def test_answers_suffer_with_their_requests():
    known = Known([CAUSE], peers={2: 5, 5: 2})
    assert known.explains(TIMEOUT_CAUSES, 5, CAUSE.from_ns, CAUSE.from_ns)


def test_a_cause_without_end_explains_all_that_follows():
    known = Known([msgspec.structs.replace(CAUSE, until_ns=None)])
    assert known.explains(STALL_CAUSES, 2, CAUSE.from_ns + 10**15, CAUSE.from_ns + 10**15)


def test_a_note_explains_nothing():
    known = Known([msgspec.structs.replace(CAUSE, severity="note")])
    assert not known.explains(STALL_CAUSES, 2, CAUSE.from_ns, CAUSE.from_ns)


def test_finders_name_kinds_of_the_schema_and_every_kind_has_a_finder():
    kinds = set(get_args(Kind))
    assert {kind for finder in FINDERS for kind in finder.finds} == kinds
    assert {kind for finder in FINDERS for kind in finder.explained_by} <= kinds


def named(name, *after):
    def find(case, known):
        return ()

    find.__name__ = name
    return Finder(find, ("loss",), after=after)


def test_causes_come_before_effects_and_others_as_given():
    a, b, c, d = named("a", "c"), named("b"), named("c", "d"), named("d")
    assert in_order([a, b, c, d]) == [b, d, c, a]


@pytest.mark.parametrize("after", ["b", "nobody"])
def test_no_order_in_a_circle_or_after_a_finder_that_is_not_there(after):
    with pytest.raises(ValueError, match="no order of cause and effect: a, b"):
        in_order([named("a", after), named("b", "a")])


def test_an_egress_that_overflows_is_the_way_of_its_flows_and_not_of_their_answers():
    known = Known([msgspec.structs.replace(CAUSE, kind="incast", place=ONTO)], peers={2: 5, 5: 2})
    assert known.overflows(flow(2, 9, taps={"b": 4}))
    assert not known.overflows(flow(2, 9, taps={"a": 4, "b": 4}))
    assert not known.overflows(flow(5, 9, taps={"b": 4}))


# One finding: share, severity, victims, sentence.

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
