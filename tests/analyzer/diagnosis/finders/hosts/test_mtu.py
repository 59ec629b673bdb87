"""MTUs that do not fit."""

from __future__ import annotations

from cases import capture, case_of, table_of
from conformance_traces import answer, last, write

from rocescope.analyzer.diagnosis.finders.hosts.mtu import fragments, mtu_mismatches
from rocescope.analyzer.diagnosis.known import Known
from rocescope.analyzer.wire.packets import FIRST_FRAGMENT


def back(psn, size):
    """A WRITE of the other queue pair."""
    return {
        "psn": psn, "src": 1, "dst": 0, "dest_qp": 0x12, "opcode": 0x07, "payload_bytes": size,
    }  # fmt: skip


def test_two_path_mtus_in_one_connection():
    rows = [write(0), last(1), answer(1), back(500, 4096), back(501, 4096)]
    (one,) = mtu_mismatches(case_of(rows), Known())
    assert (one.kind, one.severity, one.flows) == ("mtu-mismatch", "warning", [0, 1])
    assert "path MTUs 1024 and 4096" in one.sentence
    rows = [write(0), last(1), answer(1), back(500, 1024)]
    assert list(mtu_mismatches(case_of(rows), Known())) == []


def test_packets_that_come_in_fragments():
    rows = [write(0), write(1, decode_flags=FIRST_FRAGMENT), last(2), answer(2)]
    (one,) = fragments(case_of(rows), Known())
    assert (one.kind, one.packets, one.flows) == ("mtu-mismatch", 1, [0])
    assert one.place.to_tap == "tap"
    assert one.evidence[0].frame_number == 2
    assert (
        "1 of 3 packets from 10.0.0.1 to 10.0.0.2 are IP fragments before the tap" in one.sentence
    )


def test_fragments_of_other_traffic_tell_nothing():
    rows = [write(0), last(1), answer(1)]
    cut = capture(table_of(rows), later_fragments=3)
    assert list(fragments(case_of(rows, captures=[cut]), Known())) == []
