"""The page on the architecture: the packet that it follows, and the rooms that it lists."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
from captures import data

from rocescope.analyzer.capture.source import open_capture
from rocescope.analyzer.decode.decoder import Decoder
from rocescope.analyzer.pipeline.captures import BATCH_FRAMES
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


@pytest.mark.parametrize("room", ["", "analyzer", "replay"])
def test_rooms_are_those_of_the_contract(page: str, checkout: Path, room: str) -> None:
    """In the same order; modules beside the rooms of a room need no row."""
    contracts = tomllib.loads((checkout / "pyproject.toml").read_text())["tool"]["importlinter"]
    container = ".".join(filter(None, ("rocescope", room)))
    (contract,) = [c for c in contracts["contracts"] if c.get("containers") == [container]]
    layers = [name.strip() for layer in contract["layers"] for name in layer.split("|")]
    rooms = [name for name in layers if not room or (checkout / room / name).is_dir()]
    start = f"{room}/" if room else ""
    listed = re.findall(rf"^\| `{start}(\w+)` \|", page, re.MULTILINE)
    assert listed == rooms


def test_files_and_folders_that_the_page_names_exist(page: str, checkout: Path) -> None:
    named = set(re.findall(r"`([a-z_]+(?:/[\w.]+)+|[a-z_]+\.py)`", page))
    assert len(named) > 40
    assert [name for name in sorted(named) if not (checkout / name).exists()] == []
