"""Queues, the pauses that make them, and packets that others overtake."""

from __future__ import annotations

import struct
from dataclasses import replace
from types import SimpleNamespace

import msgspec
import pytest
from cases import capture, case_of, table_of
from conformance_traces import NAK, answer, last, write
from fabric_captures import (
    DURATION,
    MS,
    START_NS,
    US,
    Pair,
    address,
    between,
    by_port,
    delay,
    diagnosis,
    flows_hit,
    flows_of,
    no_fault,
    place_of,
    queue,
    severe,
    simulate,
    some,
    tap_of,
    usual_pairs,
    warnings,
)
from fabric_captures import write as write_taps
from msgspec import UNSET

from rocescope.analyzer.diagnosis import diagnose as limits
from rocescope.analyzer.diagnosis.finders.delays import (
    DRAINS,
    late_before,
    made_by,
    pauses,
    slow_path,
    spans_at,
    too_short,
)
from rocescope.analyzer.diagnosis.known import CLOCKS_NS, PAUSED_NS, PRIORITY, Known
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.results.captures import Pause, PauseSpan
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


MSEC = 1_000_000
WINDOW = 2 * MSEC
SLACK = WINDOW + CLOCKS_NS
PAUSES = [(100 * MSEC, 110 * MSEC), (200 * MSEC, 204 * MSEC)]


@pytest.mark.parametrize(
    ("queue", "made"),
    [
        ((100 * MSEC, 110 * MSEC), True),
        ((100 * MSEC - SLACK, 110 * MSEC), True),
        ((99 * MSEC - SLACK, 110 * MSEC), False),  # it was there before
        ((102 * MSEC, 112 * MSEC + 2 * SLACK), True),  # it drains
        ((100 * MSEC, 100 * MSEC + DRAINS * 14 * MSEC), True),
        (
            (100 * MSEC, 106 * MSEC + DRAINS * 20 * MSEC),
            False,
        ),  # something else makes it last
        ((111 * MSEC + SLACK, 150 * MSEC), False),  # after it
        ((200 * MSEC, 204 * MSEC + DRAINS * 4 * MSEC), True),
        ((0, 1000 * MSEC), False),
    ],
)
def test_a_queue_begins_in_a_pause_and_drains_after_it(queue, made):
    assert made_by(PAUSES, queue, WINDOW, 10 * MSEC) == made


@pytest.mark.parametrize("seconds", [1, 60])
@pytest.mark.parametrize(
    ("paused_ns", "wait_ns", "made"),
    [(1_000, 300_000, False), (200_000, 300_000, True), (200_000, 500_000, False)],
)
def test_windows_too_wide_for_a_pause_leave_it_to_the_waits(seconds, paused_ns, wait_ns, made):
    window = seconds * 1000 * MSEC // 128
    queue = 10 * window, 11 * window
    pause = queue[0] + window // 2, queue[0] + window // 2 + paused_ns
    assert too_short(paused_ns, window)
    assert made_by([pause], queue, window, wait_ns) == made


def test_without_pauses():
    assert not made_by([], (0, 1), WINDOW, 0)


def test_pauses_of_a_tap_of_all_priorities():
    rows = [write(0), write(1)]
    one = capture(table_of(rows))
    spans = [[PauseSpan(30, 40)], [PauseSpan(10, 20), PauseSpan(50, 60)], []]
    pauses = [Pause(p, 1, 0, 9, 10, 10, 60, spans=s) for p, s in enumerate(spans)]
    tap = msgspec.structs.replace(one.taps[0], pauses=pauses)
    case = case_of(rows, captures=[msgspec.structs.replace(one, taps=[tap])])
    assert spans_at(case, tap.name) == [(10, 20), (30, 40), (50, 60)]
    assert spans_at(case, "another") == []


