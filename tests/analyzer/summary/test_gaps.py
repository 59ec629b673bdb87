"""What gaps in the captures of taps hide of flows."""

from __future__ import annotations

import pytest
from captures import data
from msgspec import structs

from rocescope.analyzer.analysis.analyze import analyze
from rocescope.analyzer.analysis.options import AnalyzeOptions
from rocescope.analyzer.results.flow import Flow
from rocescope.analyzer.summary.gaps import as_hidden, gaps_in, gaps_of
from rocescope.analyzer.wire.taps import Gap, Tap, Taps


@pytest.fixture(scope="module")
def flow() -> Flow:
    """From 100 to 200 ns at two taps, with a loss."""
    (first, *_) = analyze([str(data("c10"))], AnalyzeOptions()).flows
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
    gaps = {"up2": [Gap(from_ns, until_ns, "lost")], "up3": [Gap(None, None, "lost")]}
    assert gaps_in(flow, gaps) == (["up2"] if hidden else [])
    found = as_hidden(flow, gaps)
    assert found.missing_packets == (None if hidden else 1)
    assert found.lost_between_taps == (None if hidden else 3)
    assert found.recovered_packets == 2
    assert bool(found.notes[len(flow.notes) :]) == hidden


def test_a_flow_whose_packets_were_all_seen(flow: Flow) -> None:
    whole = structs.replace(
        flow, missing_packets=0, recovered_packets=0, lost_between_taps=None, notes=[]
    )
    assert as_hidden(whole, {"up1": [Gap(120, 130, "lost")]}) is whole


def test_a_session_has_the_gaps_of_the_tap_that_carries_it() -> None:
    gap = Gap(1, 2, "lost")
    taps = Taps([Tap("up1", 1), Tap("up2", 1, gaps=[gap]), Tap("session", 1, carrier=1)])
    assert gaps_of(taps) == {"up2": [gap], "session": [gap]}
