"""Trimmed packets of MRC, on generated traffic with its truth."""

from __future__ import annotations

import json

import pytest

from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.commands.replay.generate_mrc import generate_mrc


@pytest.fixture
def made(tmp_path):
    """A capture at one end, and the truth."""

    def make(tap, **options):
        path, truth = tmp_path / f"{tap}.pcap", tmp_path / f"{tap}.json"
        assert generate_mrc(output=path, truth=truth, trim=0.01, tap=tap, **options) == 0
        return path, json.loads(truth.read_text())

    return make


def warnings(*paths, **options):
    found = analyze([str(path) for path in paths], AnalyzeOptions(**options)).diagnosis.findings
    return [f for f in found if f.severity != "note"]


def told(truth):
    """NACKs of trimmed packets by sender."""
    return {flow["src"]: flow["nacks"]["TRIMMED"] for flow in truth["flows"]}


@pytest.mark.parametrize(
    ("tap", "place", "confidence"),
    [("sender", "after the tap", "likely"), ("receiver", "before the tap", "proven")],
)
def test_one_tap(made, tap, place, confidence):
    path, truth = made(tap)
    found = warnings(path)
    assert {f.affected[0].src: f.packets for f in found} == told(truth)
    for one in found:
        assert (one.kind, one.severity, one.confidence) == ("queueing", "warning", confidence)
        assert (one.place.direction, one.queue_pairs) == (place, 1)
        assert (one.place.from_tap or one.place.to_tap) == path.name
        assert one.place.host == one.affected[0].dst
        assert f"are trimmed {place}: a queue is full" in one.sentence
        assert [e.time_ns for e in one.evidence] == [one.from_ns]


def test_nacks_without_the_packets(made):
    path, truth = made("sender")
    found = warnings(path, filter="mrc.nack")
    assert sorted(f.packets for f in found) == sorted(told(truth).values())
    for one in found:
        assert one.place.host in told(truth)
        assert (one.queue_pairs, one.of_packets) == (1, 0)
        assert "name trimmed packets that no tap saw" in one.sentence


def test_packets_trimmed_between_taps_are_not_counted_again(made):
    (first, truth), (second, _) = made("sender"), made("receiver")
    (found,) = warnings(first, second)
    assert (found.kind, found.packets) == ("queueing", sum(told(truth).values()))
    assert found.place.direction != "after the tap"


def test_no_trims(made, tmp_path):
    path = tmp_path / "clean.pcap"
    assert generate_mrc(output=path) == 0
    assert warnings(path) == []