@pytest.mark.parametrize(("paused_ns", "said"), [(1_000, 1), (5_000 * MSEC, 0)])
def test_limits_tell_where_windows_are_too_wide(paused_ns, said):
    rows = [write(0), write(1)]
    one = capture(table_of(rows))
    pause = Pause(None, 1, 0, 9, 10.0, 10, 60, spans=[PauseSpan(10, 10 + paused_ns)])
    tap = msgspec.structs.replace(one.taps[0], pauses=[pause])
    case = case_of(rows, captures=[msgspec.structs.replace(one, taps=[tap])])
    case = replace(case, tap_hops=SimpleNamespace(window_ns=470 * MSEC))
    lines = [line for line in limits._pauses(case) if "in steps of 470 ms" in line]
    assert len(lines) == said


SPINE = (NEAR, FAR, "spine2", "leaf1 to leaf2")
FROM, UNTIL = 100 * MS, 200 * MS
ONE_WINDOW = 4 * MS
"""400 ms in at most 128 windows of a power of two of 1 ms."""


def sprayed(packet, now):
    """Another spine for every packet, in no fixed order."""
    return 1 + (packet.ip_id * 2654435761 >> 7) % 4


def overtaken_at(run, tap):
    """Requests that come to a tap after a packet of their flow with the same or a higher PSN."""
    highest, late = {}, set()
    for seen in run.taps[tap]:
        packet = seen.packet
        flow = (packet.src, packet.dst, packet.dest_qp)
        if packet.payload_bytes and highest.get(flow, -1) >= packet.psn:
            late.add(packet)
        highest[flow] = max(highest.get(flow, -1), packet.psn)
    return late


def overtaken_between(run, near, far):
    """The flows of the packets that became late between two taps."""
    late = overtaken_at(run, far) - overtaken_at(run, near)
    return [(address(p.src), address(p.dst), p.dest_qp) for p in late]


@pytest.mark.thorough
@pytest.mark.parametrize("ipv6", [False, True])
@pytest.mark.parametrize("bits", [12e6, 18e6])
def test_a_queue_without_loss(tmp_path, bits, ipv6):
    run = simulate(fault=queue(NEAR, FAR, bits, FROM, UNTIL))
    (one,) = severe(tmp_path, run, ipv6)
    assert (one.kind, place_of(one)) == ("queueing", SPINE)
    assert flows_of(one) == flows_hit(run.hits, ipv6)
    assert abs(one.from_ns - START_NS - FROM) <= ONE_WINDOW
    assert abs(one.until_ns - run.hits[-1].time_ns) <= ONE_WINDOW
    entered = [s for s in run.taps[NEAR] if s.packet.src < 3]
    assert one.packets == len(entered)


def test_a_queue_at_the_port_of_a_host_is_one_finding(tmp_path):
    """Four links lead to it."""
    run = simulate(fault=queue("leaf2-spine*", "H4-leaf2", 10e6, FROM, UNTIL))
    (one,) = severe(tmp_path, run)
    assert (one.kind, place_of(one)) == ("queueing", (None, "H4-leaf2", "leaf2", None))
    # A link with less than a hundred packets is not judged.
    busy = [hit for hit in run.hits if hit.packet.payload_bytes]
    assert flows_hit(busy) <= flows_of(one) <= flows_hit(run.hits)


