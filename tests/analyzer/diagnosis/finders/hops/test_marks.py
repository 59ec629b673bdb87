"""CE marks, copies, other DSCPs and damage that arise on a hop."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from captures import data
from fabric_captures import (
    CE,
    ECT,
    MS,
    between,
    duplicate,
    names,
    place_of,
    rewrite,
    severe,
    simulate,
    some,
    warnings,
)

from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions

HOP = "leaf2-spine3", "leaf1-spine3"
PLACE = (*HOP, "spine3", "leaf2 to leaf1")
FROM, UNTIL = 100 * MS, 300 * MS


@pytest.mark.parametrize("ipv6", [False, True])
@pytest.mark.parametrize(
    ("kind", "make", "share"),
    [
        ("ecn-marking", rewrite(26 << 2 | CE), 0.1),
        ("duplication", duplicate, 0.1),
        ("dscp-mismatch", rewrite(8 << 2 | ECT), 1),
        ("dscp-mismatch", rewrite(8 << 2 | ECT), 0.2),
    ],
)
def test_what_a_spine_does_to_packets(tmp_path, kind, make, share, ipv6):
    run = simulate(fault=between(*HOP, make, FROM, UNTIL, some(share)))
    (one,) = severe(tmp_path, run, ipv6)
    names(one, kind, PLACE, run.hits, ipv6)
    assert one.until_ns == run.hits[-1].time_ns
    assert one.of_packets == sum(s.packet.src > 2 for s in run.taps[HOP[0]])


def test_a_leaf_that_marks_towards_one_host(tmp_path):
    """One finding for all links that lead there."""
    make = rewrite(26 << 2 | CE)
    run = simulate(fault=between("leaf1-spine*", "H2-leaf1", make, FROM, which=some(0.05)))
    (one,) = severe(tmp_path, run)
    names(one, "ecn-marking", (None, "H2-leaf1", "leaf1", None), run.hits)


def test_marks_that_packets_bring_along_are_not_made_here(tmp_path):
    run = simulate(fault=between("H4-leaf2", "leaf2-*", rewrite(26 << 2 | CE), FROM))
    (one,) = severe(tmp_path, run)
    names(one, "ecn-marking", ("H4-leaf2", None, "leaf2", None), run.hits)


def taps_in_series(folder: Path, damaged_from: int, every: int) -> tuple[list[str], int]:
    """A real capture as three taps, 10 us and one hop limit apart; ICRCs do not cover hop limits.

    From tap `damaged_from` on one bit of each `every`th RoCE packet is wrong. Their number, too.
    """
    whole = Path(data("c05_rc_atomic_fetchadd.atB")).read_bytes()
    parts = [bytearray(whole[:24]) for _ in range(3)]
    at, roce = 24, 0
    while at < len(whole):
        seconds, fraction, kept, length = struct.unpack_from("<IIII", whole, at)
        frame = whole[at + 16 : at + 16 + kept]
        at += 16 + kept
        if frame[12:14] != b"\x08\x00" or frame[36:38] != b"\x12\xb7":
            continue
        roce += 1
        for tap, part in enumerate(parts):
            copy = bytearray(frame)
            copy[22] -= tap
            copy[60] ^= (roce % every == 0 and tap >= damaged_from) << 7  # behind BTH and AETH
            time = seconds * 10**9 + fraction + tap * 10_000
            part += struct.pack("<IIII", *divmod(time, 10**9), kept, length) + copy
    paths = [folder / f"{name}.pcap" for name in ("H1-leaf1", "leaf1-leaf2", "leaf2-H2")]
    for path, part in zip(paths, parts, strict=True):
        path.write_bytes(part)
    return [str(path) for path in paths], roce // every


@pytest.mark.parametrize(
    ("damaged_from", "place"),
    [
        (0, (None, "H1-leaf1", None)),
        (1, ("H1-leaf1", "leaf1-leaf2", "leaf1")),
        (2, ("leaf1-leaf2", "leaf2-H2", "leaf2")),
    ],
)
def test_damage_is_where_the_icrc_becomes_wrong(damaged_from, place, tmp_path):
    """Each damaged packet counts once, at the first tap with a wrong ICRC."""
    paths, damaged = taps_in_series(tmp_path, damaged_from, every=37)
    found = warnings(analyze(paths, AnalyzeOptions(icrc=True)).diagnosis)
    assert {finding.kind for finding in found} == {"corruption"}
    assert sum(finding.packets for finding in found) == damaged
    assert {place_of(finding)[:3] for finding in found} == {place}


def test_no_damage(tmp_path):
    paths, _ = taps_in_series(tmp_path, 3, every=37)
    assert warnings(analyze(paths, AnalyzeOptions(icrc=True)).diagnosis) == []


def damage_by_tap(folder: Path, wrong: list[set[int]], snap: int | None = None) -> list[str]:
    """Captures of taps in series; at tap n the packets `wrong[n]` of the first flow are wrong.

    snap: the bytes that the last tap keeps of a frame.
    """
    paths, _ = taps_in_series(folder, 3, every=1)
    for path, packets, last in zip(paths, wrong, (False, False, True), strict=True):
        whole = Path(path).read_bytes()
        part, at, number = bytearray(whole[:24]), 24, 0
        while at < len(whole):
            seconds, fraction, kept, length = struct.unpack_from("<IIII", whole, at)
            frame = bytearray(whole[at + 16 : at + 16 + kept])
            at += 16 + kept
            if frame[26:30] != whole[24 + 16 + 26 : 24 + 16 + 30]:
                continue  # answers
            frame[60] ^= (number in packets) << 7
            number += 1
            frame = frame[: snap if last else None]
            part += struct.pack("<IIII", seconds, fraction, len(frame), length) + frame
        Path(path).write_bytes(part)
    return paths


def corruption(paths: list[str]):
    diagnosis = analyze(paths, AnalyzeOptions(icrc=True)).diagnosis
    return [finding for finding in diagnosis.findings if finding.kind == "corruption"]


def packets_at(findings):
    return {tuple(place_of(finding)[:2]): finding.packets for finding in findings}


EARLY, LATER = {3, 8, 13, 18, 23}, {5}


@pytest.mark.parametrize(
    ("wrong", "hop"),
    [
        ([EARLY, EARLY | LATER, EARLY | LATER], ("H1-leaf1", "leaf1-leaf2")),
        ([EARLY, EARLY, EARLY | LATER], ("leaf1-leaf2", "leaf2-H2")),
    ],
)
def test_damage_on_a_hop_does_not_hide_damage_before_the_first_tap(wrong, hop, tmp_path):
    found = corruption(damage_by_tap(tmp_path, wrong))
    assert packets_at(found) == {hop: len(LATER), (None, "H1-leaf1"): len(EARLY)}
    assert len({f.of_packets for f in found}) == 1  # packets, not sightings


def test_a_tap_that_keeps_headers_only_checks_nothing(tmp_path):
    found = corruption(damage_by_tap(tmp_path, [EARLY] * 3, snap=64))
    assert packets_at(found) == {(None, "H1-leaf1"): len(EARLY)}


def test_taps_that_see_mostly_wrong_icrcs_are_at_fault(tmp_path):
    (one,) = corruption(damage_by_tap(tmp_path, [set(range(10_000))] * 3))
    assert (one.severity, one.share_percent, one.place.capture) == ("note", 100, "H1-leaf1.pcap")


@pytest.mark.parametrize("ipv6", [False, True])
def test_a_spine_that_trims_has_a_full_queue(tmp_path, ipv6):
    """To the headers, with the class of trimmed packets: that DSCP is no mistake."""

    def trim(packet, now):
        return [(packet._replace(payload_bytes=0, tos=44 << 2), 0)]

    tenth = some(0.1)
    run = simulate(
        fault=between(*HOP, trim, FROM, UNTIL, lambda p: p.payload_bytes > 0 and tenth(p))
    )
    (one,) = severe(tmp_path, run, ipv6)
    names(one, "queueing", PLACE, run.hits, ipv6)
    assert "spine3 trims" in one.sentence


def shortened_after_the_leaf(folder: Path, trimmed: set[int], fragments: set[int]) -> list[str]:
    """Captures of taps in series; from the second on these packets are shorter: those of
    `fragments` say that other fragments follow."""
    paths, _ = taps_in_series(folder, 3, every=1)
    for path in paths[1:]:
        part, at = bytearray(Path(path).read_bytes()), 24
        for number in range(max(trimmed | fragments) + 1):
            kept, length = struct.unpack_from("<II", part, at + 8)
            if number in trimmed | fragments:
                struct.pack_into("<I", part, at + 12, max(kept, length - 8))
                part[at + 16 + 20] |= (number in fragments) << 5
            at += 16 + kept
        Path(path).write_bytes(part)
    return paths


@pytest.mark.parametrize("fragments", [{4}, {4, 10, 11}])
def test_trimmed_packets_are_no_fragments(fragments, tmp_path):
    found = analyze(shortened_after_the_leaf(tmp_path, {7, 8, 9}, fragments), AnalyzeOptions())
    (one,) = [one for one in found.diagnosis.findings if one.kind == "mtu-mismatch"]
    assert (one.packets, place_of(one)[:2]) == (len(fragments), ("H1-leaf1", "leaf1-leaf2"))
