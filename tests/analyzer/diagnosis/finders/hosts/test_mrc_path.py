"""MRC ports and entropy values out of use, on generated traffic with known faults."""

from __future__ import annotations

import json

import pytest

from rocescope.analyzer.analysis.analyze import analyze
from rocescope.analyzer.analysis.options import AnalyzeOptions
from rocescope.commands.replay.generate_mrc import generate_mrc


@pytest.fixture
def diagnosed(tmp_path):
    """Faults of generated traffic, without notes, and the truth."""

    def run(**options):
        path, truth = tmp_path / "mrc.pcap", tmp_path / "truth.json"
        assert generate_mrc(output=path, truth=truth, **options) == 0
        findings = analyze([str(path)], AnalyzeOptions()).diagnosis.findings
        return [f for f in findings if f.severity != "note"], json.loads(truth.read_text())

    return run


@pytest.mark.parametrize("tap", ["sender", "receiver"])
def test_healthy_planes(diagnosed, tap):
    assert diagnosed(tap=tap)[0] == []


def test_a_port_that_is_down(diagnosed):
    (found,), truth = diagnosed(fail_plane=2)
    (outage,) = truth["outages"]
    assert (found.kind, found.severity) == ("mrc-path", "warning")
    assert (found.place.host, found.place.device) == (outage["host"], f"port {outage['port']}")
    assert outage["down_ns"] <= found.from_ns <= outage["up_ns"]
    assert found.until_ns >= outage["up_ns"]
    assert f"port {outage['port']} of {outage['host']} is down" in found.sentence


def test_entropy_values_that_a_receiver_declares_bad(diagnosed):
    (found,), truth = diagnosed(always_skip=3)
    assert (found.kind, found.packets) == (
        "mrc-path",
        sum(f["always_skip"] for f in truth["flows"]),
    )
    assert "senders stopped using" in found.sentence
