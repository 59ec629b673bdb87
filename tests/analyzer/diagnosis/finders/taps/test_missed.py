"""What one capture missed."""

from __future__ import annotations

from cases import case_of
from conformance_traces import answer, last, write

from rocescope.analyzer.diagnosis.finders.taps.missed import missed_at_one_tap
from rocescope.analyzer.diagnosis.known import Known

SENT = [write(n, at=n, ip_id=n) for n in range(20)]


def found(missing):
    rows = [row for row in SENT if row["psn"] not in missing]
    case = case_of([*rows, last(20, at=20, ip_id=20), answer(20, at=30)])
    return list(missed_at_one_tap(case, Known()))


def test_acknowledged_and_never_seen():
    (one,) = found({7, 8})
    assert (one.kind, one.severity, one.packets, one.of_packets) == (
        "capture-loss", "warning", 2, 21,
    )  # fmt: skip
    assert one.place.capture == "tap"


def test_a_complete_capture():
    assert found(()) == []
