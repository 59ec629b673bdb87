"""Pause frames."""

from __future__ import annotations

import msgspec
import pytest
from cases import capture, case_of, table_of
from conformance_traces import write

from rocescope.analyzer.diagnosis.finders.taps.pause import pauses
from rocescope.analyzer.diagnosis.known import Known
from rocescope.analyzer.results.captures import Pause

ROWS = [write(0, at=0), write(1, at=1000)]  # 1 ms


def found(*pauses_seen):
    one = capture(table_of(ROWS))
    tap = msgspec.structs.replace(one.taps[0], pauses=list(pauses_seen))
    case = case_of(ROWS, captures=[msgspec.structs.replace(one, taps=[tap])])
    return list(pauses(case, Known()))


@pytest.mark.parametrize(
    ("paused_ns", "severity"),
    [(5_000.0, "note"), (50_000.0, "warning"), (600_000.0, "critical"), (None, "warning")],
)
def test_severity_by_the_time_paused(paused_ns, severity):
    (one,) = found(Pause(3, 10, 4, 600, paused_ns))
    assert (one.kind, one.severity, one.packets) == ("pause", severity, 6)
    assert "priority 3 at tap is paused by 6 frames" in one.sentence


def test_resume_frames_alone_pause_nothing():
    assert found(Pause(3, 4, 4, 0, 0.0)) == []


def test_global_pause():
    (one,) = found(Pause(None, 1, 0, 600, None))
    assert "the link at tap" in one.sentence
