"""Captures of several taps that begin and end at different times, and clocks that drift.

Clean traffic stays clean; the real fault stays the first finding, within what all taps saw.
"""

from __future__ import annotations

import gzip
import lzma
import random
import struct

import numpy as np
import pytest
from captures import DATA
from examples import first, thorough
from fabric_captures import (
    DURATION,
    MS,
    START_NS,
    between,
    drop,
    simulate,
    some,
    usual_pairs,
    warnings,
)
from fabric_captures import write as write_taps

from rocescope.analyzer.measures.hops import testimony as module
from rocescope.analyzer.measures.hops.measure import HopMeasure
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions

NEAR, FAR = "leaf1-spine2", "leaf2-spine2"
MOST_CUT = 0.3
"""The largest part of the time that a capture lacks at its beginning, and at its end."""
CLEAN = "leafspine/r01_clean_write"
LINK_DOWN = "whole_leafspine/r03_link_down_reroute"
SPRAYED = "whole_leafspine/r09_packet_spray_h1"
LOST = {LINK_DOWN: 71, SPRAYED: 609}
KIND = {LINK_DOWN: "link-down", SPRAYED: "rate-limit"}


def records_of(path):
    """The header of a little-endian pcap file of nanoseconds, and (time, record) of its frames."""
    packed = path.read_bytes()
    data = lzma.decompress(packed) if path.suffix == ".xz" else gzip.decompress(packed)
    assert struct.unpack_from("<I", data)[0] == 0xA1B23C4D
    records, at = [], 24
    while at < len(data):
        seconds, ns, captured = struct.unpack_from("<III", data, at)
        records.append((seconds * 10**9 + ns, data[at : at + 16 + captured]))
        at += 16 + captured
    return data[:24], records


def changed(
    run, folder, window_of=lambda tap: (0.0, 1.0), ppm_of=lambda tap: 0, slower=1, behind=()
):
    """Copies of the captures of a run. window_of: the part of the time that a tap captures. ppm_of:
    how fast its clock drifts. slower: how much longer everything takes. behind: nanoseconds that
    the clocks of some taps are behind, by tap."""
    behind = dict(behind)
    paths = sorted(path for path in (DATA / run).glob("*.pcap.*"))
    captures = {path.name.split(".")[0]: records_of(path) for path in paths}
    begin = min(records[0][0] for _, records in captures.values())
    end = max(records[-1][0] for _, records in captures.values())
    written = []
    for tap, (header, records) in captures.items():
        a, b = window_of(tap)
        pace = slower * (1 + ppm_of(tap) / 1e6)
        path = folder / f"{tap}.pcap"
        with path.open("wb") as file:
            file.write(header)
            for time, record in records:
                if a <= (time - begin) / (end - begin) <= b:
                    ns = begin + round((time - begin) * pace) - behind.get(tap, 0)
                    file.write(struct.pack("<II", *divmod(ns, 10**9)) + record[8:])
        written.append(str(path))
    return written


def drawn_windows(seed):
    chance = random.Random(seed)
    windows = {}

    def window_of(tap):
        if tap not in windows:
            windows[tap] = chance.uniform(0, MOST_CUT), chance.uniform(1 - MOST_CUT, 1)
        return windows[tap]

    return window_of


def diagnosis_of(paths):
    return analyze([str(path) for path in paths], AnalyzeOptions()).diagnosis


@pytest.mark.parametrize("seed", [*range(3), *thorough(range(3, 30))])
def test_clean_captures_that_begin_and_end_at_different_times_are_clean(seed, tmp_path):
    diagnosis = diagnosis_of(changed(CLEAN, tmp_path, drawn_windows(seed)))
    assert warnings(diagnosis) == []
    assert any("overlap" in line for line in diagnosis.limits)
    assert any("that a tap could not see" in line for line in diagnosis.limits)


@pytest.mark.parametrize("run", LOST)
@pytest.mark.parametrize("seed", [*range(2), *thorough(range(2, 20))])
def test_the_fault_stays_the_first_finding(run, seed, tmp_path):
    """What is cut off is at the beginning and at the end: all lost packets are in the rest."""
    worst = diagnosis_of(changed(run, tmp_path, drawn_windows(seed))).findings[0]
    assert (worst.kind, worst.packets) == (KIND[run], LOST[run])
    assert worst.place.device in ("spine2", None)


def test_a_flow_that_moves_to_a_link_with_a_capture_was_on_one_without(tmp_path):
    """Before the link went down some flows used it; its taps and that of the receiver began late.
    What went there is neither lost nor missed by the capture of the link that they took later."""
    late = [NEAR, FAR, "H3-leaf2", "H4-leaf2"]
    paths = changed(LINK_DOWN, tmp_path, lambda tap: (0.525 if tap in late else 0, 1))
    (found,) = warnings(diagnosis_of(paths))
    assert (found.kind, found.packets) == ("link-down", 71)


@pytest.mark.parametrize("late", [NEAR, "leaf2-spine3", "H1-leaf1", "H4-leaf2"])
def test_one_late_capture_makes_no_fault(late, tmp_path):
    paths = changed(LINK_DOWN, tmp_path, lambda tap: (0.15 if tap == late else 0, 1))
    (found,) = warnings(diagnosis_of(paths))
    assert (found.kind, found.packets) == ("link-down", 71)


def cut(run, folder, seed, most=0.4):
    """The captures of a simulated run, each with its own begin and end."""
    chance = random.Random(seed)
    taps = {}
    for tap, seen in run.taps.items():
        begin = START_NS + chance.uniform(0, most) * DURATION
        end = START_NS + chance.uniform(1 - most, 1) * DURATION
        taps[tap] = [sighting for sighting in seen if begin <= sighting.time_ns <= end]
    return write_taps(folder, taps)


