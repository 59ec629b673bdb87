"""MRC ports and entropy values out of use, on generated traffic with known faults."""

from __future__ import annotations

import json

import pytest

from rocescope.analyzer.analysis.analyze import analyze
from rocescope.analyzer.analysis.options import AnalyzeOptions
from rocescope.commands.replay.generate import generate_mrc


def faults(tmp_path, **options):
    path, truth = tmp_path / "mrc.pcap", tmp_path / "truth.json"
    assert generate_mrc(output=path, truth=truth, progress="none", **options) == 0
    diagnosis = analyze([str(path)], AnalyzeOptions()).diagnosis
    return [f for f in diagnosis.findings if f.kind == "mrc-path"], json.loads(truth.read_text())


def test_healthy_planes_have_none(tmp_path):
    found, _ = faults(tmp_path)
    assert found == []


def test_a_failed_plane(tmp_path):
    found, _ = faults(tmp_path, fail_plane=2)
    assert found
    assert all(f.severity == "warning" and f.flows for f in found)
    assert any("port 3" in f.sentence or "plane" in f.sentence for f in found)


@pytest.mark.parametrize("plane", [0, 1])
def test_the_place_names_the_plane(tmp_path, plane):
    found, _ = faults(tmp_path, fail_plane=plane)
    assert {f.place.device for f in found}
