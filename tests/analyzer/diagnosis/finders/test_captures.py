"""Captures that missed packets, and clocks that jump, drift or were set."""

from __future__ import annotations

import random

import encapsulations
import pytest
from cases import case_of
from conformance_traces import answer, last, write
from fabric_captures import (
    LINKS,
    MS,
    START_NS,
    US,
    between,
    diagnosis,
    drop,
    names,
    simulate,
    some,
    tap_of,
    warnings,
)
from fabric_captures import write as write_taps
from factories import Frame, write_pcap
from network import roce

from rocescope.analyzer.diagnosis.finders.captures import missed_at_one_tap
from rocescope.analyzer.diagnosis.known import Known

NEAR, FAR = "leaf1-spine2", "leaf2-spine2"
SPINE = (NEAR, FAR, "spine2", "leaf1 to leaf2")


@pytest.fixture(scope="module")
def clean():
    return simulate()


def shifted(run, tap, change):
    """The sightings with other times at one tap, as its clock writes them."""
    return run.taps | {tap: [s._replace(time_ns=change(s.time_ns)) for s in run.taps[tap]]}


def stepped(ns):
    return lambda time_ns: time_ns + (ns if time_ns > START_NS + 200 * MS else 0)


@pytest.mark.thorough
@pytest.mark.parametrize("tap", ["H1-leaf1", "leaf1-spine2", "leaf2-spine3", "H4-leaf2"])
@pytest.mark.parametrize("ipv6", [False, True])
def test_frames_that_a_capture_misses(tmp_path, clean, tap, ipv6):
    chance = random.Random(5)
    kept = [seen for seen in clean.taps[tap] if chance.random() > 0.05]
    found = diagnosis(write_taps(tmp_path, clean.taps | {tap: kept}, ipv6))
    (one,) = warnings(found)
    assert (one.kind, tap_of(one.place.capture)) == ("capture-loss", tap)
    missed = len(clean.taps[tap]) - len(kept)
    # The last packets may be in flight, and a flow must have been seen at the tap before.
    assert 0.95 * missed <= one.packets <= missed
    assert one.of_packets - one.packets == len(kept)


def test_loss_and_missed_frames_are_two_findings(tmp_path):
    run = simulate(fault=between(NEAR, FAR, drop, which=some(0.05)))
    chance = random.Random(6)
    kept = [seen for seen in run.taps["leaf2-spine4"] if chance.random() > 0.05]
    found = warnings(diagnosis(write_taps(tmp_path, run.taps | {"leaf2-spine4": kept})))
    assert sorted(one.kind for one in found) == ["capture-loss", "loss"]
    names(next(one for one in found if one.kind == "loss"), "loss", SPINE, run.hits)


@pytest.mark.thorough
@pytest.mark.parametrize("tap", ["H1-leaf1", "leaf1-spine2"])
@pytest.mark.parametrize("ns", [30 * MS, -30 * MS])
def test_another_clock_is_a_note(tmp_path, clean, tap, ns):
    taps = shifted(clean, tap, lambda time_ns: time_ns + ns)
    found = diagnosis(write_taps(tmp_path, taps)).findings
    assert {(one.kind, one.severity) for one in found} == {("clock", "note")}
    (one,) = (one for one in found if tap_of(one.place.capture) == tap)
    assert " by 30 ms" in one.sentence


def test_clocks_that_differ_a_little_are_no_finding(tmp_path, clean):
    chance = random.Random(9)
    offsets = {tap: chance.randrange(-50 * US, 50 * US) for tap in LINKS}
    taps = {
        tap: [s._replace(time_ns=s.time_ns + ns) for s in clean.taps[tap]]
        for tap, ns in offsets.items()
    }
    assert warnings(diagnosis(write_taps(tmp_path, taps))) == []


@pytest.mark.thorough
@pytest.mark.parametrize("tap", ["H1-leaf1", "leaf1-spine2", "leaf2-spine3"])
@pytest.mark.parametrize("ns", [5 * MS, -5 * MS])
def test_a_clock_that_steps_is_the_only_finding(tmp_path, clean, tap, ns):
    (one,) = warnings(diagnosis(write_taps(tmp_path, shifted(clean, tap, stepped(ns)))))
    assert (one.kind, tap_of(one.place.capture)) == ("clock", tap)
    assert "jumps 1 time against the clocks of the other taps, at " in one.sentence
    assert one.from_ns == one.until_ns
    assert abs(one.from_ns - (START_NS + 200 * MS)) < 20 * MS


@pytest.mark.thorough
@pytest.mark.parametrize("tap", ["H1-leaf1", "leaf1-spine2", "leaf2-spine3"])
@pytest.mark.parametrize("ns", [2_000 * MS, 3_600_000 * MS])
@pytest.mark.parametrize("ahead", ["before", "between"])
def test_a_clock_that_is_set_back_is_the_only_finding(tmp_path, clean, tap, ns, ahead):
    """Its packets come long after those of the other taps: whether they passed is unknown."""
    first, last = (START_NS + 100 * MS if ahead == "between" else 0), START_NS + 200 * MS
    taps = shifted(clean, tap, lambda t: t + (ns if first < t <= last else 0))
    found = diagnosis(write_taps(tmp_path, taps))
    (one,) = warnings(found)
    assert (one.kind, tap_of(one.place.capture)) == ("clock", tap)
    assert "go back 1 time by more than 1 s" in one.sentence
    assert any(line.startswith(f"the clock of {tap} was set") for line in found.limits)


def test_a_clock_that_is_set_back_is_that_of_all_sessions_of_its_capture(tmp_path):
    """Mirror sessions are taps, with the times of the file that carries them."""
    frames = []
    for i in range(800):
        mirrored = encapsulations.erspan2(roce(i // 2), session=i % 2)
        carried = encapsulations.ethernet(0x0800, encapsulations.ipv4(47, mirrored))
        frames.append(Frame(START_NS + i * US - (3_600_000 * MS if i > 400 else 0), carried))
    path = write_pcap(tmp_path / "mirrors.pcap", frames)
    (finding,) = diagnosis([path]).findings
    assert (finding.kind, finding.place.capture) == ("clock", "mirrors.pcap")


def test_a_clock_that_drifts_makes_no_queue(tmp_path, clean):
    """1,000 ppm."""
    taps = shifted(clean, NEAR, lambda time_ns: time_ns + (time_ns - START_NS) // 1000)
    assert [one.kind for one in warnings(diagnosis(write_taps(tmp_path, taps)))] in ([], ["clock"])


@pytest.mark.thorough
@pytest.mark.parametrize("tap", [FAR, "H3-leaf2"])
@pytest.mark.parametrize("ns", [30 * MS, -30 * MS, -500 * US])
def test_a_loss_beside_another_clock(tmp_path, tap, ns):
    run = simulate(fault=between(NEAR, FAR, drop, which=some(0.05)))
    taps = shifted(run, tap, lambda time_ns: time_ns + ns)
    (one,) = warnings(diagnosis(write_taps(tmp_path, taps)))
    names(one, "loss", SPINE, run.hits, least=0.85)


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
