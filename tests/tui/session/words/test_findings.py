"""The first line of the diagnosis screen."""

from __future__ import annotations

from dataclasses import replace

import factories_results as factories
import numpy as np

from rocescope.analyzer.results.diagnosis import Diagnosis
from rocescope.tui.session.snapshots.judged import Judged
from rocescope.tui.session.snapshots.snapshot import FlowColumns, Snapshot, SourceState
from rocescope.tui.session.words.findings import summary


def said(diagnosis, final=True):
    """The line over a session of one flow and 9 packets."""
    columns = FlowColumns.none()
    one = replace(columns, qp=np.zeros(1, np.uint32))
    judged = Judged.of(factories.analysis(diagnosis=diagnosis), final)
    return summary(Snapshot(SourceState("a", "capture", packets=9), flows=one, judged=judged))


def test_findings_are_counted_and_the_worst_is_told():
    assert said(factories.diagnosis()).startswith("1 warning, 1 note: spine2 drops 0.9 %")
    assert said(factories.diagnosis(), False).startswith("So far: 1 warning, 1 note: ")


def test_no_finding_is_no_all_clear_without_a_check():
    assert said(Diagnosis("", [], [], [])) == (
        "No finding in 9 packets, but no check covers this traffic."
    )
    assert said(Diagnosis("", [], [], []), final=False) == (
        "So far: no finding in 9 packets, but no check is complete."
    )
    assert said(Diagnosis("", [], ["12 hops: no loss"], [])) == (
        "No finding in 9 packets; what was checked is below."
    )


def test_a_session_without_diagnosis_says_why():
    assert summary(Snapshot(SourceState("a", "capture"))) == "Waiting for the first RoCE packet."
    seen = replace(FlowColumns.none(), qp=np.zeros(1, np.uint32))
    line = summary(Snapshot(SourceState("a", "capture"), flows=seen))
    assert line == "The diagnosis is not ready yet."
