"""Pause frames."""

from __future__ import annotations

import struct

import msgspec
import pytest
from cases import capture, case_of, table_of
from conformance_traces import write
from fabric_captures import (
    MS,
    START_NS,
    flows_hit,
    flows_of,
    queue,
    simulate,
    tap_of,
    warnings,
)
from fabric_captures import write as write_taps
from msgspec import UNSET

from rocescope.analyzer.diagnosis.finders.taps.pause import pauses
from rocescope.analyzer.diagnosis.known import CLOCKS_NS, PAUSED_NS, PRIORITY, Known
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.results.captures import Pause
from rocescope.analyzer.results.diagnosis import Place

NEAR, FAR = "leaf1-spine2", "leaf2-spine2"
ROWS = [write(0, at=0), write(1, at=1000)]  # 1 ms
FIRST_NS = case_of(ROWS).first_ns
TIMES = FIRST_NS + 100_000, FIRST_NS + 200_000


def found(*pauses_seen):
    one = capture(table_of(ROWS))
    tap = msgspec.structs.replace(one.taps[0], pauses=list(pauses_seen))
    case = case_of(ROWS, captures=[msgspec.structs.replace(one, taps=[tap])])
    return list(pauses(case, Known()))


@pytest.mark.parametrize(
    ("paused_ns", "severity"),
    [(5_000, "note"), (50_000, "warning"), (600_000, "critical"), (None, "warning")],
)
def test_severity_by_the_time_paused(paused_ns, severity):
    (one,) = found(Pause(3, 10, 4, 600, paused_ns, *TIMES))
    assert (one.kind, one.severity, one.packets) == ("pause", severity, 6)
    assert "priority 3 at the tap is paused by 6 frames" in one.sentence


def test_resume_frames_alone_pause_nothing():
    assert found(Pause(3, 4, 4, 0, 0, None, None)) == []


def test_global_pause():
    (one,) = found(Pause(None, 1, 0, 600, None, *TIMES))
    assert "the link at the tap" in one.sentence


def test_it_begins_and_ends_with_the_frames_that_pause():
    (one,) = found(Pause(3, 11, 0, 600, 5_000, *TIMES))  # a frame every 10 us
    assert (one.from_ns, one.until_ns) == TIMES


def test_a_known_length_is_in_the_details():
    (known,), (unknown,) = (found(Pause(3, 9, 0, 600, ns, *TIMES)) for ns in (50_000, None))
    assert known.details == {PAUSED_NS: 50_000, PRIORITY: 3}
    assert unknown.details == {PRIORITY: 3}
    (whole_link,) = found(Pause(None, 1, 0, 600, None, *TIMES))
    assert whole_link.details is UNSET


def test_it_explains_no_queue_after_it():
    (one,) = found(Pause(3, 9, 0, 600, 50_000, *TIMES))
    known, place = Known([one]), Place(from_tap="before", to_tap="tap")
    assert known.queue_at(place, [0], TIMES)
    later = TIMES[1] + CLOCKS_NS + 1
    assert not known.queue_at(place, [0], (later, later + 10**9))


def odd_queue_pair(run):
    """The lowest queue pair of the packets that wait."""
    return min(hit.packet.dest_qp for hit in run.hits)


def paused(tmp_path, pauses_ms, *, queue_ms=(100, 160), quanta=0xFFFF, mapping=None, another=None):
    """A queue on a hop, and a link of 1 Gb/s that is paused for some times; the findings.

    mapping: `dscp_priority`. another: traffic class of one queue pair; the others have DSCP 26.
    """
    run = simulate(fault=queue(NEAR, FAR, 2e6, queue_ms[0] * MS, queue_ms[1] * MS))
    number = odd_queue_pair(run)
    for seen in run.taps.values() if another is not None else ():
        seen[:] = [
            one._replace(packet=one.packet._replace(tos=another))
            if one.packet.dest_qp == number
            else one
            for one in seen
        ]
    paths = write_taps(tmp_path, run.taps)
    (far,) = (path for path in paths if path.name == f"{FAR}.pcap")
    data, records = far.read_bytes(), b""
    for begin, end in pauses_ms:
        for at in [*range(begin * MS, end * MS, 20 * MS), end * MS]:
            head = bytes.fromhex("0180c2000001 020000000001 8808 0101 0008") + bytes(6)
            frame = (head + struct.pack(">H", quanta * (at < end * MS))).ljust(60, b"\0")
            time = START_NS + at
            stamp = struct.pack("<IIII", time // 10**9, time % 10**9, len(frame), len(frame))
            records += stamp + frame
    far.write_bytes(data[:24] + records + data[24:])
    options = AnalyzeOptions(link_rate_bits_per_second=10**9, dscp_priority=mapping or {})
    found = analyze([str(path) for path in paths], options).diagnosis
    return found, run


def test_it_names_the_queue_pairs_that_wait_and_its_frames(tmp_path):
    found, run = paused(tmp_path, [(100, 160)])
    (one,) = warnings(found)
    assert (one.kind, tap_of(one.place.to_tap)) == ("pause", FAR)
    assert flows_of(one) == flows_hit(run.hits)
    assert one.sentence.endswith(f"; {one.queue_pairs} of 16 QPs")
    assert [(tap_of(e.tap), e.frame_number) for e in one.evidence] == [(FAR, 1), (FAR, 3)]
    assert any("priority of DSCP 26 in the switches is unknown" in line for line in found.limits)


def test_a_pause_explains_no_queue_of_another_priority(tmp_path):
    """The frames pause priority 3, that of DSCP 26 where nothing else is known."""
    found, run = paused(tmp_path, [(100, 160)], mapping={26: 4})
    kinds = {one.kind: one for one in warnings(found)}
    assert kinds.keys() == {"pause", "queueing"}
    assert not kinds["pause"].affected
    assert flows_of(kinds["queueing"]) == flows_hit(run.hits)
    assert not any("--dscp-priority" in line for line in found.limits)


def test_each_priority_waits_for_its_own_reason(tmp_path):
    """One flow has another priority than the pause, and waits as long."""
    found, run = paused(tmp_path, [(100, 160)], another=8 << 2)
    kinds = {one.kind: one for one in warnings(found)}
    assert kinds.keys() == {"pause", "queueing", "dscp-mismatch"}
    number = odd_queue_pair(run)
    held = [hit for hit in run.hits if hit.packet.dest_qp != number]
    others = [hit for hit in run.hits if hit.packet.dest_qp == number]
    assert flows_of(kinds["pause"]) == flows_hit(held)
    assert flows_of(kinds["queueing"]) == flows_hit(others)


def test_a_pause_explains_no_queue_while_the_link_is_free(tmp_path):
    """Pauses before and after it."""
    found, run = paused(tmp_path, [(0, 20), (380, 390)])
    kinds = {one.kind: one for one in warnings(found)}
    assert kinds.keys() == {"pause", "queueing"}
    assert not kinds["pause"].affected
    assert flows_of(kinds["queueing"]) == flows_hit(run.hits)


def test_it_goes_on_at_the_end():
    times = FIRST_NS + 100_000, FIRST_NS + 960_000
    (one,) = found(Pause(3, 11, 0, 600, 5_000, *times))
    assert (one.from_ns, one.until_ns) == (times[0], None)
