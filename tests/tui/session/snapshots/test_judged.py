"""The diagnosis as screens need it."""

from __future__ import annotations

import factories_results as factories
from msgspec.structs import replace

from rocescope.analyzer.results.diagnosis import Diagnosis
from rocescope.tui.session.snapshots.judged import STALLED, Judged

LOSS, SPRAYING = factories.diagnosis().findings


def judged(*findings):
    diagnosis = Diagnosis("", list(findings), [], [])
    return Judged.of(factories.analysis(diagnosis=diagnosis), True)


def test_the_worst_finding_of_a_flow_is_its_state():
    found = judged(LOSS, SPRAYING, replace(SPRAYING, flows=[2, 4]))
    assert found.states == {2: (2, "loss"), 0: (1, "spraying"), 4: (1, "spraying")}
    assert found.ranks(4).tolist() == [1, 0, 2, 0]


def test_stalled_is_the_worst_state_and_has_a_name_of_its_own():
    stalled = replace(LOSS, kind="stalled", severity="warning")
    critical = replace(LOSS, kind="blackhole", severity="critical")
    assert judged(critical, stalled).states[2] == (4, STALLED)


def test_without_an_analysis_there_is_a_reason():
    nothing = Judged()
    assert nothing.diagnosis is None and nothing.why and not nothing.final
    assert not nothing.findings and nothing.ranks(3).tolist() == [0, 0, 0]
