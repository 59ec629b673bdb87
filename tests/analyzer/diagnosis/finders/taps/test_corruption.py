"""Wrong ICRCs."""

from __future__ import annotations

from cases import capture, case_of, table_of
from conformance_traces import write

from rocescope.analyzer.diagnosis.finders.taps.corruption import corrupt_packets
from rocescope.analyzer.diagnosis.known import Known
from rocescope.analyzer.wire.packets import ICRC_BAD, ICRC_OK


def found(bad, of=40):
    rows = [write(n, icrc_state=ICRC_BAD if n < bad else ICRC_OK) for n in range(of)]
    counts = {"ok": of - bad, "bad": bad, "truncated": 0}
    one = capture(table_of(rows), icrc=counts)
    return list(corrupt_packets(case_of(rows, captures=[one]), Known()))


def test_a_few_wrong_ones():
    (one,) = found(2)
    assert (one.kind, one.severity, one.packets, one.of_packets) == ("corruption", "warning", 2, 40)
    assert one.place.to_tap == "tap"
    assert [e.frame_number for e in one.evidence] == [1, 2]


def test_mostly_wrong_is_the_capture():
    (one,) = found(30)
    assert (one.severity, one.place.capture) == ("note", "tap")


def test_all_right():
    assert found(0) == []
