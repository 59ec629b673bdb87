"""Duplicates of the network, and captures that see everything twice."""

from __future__ import annotations

from cases import case_of
from conformance_traces import write

from rocescope.analyzer.diagnosis.finders.taps.copies import copies_before
from rocescope.analyzer.diagnosis.known import Known

ROWS = [write(n, at=10 * n, ip_id=n) for n in range(50)]


def found(copies):
    rows = [*ROWS, *(ROWS[n] | {"at": 10 * n + 3} for n in copies)]
    return list(copies_before(case_of(sorted(rows, key=lambda row: row["at"])), Known()))


def test_a_few_copies():
    (one,) = found([30, 40])
    assert (one.kind, one.severity, one.packets, one.of_packets) == (
        "duplication", "warning", 2, 52,
    )  # fmt: skip
    assert one.cost_ns == 0
    assert one.place.direction == "before the tap"


def test_everything_twice_is_the_capture():
    (one,) = found(range(50))
    assert one.severity == "note"
    assert one.place.capture == "tap"
    assert "twice" in one.sentence


def test_a_retransmission_is_no_copy():
    rows = [*ROWS, ROWS[40] | {"at": 10**4, "ip_id": 70}]
    assert list(copies_before(case_of(rows), Known())) == []
