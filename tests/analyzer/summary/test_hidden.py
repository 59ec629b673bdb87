"""What gaps in the captures of taps hide of flows."""

from __future__ import annotations

import pytest
from captures import data
from msgspec import structs

from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.results.flow import Flow
from rocescope.analyzer.summary.hidden import as_hidden, gaps_in, gaps_of
from rocescope.analyzer.wire.taps import Gap, Tap, Taps


@pytest.fixture(scope="module")
def flow() -> Flow:
    """From 100 to 200 ns at two taps, with a loss."""
    flows = analyze([str(data("c10"))], AnalyzeOptions()).flows
    first = next(flow for flow in flows if flow.reordering is not None)
    return structs.replace(
        first,
        taps={"up1": 10, "up2": 10},
        first_time_ns=100,
        last_time_ns=200,
        missing_packets=1,
        recovered_packets=2,
        capture_loss_suspected_packets=0,
        lost_between_taps=3,
        reordered_between_taps=0,
        reordered_packets=0,
    )


@pytest.mark.parametrize(
    ("from_ns", "until_ns", "hidden"),
    [
        (0, 99, False),
        (0, 100, True),
        (120, 130, True),
        (200, 300, True),
        (201, 300, False),
        (None, 99, False),
        (None, 150, True),
        (150, None, True),
        (201, None, False),
        (None, None, True),
    ],
)
def test_gaps_while_the_flow_lives(
    flow: Flow, from_ns: int | None, until_ns: int | None, hidden: bool
) -> None:
    gaps = {"up2": [Gap(from_ns, until_ns, "lost")], "up3": [Gap(101, None, "lost")]}
    assert gaps_in(flow, gaps) == (["up2"] if hidden else [])
    found = as_hidden(flow, gaps)
    assert found.missing_packets == (None if hidden else 1)
    assert found.lost_between_taps == (None if hidden else 3)
    assert found.reordered_packets == (None if hidden else 0)
    assert (found.reordering is None) == hidden
    assert found.recovered_packets == 2
    assert bool(found.notes[len(flow.notes) :]) == hidden


def without_losses(flow: Flow) -> Flow:
    return structs.replace(
        flow, missing_packets=0, recovered_packets=0, lost_between_taps=None, notes=[]
    )


def test_a_flow_whose_packets_were_all_seen(flow: Flow) -> None:
    whole = without_losses(flow)
    assert as_hidden(whole, {"up1": [Gap(120, 130, "lost")]}) is whole


def test_packets_late_at_another_tap_may_be_late_between_taps(flow: Flow) -> None:
    late = as_hidden(
        structs.replace(without_losses(flow), reordered_packets=4),
        {"up1": [Gap(120, 130, "lost")]},
    )
    assert (late.reordered_packets, late.reordering, late.missing_packets) == (None, None, 0)


@pytest.mark.parametrize(
    ("from_ns", "until_ns", "hidden"),
    [(100, 200, True), (None, 200, True), (99, None, True), (101, None, False), (0, 199, False)],
)
def test_a_flow_that_lives_only_during_a_gap_of_another_tap(
    flow: Flow, from_ns: int | None, until_ns: int | None, hidden: bool
) -> None:
    """The tap may have missed all of its packets."""
    gaps = {"up3": [Gap(from_ns, until_ns, "lost")]}
    assert gaps_in(flow, gaps) == (["up3"] if hidden else [])
    found = as_hidden(flow, gaps)
    if hidden:
        assert found.missing_packets is found.lost_between_taps is found.reordered_packets is None
    else:
        assert found is flow
    whole = without_losses(flow)
    assert as_hidden(whole, gaps) is whole


def test_a_flow_without_order(flow: Flow) -> None:
    unknown = dict.fromkeys(("missing_packets", "recovered_packets", "reordered_packets"))
    datagrams = structs.replace(flow, **unknown, lost_between_taps=None)
    assert as_hidden(datagrams, {"up1": [Gap(120, 130, "lost")]}) is datagrams


def test_a_session_has_the_gaps_of_the_tap_that_carries_it() -> None:
    gap = Gap(1, 2, "lost")
    taps = Taps([Tap("up1", 1), Tap("up2", 1, gaps=[gap]), Tap("session", 1, carrier=1)])
    assert gaps_of(taps) == {"up2": [gap], "session": [gap]}
