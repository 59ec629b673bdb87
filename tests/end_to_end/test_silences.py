"""Traffic with silences of 15 s, through three taps that lose nothing."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import dpkt
import pytest
from captures import data
from examples import first
from factories import Frame, write_pcap

from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions

HOP_NS = 2_000_000
SILENCE_NS = 15 * 10**9
FASTER = 50
"""So that many packets are between two taps."""
SILENT_BEFORE = (0.1, 0.3, 0.5)
"""After these parts of the capture."""


def routed(frame: bytes, hops: int) -> bytes:
    """The frame after some routers: RFC 1624."""
    packet = bytearray(frame)
    packet[22] -= hops
    total = int.from_bytes(packet[24:26]) + (hops << 8)
    packet[24:26] = ((total & 0xFFFF) + (total >> 16)).to_bytes(2)
    return bytes(packet)


def taps_of(name: str) -> tuple[list[list[Frame]], int]:
    """The frames at each tap, and the number of packets."""
    with gzip.open(data(name)) as capture:
        captured = [
            (round(time * 10**9), frame)
            for time, frame in dpkt.pcap.Reader(io.BytesIO(capture.read()))
            if frame[12:14] == b"\x08\0" and frame[23] == dpkt.ip.IP_PROTO_UDP
        ]
    taps: list[list[Frame]] = [[], [], []]
    start, sender = captured[0][0], captured[0][1][26:30]
    for number, (time, frame) in enumerate(captured):
        silences = sum(number >= part * len(captured) for part in SILENT_BEFORE)
        sent = start + (time - start) // FASTER + silences * SILENCE_NS
        for hops, tap in enumerate((0, 1, 2) if frame[26:30] == sender else (2, 1, 0)):
            taps[tap].append(Frame(sent + hops * HOP_NS, routed(frame, hops)))
    return [sorted(tap, key=lambda frame: frame.time_ns) for tap in taps], len(captured)


@pytest.mark.thorough
@pytest.mark.parametrize("name", first(1, ["c16", "c08", "c07"]))
def test_nothing_is_lost_after_a_silence(tmp_path: Path, name: str) -> None:
    taps, packets = taps_of(name)
    paths = [write_pcap(tmp_path / f"{n}.pcap", tap) for n, tap in enumerate(taps)]
    result = analyze([str(path) for path in paths], AnalyzeOptions())
    assert result.diagnosis.findings == []
    assert any("loss" in claim or "lost" in claim for claim in result.diagnosis.healthy)
    assert sum(hop.passed_packets for hop in result.hops) == 2 * packets
    assert [hop.lost_packets for hop in result.hops if hop.lost_packets] == []
