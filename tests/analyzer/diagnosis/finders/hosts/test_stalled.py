"""Senders without an answer."""

from __future__ import annotations

import msgspec
import pytest
from cases import case_of
from conformance_traces import answer, last, write
from fabric_captures import START_NS, Pair, between, drop, queue, simulate, warnings
from fabric_captures import diagnosis as diagnosis_of
from fabric_captures import write as write_taps
from factories_results import diagnosis

from rocescope.analyzer.diagnosis.finders.hosts.stalled import stalled
from rocescope.analyzer.diagnosis.known import Known

MS = 1000
BEGIN = [write(0, at=0), last(1, at=1), answer(1, at=9)]
DEAD = [*BEGIN, last(2, at=10), *(last(2, at=60 * MS * n, ip_id=80 + n) for n in (1, 2, 3))]


def test_a_sender_that_nobody_answers():
    (one,) = stalled(case_of(DEAD), Known())
    assert (one.kind, one.severity, one.packets, one.until_ns) == ("stalled", "critical", 3, None)
    assert (one.place.host, one.place.dest_qp) == ("10.0.0.2", 0x11)
    assert "10.0.0.1 to 10.0.0.2 QP 0x000011 retransmits without an answer" in one.sentence


def test_silence_is_only_a_possible_fault():
    other = last(7, at=5000 * MS, dest_qp=0x77)
    (one,) = stalled(case_of([*BEGIN, last(2, at=10), other]), Known())
    assert one.confidence == "possible"


def test_a_known_blackhole_explains_it():
    case = case_of(DEAD)
    cause = msgspec.structs.replace(
        diagnosis().findings[0], kind="blackhole", flows=[0], from_ns=case.first_ns
    )
    assert list(stalled(case, Known([cause]))) == []


def test_who_waits_in_a_long_queue_is_not_dead(tmp_path):
    """The last requests wait for longer than several timeouts when the captures end."""
    run = simulate(fault=queue("leaf1-spine2", "leaf2-spine2", 3e6))
    taps = {
        tap: [s for s in sightings if s.time_ns < START_NS + 380_000_000]
        for tap, sightings in run.taps.items()
    }
    found = diagnosis_of(write_taps(tmp_path, taps))
    assert [one.kind for one in warnings(found)] == ["queueing"]
    assert "dead" not in found.findings[0].sentence


def test_answered_senders():
    assert list(stalled(case_of([*DEAD, answer(2, at=200 * MS)]), Known())) == []


@pytest.mark.parametrize(("limit", "far"), [(64, False), (62, True)])
def test_without_a_tap_on_the_link_of_the_receiver_it_may_be_the_network(limit, far):
    """The hop limit tells whether a router forwarded the answers before the first tap."""
    rows = [row | {"hop_limit": limit if row.get("answer") else 64} for row in DEAD]
    (one,) = stalled(case_of(rows, taps=("a", "b")), Known())
    assert ("the receiver is dead, or packets are lost" in one.sentence) == far
    assert one.confidence == ("possible" if far else "likely")
    assert one.next_step.startswith("capture on the link of the receiver") == far
    (alone,) = stalled(case_of(rows), Known())
    assert alone.confidence == "likely"


def test_packets_that_a_device_swallows_where_nothing_tells_the_next_tap(tmp_path):
    """The only queue pair between these hosts: the finding says where its packets were last."""
    vanish = between("leaf1-spine2", "leaf2-spine2", drop)
    run = simulate([Pair(1, 3, 0x101, 50001)], vanish, lambda packet, now: 2)
    (one,) = warnings(diagnosis_of(write_taps(tmp_path, run.taps)))
    assert one.kind == "stalled"
    assert (
        "without an answer, never seen after leaf1-spine2: the receiver is dead, or" in one.sentence
    )
    assert "--fabric" in one.next_step
