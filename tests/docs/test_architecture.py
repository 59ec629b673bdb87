"""The page on the architecture: the packet that it follows, and the rooms that it lists."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
from captures import data

from rocescope.analyzer.capture.source import open_capture
from rocescope.analyzer.decode.decoder import Decoder
from rocescope.analyzer.pipeline.captures import BATCH_FRAMES, analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.track.batch import AHEAD, REORDERED
from rocescope.analyzer.track.tracker import FlowTracker
from rocescope.analyzer.wire.registry import Registry


@pytest.fixture
def page(checkout: Path) -> str:
    return (checkout / "docs" / "architecture.md").read_text()


def test_the_packet_that_the_page_follows(page: str) -> None:
    registry = Registry()
    with open_capture(
        str(data("i03_write_reorder5_AtoB")), registry.taps, batch_frames=BATCH_FRAMES
    ) as c:
        frames = next(iter(c.batches()))
        table = Decoder(registry).decode(frames)
        verdicts = FlowTracker().update(table).verdict
        row = int(np.flatnonzero(verdicts == REORDERED)[0])
        frame = int(table.frame_number[row]) - frames.first_frame_number
        captured, wire = int(frames.captured[frame]), int(frames.wire[frame])
    assert f"has at most {BATCH_FRAMES:,} frames" in page
    assert frame + 1 == 96 and f"Frame {frame + 1} begins at byte {frames.offset[frame]:,}" in page
    assert f"{captured} of its {wire:,} bytes were captured" in page
    assert f"writes row {row};" in page
    for names, values in re.findall(r"^   \| (`[^|]+`) \| ([\d, ]+) \|", page, re.MULTILINE):
        for name, value in zip(names.split(", "), values.split(", "), strict=True):
            assert getattr(table, name.strip("`"))[row] == int(value), name
    assert registry.endpoints.texts()[:2] == ["10.0.0.1", "10.0.0.2"]
    assert verdicts[row - 1] == AHEAD and f"frame 95 has PSN {table.psn[row - 1]}" in page
    late = int(table.time_ns[row] - table.time_ns[row - 1])
    assert f"late by {late:,} ns" in page
    assert table.ip_id[row] < table.ip_id[row - 1]


def names_in(file: Path) -> set[str]:
    """The functions, classes, methods (`Class.method`) and variables that a file defines."""
    names: set[str] = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.ClassDef):
            methods = [item for item in node.body if isinstance(item, ast.FunctionDef)]
            names |= {f"{node.name}.{method.name}" for method in methods}
    return names


def test_stops_and_places_name_what_exists(page: str, checkout: Path) -> None:
    stops = re.findall(r"^(\d+)\. \*\*\w+\*\* \(`([\w/]+\.py)`, `([\w.]+)`\)\.", page, re.MULTILINE)
    assert [number for number, _, _ in stops] == [str(i + 1) for i in range(len(stops))]
    assert 5 < len(stops) <= 10
    places = re.findall(r"^\| [^|]+ \| `([\w/]+\.py)` \| `([\w.]+)` \|$", page, re.MULTILINE)
    assert len(places) > 5
    for file, name in [(file, name) for _, file, name in stops] + places:
        assert name in names_in(checkout / file), f"{file} has no {name}"


def test_the_packet_is_in_the_result(page: str) -> None:
    analysis = analyze([str(data("i03_write_reorder5_AtoB.atB"))], AnalyzeOptions())
    assert f"counts the packet: 1 of {analysis.flows[0].reordered_packets}." in page
    (finding,) = analysis.diagnosis.findings
    assert f"1 of {finding.packets} late packets from 10.0.0.1 to 10.0.0.2" in page
    assert f"one finding of kind `{finding.kind}`" in page


@pytest.mark.parametrize("room", ["", "analyzer", "replay"])
def test_rooms_are_those_of_the_contract(page: str, checkout: Path, room: str) -> None:
    """All of them, in the same order; modules beside the rooms of a room need no row."""
    contracts = tomllib.loads((checkout / "pyproject.toml").read_text())["tool"]["importlinter"]
    container = ".".join(filter(None, ("rocescope", room)))
    (contract,) = [c for c in contracts["contracts"] if c.get("containers") == [container]]
    layers = [name.strip() for layer in contract["layers"] for name in layer.split("|")]
    start = f"{room}/" if room else ""
    listed = re.findall(rf"^\| `{start}(\w+)` \|", page, re.MULTILINE)
    ordered = [name for name in layers if not room or (checkout / room / name).is_dir()]
    assert [name for name in listed if name in ordered] == ordered
    folders = {path.parent.name for path in (checkout / room).glob("*/__init__.py")} - {"tests"}
    assert set(listed) >= folders and (not room or set(listed) == folders)


def test_files_and_folders_that_the_page_names_exist(page: str, checkout: Path) -> None:
    named = set(re.findall(r"`([a-z_]+(?:/[\w.]+)+|[a-z_]+\.py)`", page))
    assert len(named) > 40
    assert [name for name in sorted(named) if not (checkout / name).exists()] == []
