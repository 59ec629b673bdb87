"""Many findings of one kind."""

from __future__ import annotations

import msgspec
import pytest
from cases import case_of
from conformance_traces import answer, last, write
from factories_results import diagnosis

from rocescope.analyzer.diagnosis.alike import MOST_ALIKE, bounded
from rocescope.analyzer.results.diagnosis import Place

CASE = case_of([write(0), last(1), answer(1)])
LOSS, NOTE = diagnosis().findings


def losses(count):
    """Findings of 2 of 10 packets each, between eth0 and eth1, eth1 and eth2, ..."""
    return [
        msgspec.structs.replace(
            LOSS,
            place=Place(from_tap=f"eth{n}", to_tap=f"eth{n + 1}"),
            flows=[0],
            affected=[],
            packets=2,
            of_packets=10,
            from_ns=100 + n,
            until_ns=1000 + n,
        )
        for n in range(count)
    ]


@pytest.mark.parametrize("count", [0, 1, MOST_ALIKE])
def test_few_findings_stay(count):
    found = [*losses(count), NOTE]
    assert bounded(CASE, found) == found


@pytest.mark.parametrize("count", [MOST_ALIKE + 1, 2000])
def test_the_worst_stay_and_the_others_are_one(count):
    found = losses(count)
    kept = bounded(CASE, [*found, NOTE])
    assert kept[: MOST_ALIKE - 1] == found[: MOST_ALIKE - 1]
    *_, rest, note = kept
    assert len(kept) == MOST_ALIKE + 1 and note == NOTE
    left = count - MOST_ALIKE + 1
    assert (rest.kind, rest.severity, rest.place) == ("loss", LOSS.severity, Place())
    assert (rest.packets, rest.of_packets) == (2 * left, 10 * left)
    assert (rest.from_ns, rest.until_ns) == (100 + MOST_ALIKE - 1, 1000 + count - 1)
    assert rest.flows == [0]
    assert rest.details["findings"] == left
    assert "eth19 > eth20" in rest.sentence and f"loss at {left:,} more places" in rest.sentence
    assert len(rest.evidence) <= 20


def test_severities_are_counted_apart_and_one_that_goes_on_goes_on():
    found = losses(MOST_ALIKE)
    other = [msgspec.structs.replace(one, severity="note") for one in found]
    assert len(bounded(CASE, [*found, *other])) == 2 * MOST_ALIKE
    on = [msgspec.structs.replace(one, until_ns=None) for one in losses(MOST_ALIKE + 1)]
    assert bounded(CASE, on)[-1].until_ns is None
