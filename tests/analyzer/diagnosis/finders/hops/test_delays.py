"""Queues, packets that overtake others, and slow parallel paths."""

from __future__ import annotations

import struct

import pytest
from fabric_captures import (
    DURATION,
    MS,
    START_NS,
    address,
    between,
    delay,
    diagnosis,
    flows_hit,
    flows_of,
    place_of,
    queue,
    severe,
    simulate,
    some,
    warnings,
    write,
)

NEAR, FAR = "leaf1-spine2", "leaf2-spine2"
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
    paths = write(tmp_path, run.taps)
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
    assert (one.kind, place_of(one)) == ("queueing", SPINE)
    assert abs(one.from_ns - START_NS - FROM) <= ONE_WINDOW
    assert flows_of(one) >= flows_hit(run.hits)


def test_a_path_of_sprayed_flows_that_was_always_slow(tmp_path):
    """Its least delay is long too; the late packets tell."""
    run = simulate(fault=between(NEAR, FAR, delay(2 * MS)), route=sprayed)
    (one,) = severe(tmp_path, run)
    assert (one.kind, place_of(one)) == ("reordering", (FAR, None, "leaf2", None))
    assert "most over leaf2-spine2" in one.sentence
    slow = {s.packet for s in run.taps[FAR] if s.packet.src < 3}
    assert one.packets <= len(slow)


def test_sprayed_flows_on_equal_paths_are_a_note(tmp_path):
    run = simulate(route=sprayed)
    found = diagnosis(write(tmp_path, run.taps))
    assert warnings(found) == []
    assert [one.kind for one in found.findings] == ["spraying"]