@pytest.mark.parametrize("seed", first(4, range(40)))
def test_clean_traffic_is_clean_whatever_taps_capture_when(seed, tmp_path):
    assert diagnosis_of(cut(simulate(usual_pairs(seed=seed)), tmp_path, seed)).findings == []


@pytest.mark.parametrize("seed", first(2, range(20)))
@pytest.mark.parametrize("kind", ["loss", "blackhole"])
def test_a_fault_of_a_spine_is_named_within_what_taps_saw(kind, seed, tmp_path):
    """No finding blames another device, and none counts more packets than were lost."""
    fault = between(NEAR, FAR, drop, which=some(0.05, seed))
    if kind == "blackhole":
        fault = between(NEAR, FAR, drop, 150 * MS)
    run = simulate(usual_pairs(seed=seed), fault)
    found = warnings(diagnosis_of(cut(run, tmp_path, seed)))
    assert kind in {finding.kind for finding in found}
    for finding in found:
        assert finding.kind in (kind, "loss", "timeout-recovery"), finding.sentence
        assert finding.place.device in ("spine2", None), finding.sentence
    lost = sum(finding.packets for finding in found if finding.kind == kind)
    assert lost <= len(run.lost)


def test_an_outage_at_the_beginning_is_no_rerouted_link(tmp_path):
    """It goes on when the captures begin; no flow takes another link before or after it."""
    run = simulate(usual_pairs(), between(NEAR, FAR, drop, 0, 120 * MS))
    taps = {
        tap: [sighting for sighting in seen if sighting.time_ns >= START_NS + begin * MS]
        for begin, (tap, seen) in zip(range(10, 22), run.taps.items(), strict=True)
    }
    (found,) = warnings(diagnosis_of(write_taps(tmp_path, taps)))
    assert (found.kind, found.place.device) == ("outage", "spine2")


@pytest.mark.parametrize("end", [0.54, 0.56, 0.58])
def test_captures_that_end_soon_after_a_link_went_down_show_the_loss(end, tmp_path):
    """Nothing was retransmitted yet, but the taps on the links of the receivers still captured."""
    paths = changed(LINK_DOWN, tmp_path, lambda tap: (0, end))
    found = warnings(diagnosis_of(paths))
    places = {(finding.place.device, finding.place.from_tap) for finding in found}
    assert ("spine2", f"{FAR}.pcap") in places


DRIFTS = [{NEAR: 100}, {FAR: -100}, {"H1-leaf1": -40}, {NEAR: -40, "leaf2-spine1": -40}]


@pytest.mark.parametrize("slower", first(1, [1, 10]))
@pytest.mark.parametrize("ppm", DRIFTS, ids=str)
@pytest.mark.parametrize("run", first(2, [SPRAYED, CLEAN, LINK_DOWN]))
def test_a_drifting_clock_neither_jumps_nor_makes_a_fault(run, ppm, slower, tmp_path):
    paths = changed(run, tmp_path, ppm_of=lambda tap: ppm.get(tap, 0), slower=slower)
    found = warnings(diagnosis_of(paths))
    expected = [(KIND[run], LOST[run])] if run in LOST else []
    if run == LINK_DOWN and slower > 1:
        expected.append(("rehash", 3))  # so long after the link went down it stands alone
    assert [(finding.kind, finding.packets) for finding in found] == expected


@pytest.mark.parametrize("slower", first(1, [10, 1]))
@pytest.mark.parametrize("ms", first(1, [50, 2, -2, -50]))
def test_an_answer_before_its_request_by_another_clock_is_no_dead_queue_pair(ms, slower, tmp_path):
    """The requests that the last answer acknowledges were captured by the clock that is behind."""
    paths = changed(SPRAYED, tmp_path, slower=slower, behind={FAR: ms * MS})
    diagnosis = diagnosis_of(paths)
    assert [(found.kind, found.packets) for found in warnings(diagnosis)] == [("rate-limit", 609)]
    assert not any("dead" in finding.sentence for finding in diagnosis.findings)


def test_a_tap_testifies_from_its_first_to_its_last_packet_less_a_transit():
    """Tap 1 captures from 1 ms to 2 ms; of a hop without packets nothing tells the delay."""
    testimony = module.Testimony.of(HopMeasure(), 2, is_live=False)
    assert not testimony.sees_after(0, 1, testimony.first_ns[:1]).any()
    testimony.first_ns[:], testimony.last_ns[:] = [0, 1 * MS], [3 * MS, 2 * MS]
    times = testimony.first_ns[:1] + [0, 1 * MS, 2 * MS]  # a hop without packets: within 1 ms
    assert testimony.sees_after(0, 1, times).tolist() == [False, False, False]
    testimony.last_ns[1] = 4 * MS
    assert testimony.sees_after(0, 1, times).tolist() == [False, False, True]
    testimony.last_ns[1] = 5 * MS
    assert testimony.saw_before(1, 0, times + MS).tolist() == [False, False, True]


def test_times_of_wild_clocks_stay_in_range():
    times = np.array([0, 2**63 - 1, -(2**63)])
    for ns in (2**70, -(2**70), 5):
        moved = module.plus(times, ns).tolist()
        assert all(-(2**63) <= time < 2**63 for time in moved)
    assert module.plus(times, 5).tolist() == [5, 2**63 - 1, -(2**63) + 5]
