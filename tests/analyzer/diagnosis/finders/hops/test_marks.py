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

from rocescope.analyzer.analysis.analyze import analyze
from rocescope.analyzer.analysis.options import AnalyzeOptions

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
