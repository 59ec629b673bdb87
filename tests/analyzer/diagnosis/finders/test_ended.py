"""Losses of flows that were removed from memory are found, and there is no all-clear beside
them."""

from __future__ import annotations

import pytest
from cases import case_of
from conformance_traces import answer, last, write
from traffic import START_NS

from rocescope.analyzer.diagnosis.diagnose import diagnose
from rocescope.analyzer.results.ended import Ended
from rocescope.report.words.diagnosis import place, reaches

CLEAN = [write(0), last(1), answer(1)]


def with_ended(**sums):
    case = case_of(CLEAN)
    case.measuring.ended = Ended(
        flows=1200, queue_pairs=1200, packets=36_000, request_packets=36_000,
        first_time_ns=START_NS - 1_000_000, last_time_ns=START_NS, **sums,
    )  # fmt: skip
    return diagnose(case)


@pytest.mark.parametrize("field", ["recovered_packets", "lost_between_taps"])
def test_their_losses_are_a_warning(field):
    found = with_ended(flows_in_trouble=1200, **{field: 1200})
    (loss,) = found.findings
    assert (loss.kind, loss.severity, loss.packets, loss.flows) == ("loss", "warning", 1200, [])
    assert (loss.from_ns, loss.until_ns) == (START_NS - 1_000_000, START_NS)
    assert "of 1,200 flows that were idle and were removed from memory are lost" in loss.sentence
    assert found.summary == loss.sentence
    assert reaches(found, "warning")
    assert place(loss.place) == ""
    assert not any("lost" in claim for claim in found.healthy)


def test_flows_that_left_without_trouble_are_no_finding():
    found = with_ended()
    assert found.findings == []
    assert found.summary == "No fault found in 36,003 packets of 1,201 queue pairs"
