"""MRC ports and entropy values out of use, on generated traffic with known faults."""

from __future__ import annotations

import json
import struct

import pytest

from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
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


def test_values_that_senders_retire_although_nothing_is_lost_between_taps(tmp_path):
    """A second tap sees all packets of the first one, 5 us later."""
    first, second = tmp_path / "before.pcap", tmp_path / "after.pcap"
    assert generate_mrc(output=first, evs=8, loss=0.2, no_srv6=True) == 0
    second.write_bytes(_later(first.read_bytes(), 5_000))
    (found,) = _warnings([first])
    assert "although" not in found.sentence
    assert found.packets <= found.of_packets
    (found,) = _warnings([first, second])
    assert "stopped using 8 entropy values, although none of their packets was" in found.sentence
    assert "late SACKs" in found.next_step


def _warnings(paths):
    findings = analyze([str(path) for path in paths], AnalyzeOptions()).diagnosis.findings
    return [f for f in findings if f.severity != "note"]


def _later(pcap, ns):
    """A pcap with nanoseconds, its frames later by so much."""
    changed, at = bytearray(pcap), 24
    while at < len(pcap):
        seconds, rest, size = struct.unpack_from("<III", pcap, at)
        struct.pack_into("<II", changed, at, *divmod(seconds * 10**9 + rest + ns, 10**9))
        at += 16 + size
    return bytes(changed)
