"""Ring files in place of captures: the same result, and no finding from what is lost of them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest
from captures import DATA
from clusters import in_tasks
from examples import first
from ring_files import HEADER, ring_files, rings

from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.results.analysis import Analysis

CLEAN = sorted((DATA / "leafspine" / "r01_clean_write").glob("*.pcap*"))
FOUR = [path for path in CLEAN if "spine1" in path.name or "H" in path.name][:4]
REROUTED = sorted((DATA / "whole_leafspine" / "r03_link_down_reroute").glob("*.xz"))
SPRAYED = sorted((DATA / "whole_leafspine" / "r09_packet_spray_h1").glob("*.xz"))
EFFECTS = {"loss", "reordering", "timeout-recovery"}
"""What hosts show of packets that a switch drops or delays."""


def options_of(files: Mapping[str, Sequence[Path]]) -> AnalyzeOptions:
    names = {str(path): tap for tap, paths in files.items() for path in paths}
    return AnalyzeOptions(rings="/(?P<tap>.*)/", tap_names=names)


def analysis(files: Mapping[str, Sequence[Path]]) -> Analysis:
    options = options_of(files)
    return analyze(list(options.tap_names), options)


def test_ring_files_are_the_captures(tmp_path: Path) -> None:
    names = {str(path): path.name.partition(".")[0] for path in FOUR}
    expected = msgspec.to_builtins(analyze(list(names), AnalyzeOptions(tap_names=names)))
    files = rings(FOUR, tmp_path / "ring", 5)
    for paths in files.values():
        random.Random(1).shuffle(paths)
    found = analysis(files)
    assert {
        name for name, value in msgspec.to_builtins(found).items() if value != expected[name]
    } == {"captures"}
    assert [capture.name for capture in found.captures] == [f"{tap} (5 files)" for tap in files]
    options = options_of(files)
    parts = in_tasks(tmp_path / "work", list(options.tap_names), 2, options)
    assert msgspec.json.encode(parts) == msgspec.json.encode(found)


def test_tasks_pair_flows_where_one_process_does(tmp_path: Path) -> None:
    """Flows are found to be one connection for whole tables of the merge, of many short files."""
    paths = [path for path in SPRAYED if path.name.startswith(("leaf1-spine1", "leaf2-spine1"))]
    options = options_of(rings(paths, tmp_path / "ring", 5))
    expected = analyze(list(options.tap_names), options)
    parts = in_tasks(tmp_path / "work", list(options.tap_names), 2, options)
    assert msgspec.to_builtins(parts) == msgspec.to_builtins(expected)


def faulty(files: dict[str, list[Path]], seed: int) -> dict[str, list[Path]]:
    """Files lost (never the first and last of a tap), cut and overwritten."""
    rng = random.Random(seed)
    left: dict[str, list[Path]] = {}
    for tap, paths in files.items():
        left[tap] = [path for path in paths if path in (paths[0], paths[-1]) or rng.random() > 0.15]
        for path in left[tap]:
            data = path.read_bytes()
            match rng.randrange(8):
                case 0:
                    path.write_bytes(data[: len(data) * 2 // 3])
                case 1:
                    path.write_bytes(b"no capture")
    return left


@pytest.mark.thorough
@pytest.mark.parametrize("seed", first(2, range(12)))
def test_what_files_hide_is_no_loss(tmp_path: Path, seed: int) -> None:
    paths = CLEAN if seed % 2 else random.Random(seed).sample(CLEAN, 3)
    files = faulty(rings(paths, tmp_path, 6), seed)
    found = analysis(files)
    assert found.diagnosis.findings == []
    assert not any(flow.missing_packets or flow.lost_between_taps for flow in found.flows)
    assert not any(hop.lost_packets for hop in found.hops)
    gaps = [capture for capture in found.captures if capture.gaps]
    assert len(found.warnings) >= len(gaps) > 0
    hidden = {capture.name.partition(" ")[0] for capture in gaps}
    assert not any({hop.from_tap, hop.to_tap} & hidden for hop in found.hops)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", first(2, [2, 0, 1, *range(3, 12)]))
def test_a_link_down_is_found_or_its_effects(tmp_path: Path, seed: int) -> None:
    check_only_effects(analysis(faulty(rings(REROUTED, tmp_path, 6), seed)))


@pytest.mark.thorough
@pytest.mark.parametrize("seed", first(3, [2, 13, 15, *({*range(30)} - {2, 13, 15})]))
def test_a_rate_limit_is_found_or_its_effects(tmp_path: Path, seed: int) -> None:
    check_only_effects(analysis(faulty(rings(SPRAYED, tmp_path, 6), seed)))


def check_only_effects(found: Analysis) -> None:
    """In both runs only spine2 is at fault: at its taps, or nowhere but at hosts."""
    serious = [finding for finding in found.diagnosis.findings if finding.severity != "note"]
    for finding in serious:
        place = finding.place
        if finding.kind == "rehash":  # leaf1 moves what it sent over the link to spine2
            assert "from leaf1-spine2 to" in finding.sentence
        elif place.device != "spine2":
            assert finding.kind in EFFECTS, finding.sentence
            assert not {place.from_tap, place.to_tap, place.device} - {None}, finding.sentence
    assert any("in its capture" in line for line in found.diagnosis.limits)
    assert not any("no loss" in line for line in found.diagnosis.healthy)


def test_a_gap_at_one_tap_makes_losses_unknown(tmp_path: Path) -> None:
    path = DATA / "i01_write_loss0.5_AtoB.atB.pcap.gz"
    files = rings([path], tmp_path, 5)
    whole = analysis(files)
    assert any(flow.recovered_packets for flow in whole.flows)
    del files["i01_write_loss0"][2]
    found = analysis(files)
    for flow in found.flows:
        if flow.recovered_packets:
            assert flow.missing_packets is None
            assert any("gaps" in note or "never seen" in note for note in flow.notes)
    assert "loss" not in {finding.kind for finding in found.diagnosis.findings}
    (capture,) = found.captures
    assert isinstance(capture.gaps, list)
    assert capture.gaps[0].reason.startswith("1 file is missing between ring_00002")
    assert "has 1 gap in its capture" in found.diagnosis.limits[0]


@pytest.mark.parametrize("empty", [False, True])
def test_a_receiver_does_not_drop_what_a_tap_with_gaps_did_not_see(
    tmp_path: Path, empty: bool
) -> None:
    """The network between the taps drops; hosts here have no router in between."""
    files = {
        tap: ring_files(DATA / f"i01_write_loss0.5_AtoB.at{tap}.pcap.gz", tmp_path / tap, 2)
        for tap in "AB"
    }
    for path in files["B"]:
        cut = path.read_bytes()
        path.write_bytes(cut[:HEADER] if empty else cut[:-31] if path == files["B"][-1] else cut)
    diagnosis = analysis(files).diagnosis
    (loss,) = [finding for finding in diagnosis.findings if finding.kind == "loss"]
    where = "lost or late after A" if empty else "gaps in captures hide where"
    assert where in loss.sentence and loss.place.from_tap == ("A" if empty else None)
    assert any("one tap: loss" in line for line in diagnosis.limits) == empty
    assert not any("no packet was seen at two" in line for line in diagnosis.limits)
