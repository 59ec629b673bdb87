"""One sentence for the whole diagnosis."""

from __future__ import annotations

import pytest
from cases import capture, case_of, table_of
from conformance_traces import last
from factories_results import diagnosis

from rocescope.analyzer.diagnosis.summary import summary
from rocescope.analyzer.results.ended import Ended


def test_the_worst_fault_comes_first():
    loss, note = diagnosis().findings
    case = case_of([last(0)])
    assert summary(case, [loss, note], ["x"]) == loss.sentence
    assert summary(case, [loss, loss, loss], []) == f"{loss.sentence} (and 2 further faults)"


@pytest.mark.parametrize(
    "changes",
    [{"complete": False}, {"captures": [capture(table_of([last(0)]), damaged_places=1)]}],
    ids=["interrupted", "damaged"],
)
def test_what_was_not_read_is_not_cleared(changes):
    case = case_of([last(0)], **changes)
    assert not case.whole
    said = summary(case, [], ["x"])
    assert said == "No fault found in the part that was read: 1 packet of 1 queue pair"


def test_notes_are_no_faults():
    note = diagnosis().findings[1]
    assert (
        summary(case_of([last(0)]), [note], ["x"]) == "No fault found in 1 packet of 1 queue pair"
    )


def test_nothing_checked_is_no_all_clear():
    assert summary(case_of([last(0)]), [], []).startswith("No check")
    assert summary(case_of([]), [], []) == "No RoCE packets: nothing was checked"


def test_ended_flows_in_trouble_are_no_all_clear():
    case = case_of([last(0)])
    case.measuring.ended = Ended(flows=3, queue_pairs=3, packets=9, flows_in_trouble=2)
    assert summary(case, [], ["x"]) == (
        "No fault found in the listed flows; 2 idle flows with anomalies removed from memory:"
        " 10 packets of 4 queue pairs"
    )
