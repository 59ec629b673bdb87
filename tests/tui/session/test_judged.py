"""The diagnosis as screens need it."""

from __future__ import annotations

from dataclasses import fields
from dataclasses import replace as replace_columns

import factories_results as factories
import numpy as np
from msgspec.structs import replace

from rocescope.analyzer.results.diagnosis import Diagnosis
from rocescope.tui.session.columns import with_hops
from rocescope.tui.session.judged import STALLED, Judged
from rocescope.tui.session.snapshot import UNKNOWN, FlowColumns

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


def test_what_befell_packets_after_their_first_tap_is_added():
    flows = replace_columns(
        FlowColumns.none(),
        **{f.name: np.zeros(3, np.int64) for f in fields(FlowColumns)},
    )
    first = replace_columns(
        flows, late=np.array([2, UNKNOWN, UNKNOWN]), ecn_marked=np.array([0, 1, 0])
    )
    judged = Judged(late={0: 5, 1: 4}, lost={2: 7, 9: 1}, marked={1: 3})
    found = with_hops(first, judged)
    assert found.late.tolist() == [7, 4, UNKNOWN]
    assert found.recovered.tolist() == [0, 0, 7]
    assert found.ecn_marked.tolist() == [0, 3, 0]
    assert first.late.tolist() == [2, UNKNOWN, UNKNOWN]