def test_one_pause_frame_at_another_time_explains_no_queue(tmp_path):
    run = simulate(fault=queue(NEAR, FAR, 12e6, FROM, UNTIL))
    paths = write_taps(tmp_path, run.taps)
    (far,) = (path for path in paths if path.name == f"{FAR}.pcap")
    frame = bytes.fromhex("0180c2000001 020000000001 8808 0101 0001") + b"\0\1" + bytes(42)
    record = struct.pack("<IIII", START_NS // 10**9, START_NS % 10**9, len(frame), len(frame))
    data = far.read_bytes()
    far.write_bytes(data[:24] + record + frame + data[24:])
    pause, one = sorted(warnings(diagnosis(paths)), key=lambda f: f.from_ns)
    assert (pause.kind, pause.packets) == ("pause", 1)
    assert (one.kind, place_of(one)) == ("queueing", SPINE)
    assert flows_of(one) == flows_hit(run.hits)


def test_what_a_queue_releases_is_no_second_queue(tmp_path):
    """A burst after the queue waits a little for the host's link."""
    slow = queue(NEAR, FAR, 12e6, FROM, UNTIL)
    short = queue("leaf2-spine2", "H3-leaf2", 200e6)

    def both(packet, near, far, now):
        return slow(packet, near, far, now) or short(packet, near, far, now)

    (one,) = severe(tmp_path, simulate(fault=both))
    assert place_of(one) == SPINE


@pytest.mark.parametrize("ns", [100_000, 150_000])
def test_short_queues_are_no_finding(tmp_path, ns):
    run = simulate(fault=between(NEAR, FAR, delay(ns), FROM, which=some(0.1)))
    assert severe(tmp_path, run) == []


def test_packets_that_overtake_on_one_hop(tmp_path):
    """The delayed packets let the receiver ask for retransmission."""
    run = simulate(fault=between(NEAR, FAR, delay(3 * MS), FROM, UNTIL, some(0.2)))
    late = overtaken_between(run, NEAR, FAR)
    (one,) = severe(tmp_path, run)
    assert (one.kind, place_of(one)) == ("reordering", SPINE)
    assert one.packets == len(late)
    assert flows_of(one) == set(late) <= flows_hit(run.hits)
    assert 0 <= one.from_ns - run.hits[0].time_ns < 5 * MS
    assert run.hits[0].time_ns <= one.from_ns <= one.until_ns <= run.hits[-1].time_ns


def test_a_path_of_sprayed_flows_gets_slow(tmp_path):
    run = simulate(fault=between(NEAR, FAR, delay(2 * MS), FROM, DURATION), route=sprayed)
    (one,) = severe(tmp_path, run)
    assert (one.kind, place_of(one)) == ("delay-step", SPINE)
    assert abs(one.from_ns - START_NS - FROM) <= ONE_WINDOW
    assert flows_of(one) >= flows_hit(run.hits)


@pytest.mark.parametrize("ns", [150 * US, 360 * US, 1300 * US])
@pytest.mark.parametrize("until", [DURATION, 280 * MS], ids=["to the end", "for a while"])
@pytest.mark.parametrize("bursts", [False, True], ids=["steady", "bursts"])
def test_a_step_of_the_minimum_delay(ns, until, bursts, tmp_path):
    """Queues of bursts may be a finding of their own."""
    many = [
        Pair(1 + n % 2, 3, 0x300 + n, 50_001 + n, start=begin, stop=begin + 20 * MS, gap=15 * US)
        for n, begin in enumerate(range(5 * MS, DURATION, 50 * MS))
    ]
    waiting = queue(NEAR, FAR, 500e6) if bursts else no_fault
    step = between(NEAR, FAR, delay(ns), FROM, until)

    def fault(*packet):
        later = step(*packet)
        return later and [(one, ns + more) for one, more in waiting(*packet) or [(packet[0], 0)]]

    run = simulate(
        usual_pairs() + many * bursts,
        lambda *packet: fault(*packet) or waiting(*packet),
        lambda packet, now: 2 if 50_000 < packet.sport < 50_010 else by_port(packet, now),
    )
    (one,) = [one for one in severe(tmp_path, run) if one.kind != "queueing" or not bursts]
    assert (one.kind, place_of(one)) == ("delay-step", SPINE)
    assert one.details["step_ns"] == pytest.approx(ns, abs=20 * US)
    onset = START_NS + FROM
    assert one.from_ns - one.onset_uncertainty_ns <= onset + US and one.from_ns >= onset - US
    assert one.from_ns - onset <= ONE_WINDOW
    if until == DURATION:
        assert one.until_ns is None
    else:
        assert abs(one.until_ns - START_NS - until) <= 2 * ONE_WINDOW
    assert one.packets == one.of_packets


def test_a_step_in_both_directions_of_a_device_is_one_finding(tmp_path):
    run = simulate(fault=between("*-spine2", "*-spine2", delay(300 * US), 200 * MS))
    (one,) = severe(tmp_path, run)
    assert (one.kind, place_of(one)) == ("delay-step", (None, None, "spine2", None))


@pytest.mark.parametrize("ns", [80 * US, 300 * US])
def test_a_clock_that_jumps_is_no_step_of_a_delay(ns, tmp_path):
    run = simulate()
    run.taps[NEAR] = [
        seen._replace(time_ns=seen.time_ns + ns * (seen.time_ns > START_NS + 200 * MS))
        for seen in run.taps[NEAR]
    ]
    found = diagnosis(write_taps(tmp_path, run.taps)).findings
    # A jump this small looks like a drift, which no finding reports.
    assert {one.kind for one in found} == ({"clock"} if ns > 100_000 else set())


def set_back(run, tap, ns):
    """The clock of one tap is behind the others."""
    run.taps[tap] = [seen._replace(time_ns=seen.time_ns - ns) for seen in run.taps[tap]]
    return run


@pytest.mark.parametrize("clock_ns", [0, 400 * US, -400 * US])
def test_a_device_that_is_always_slower_than_those_parallel_to_it(clock_ns, tmp_path):
    """The delays of both directions show it, whatever the clocks."""
    run = set_back(simulate(fault=between(NEAR, FAR, delay(600 * US))), FAR, clock_ns)
    (one,) = severe(tmp_path, run)
    assert (one.kind, one.place.device) == ("delay-step", "spine2")
    assert flows_of(one) >= flows_hit(run.hits)
    assert (one.from_ns <= run.hits[0].time_ns, one.until_ns) == (True, None)
    if clock_ns == 0:
        assert place_of(one) == SPINE
        assert one.details["step_ns"] == pytest.approx(600 * US, abs=20 * US)
        assert one.packets == len(run.hits)


def test_a_device_that_is_always_slower_in_both_directions(tmp_path):
    run = simulate(fault=between("*-spine2", "*-spine2", delay(300 * US)))
    (one,) = severe(tmp_path, run)
    assert (one.kind, place_of(one)) == ("delay-step", (None, None, "spine2", None))
    assert "both directions together" in one.sentence
    assert one.details["step_ns"] == pytest.approx(600 * US, abs=20 * US)


@pytest.mark.parametrize("ns", [90 * US, 900 * US])
def test_a_clock_that_differs_is_no_slow_device(ns, tmp_path):
    assert severe(tmp_path, set_back(simulate(), NEAR, ns)) == []
    assert severe(tmp_path, set_back(simulate(), FAR, ns)) == []


def test_without_the_other_direction_a_clock_may_differ(tmp_path):
    """Nothing tells the delay of a device from the difference of two clocks."""
    run = simulate(fault=between(NEAR, FAR, delay(600 * US)))
    taps = {tap: [s for s in seen if s.packet.src in (1, 2)] for tap, seen in run.taps.items()}
    assert warnings(diagnosis(write_taps(tmp_path, taps))) == []


def test_other_flows_over_a_longer_way_are_no_step_of_a_delay(tmp_path):
    """Without the taps behind the spines, a hop has several ways."""
    near = [Pair(1, 3, 0x100 + n, 50_000 + n, stop=200 * MS) for n in range(4)]
    far = [Pair(1, 3, 0x200 + n, 51_000 + n, gap=3 * MS) for n in range(4)]
    slow = between("leaf1-spine3", "*", delay(400 * US))
    run = simulate(near + far, slow, lambda packet, now: 2 if packet.sport < 51_000 else 3)
    taps = {tap: run.taps[tap] for tap in ("H1-leaf1", "H3-leaf2")}
    assert warnings(diagnosis(write_taps(tmp_path, taps))) == []


@pytest.mark.parametrize("clock_ns", [0, 900 * US])
def test_a_path_of_sprayed_flows_that_was_always_slow(clock_ns, tmp_path):
    """Its least delay is long too; the late packets tell, and there and back the clocks cancel."""
    run = simulate(fault=between(NEAR, FAR, delay(2 * MS)), route=sprayed)
    slow = {s.packet for s in run.taps[FAR] if s.packet.src < 3}
    (one,) = severe(tmp_path, set_back(run, NEAR, clock_ns) if clock_ns else run)
    assert (one.kind, place_of(one)) == ("reordering", SPINE)
    assert "spine2 delays them by 2 ms more than parallel devices" in one.sentence
    assert one.packets <= len(slow)


def test_without_the_way_back_a_slow_path_has_no_device(tmp_path):
    run = simulate(fault=between(NEAR, FAR, delay(2 * MS)), route=sprayed)
    taps = {tap: [s for s in seen if s.packet.src in (1, 2)] for tap, seen in run.taps.items()}
    found = [f for f in diagnosis(write_taps(tmp_path, taps)).findings if f.kind == "reordering"]
    assert [place_of(one) for one in found] == [(FAR, None, "leaf2", None)]
    assert "most over leaf2-spine2" in found[0].sentence


def test_sprayed_flows_on_equal_paths_are_a_note(tmp_path):
    run = simulate(route=sprayed)
    found = diagnosis(write_taps(tmp_path, run.taps))
    assert warnings(found) == []
    assert [one.kind for one in found.findings] == ["spraying"]


BEGIN = [write(n, at=n, ip_id=n) for n in range(20)]
LATE = [*BEGIN, last(21, at=21, ip_id=21), write(20, at=22, ip_id=20), answer(21, at=30)]
HURT = [
    *BEGIN,
    write(21, at=21, ip_id=21),
    write(20, at=22, ip_id=20),
    answer(21, NAK, at=30),
    write(21, at=80, ip_id=22),
    last(22, at=81, ip_id=23),
    answer(22, at=90),
]


def found_late(rows, **changes):
    return list(late_before(case_of(rows, **changes), Known()))


def test_a_tolerated_late_packet_is_a_note():
    (one,) = found_late(LATE)
    assert (one.kind, one.severity, one.packets) == ("reordering", "note", 1)
    assert one.place.to_tap == "tap"
    assert "are overtaken before the tap" in one.sentence


def test_one_that_causes_retransmissions_is_a_warning():
    (one,) = found_late(HURT)
    assert one.severity in ("warning", "critical")


def test_where_other_paths_have_no_tap_a_retransmission_looks_late():
    case = case_of(HURT)
    (flow,) = (flow for flow in case.flows if flow.reordered_packets)
    in_part = [
        msgspec.structs.replace(each, missing_packets=None if each is flow else 0)
        for each in case.flows
    ]
    assert list(late_before(replace(case, flows=in_part), Known())) == []


def test_a_capture_out_of_order_may_be_the_cause():
    disordered = capture(table_of(HURT), out_of_order_frames=1)
    (one,) = found_late(HURT, captures=[disordered])
    assert one.severity == "note"


def test_in_order_packets_are_no_finding():
    assert found_late([*BEGIN, last(20, at=20)]) == []


def sprayed_late(slow_every):
    """Ports 1 to 4 in turn; every `slow_every`th packet of port 4 comes 3 packets later."""
    rows = [write(n, at=10 * n, ip_id=n, udp_sport=50000 + n % 4) for n in range(400)]
    for row in rows:
        if row["psn"] % (4 * slow_every) == 3:
            row["at"] += 35
    return sorted(rows, key=lambda row: row["at"])


def test_the_slow_source_port_is_named():
    case = case_of(sprayed_late(2))
    slow = slow_path(list(case.flows))
    assert slow.name == "source port 50003"
    (one,) = late_before(case, Known())
    assert "source port 50003" in one.sentence
    assert one.packets == 50


def test_even_lateness_names_no_path():
    rows = [write(n, at=10 * n, ip_id=n, udp_sport=50000 + n % 4) for n in range(400)]
    for row in rows:
        row["at"] += 35 if row["psn"] % 7 == 3 else 0
    case = case_of(sorted(rows, key=lambda row: row["at"]))
    assert slow_path(list(case.flows)) is None
