"""What captures hide of transmissions: cut headers, copies, packets without identifications."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from captures import DATA
from factories import Frame, write_pcap

from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.results.analysis import Analysis

BTH, AETH = 12, 4
VXLAN = (
    bytes(12) + b"\x08\x00" + struct.pack("!BBHHHBBH4s4s", 0x45, 0, 0, 0, 0, 64, 17, 0,
    b"\x0a\x09\x00\x01", b"\x0a\x09\x00\x02") + struct.pack("!HHHH", 5555, 4789, 0, 0)
    + struct.pack("!II", 0x08000000, 42 << 8)
)  # fmt: skip
"""Ethernet, IPv4, UDP and VXLAN headers without lengths."""


def frames_of(name: str) -> Iterator[Frame]:
    """The frames of a pcap, with their lengths on the wire."""
    data = gzip.decompress((DATA / name).read_bytes())
    nanoseconds = data[:4] == b"\x4d\x3c\xb2\xa1"
    at = 24
    while at < len(data):
        seconds, fraction, held, wire = struct.unpack_from("<IIII", data, at)
        time_ns = seconds * 1_000_000_000 + fraction * (1 if nanoseconds else 1000)
        yield Frame(time_ns, data[at + 16 : at + 16 + held], wire)
        at += 16 + held


def in_vxlan(frame: Frame) -> Frame:
    """The frame inside VXLAN."""
    outer = bytearray(VXLAN)
    struct.pack_into("!H", outer, 16, frame.wire_bytes + len(VXLAN) - 14)
    struct.pack_into("!H", outer, 38, frame.wire_bytes + len(VXLAN) - 34)
    return Frame(frame.time_ns, bytes(outer) + frame.data, frame.wire_bytes + len(VXLAN))


def snapped(path: Path, frames: list[Frame], snap: int) -> Analysis:
    write_pcap(path, [Frame(f.time_ns, f.data[:snap], f.wire_bytes) for f in frames])
    return analyze([str(path)], AnalyzeOptions())


CASES = [  # name, bytes before the BTH, VXLAN, NAKs
    ("cases/s1_nak_full.pcap.gz", 14 + 4 + 40 + 8, False, 4),  # VLAN and IPv6
    ("cases/s1_qinq_full.pcap.gz", 14 + 8 + 20 + 8, False, 4),  # QinQ
    ("cases/s1_nak_full.pcap.gz", 50 + 14 + 4 + 40 + 8, True, 4),
    ("cases/s1_qinq_full.pcap.gz", 50 + 14 + 8 + 20 + 8, True, 4),
]


@pytest.mark.parametrize(("name", "bth", "tunnel", "naks"), CASES)
def test_an_answer_without_its_aeth_is_no_ack(
    name: str, bth: int, tunnel: bool, naks: int, tmp_path: Path
) -> None:
    frames = [in_vxlan(f) if tunnel else f for f in frames_of(name)]
    whole = snapped(tmp_path / "whole.pcap", frames, 1 << 16)
    assert sum(f.naks or 0 for f in whole.flows) == naks
    assert any(f.kind == "loss" for f in whole.diagnosis.findings)
    full = bth + BTH + AETH
    for snap in (bth + BTH, full - 1, full):
        result = snapped(tmp_path / f"{snap}.pcap", frames, snap)
        sender, receiver = sorted(result.flows, key=lambda flow: -flow.data_packets)
        healthy, limits = " ".join(result.diagnosis.healthy), " ".join(result.diagnosis.limits)
        if snap == full:
            assert receiver.naks == naks and "snap length keeps" not in limits
            continue
        assert (receiver.naks, receiver.rnr_naks) == (None, None)
        assert (sender.recovery.naks, sender.recovery.rnr_naks) == (None, None)
        assert sender.message_statistics.completion_ns is None
        assert sender.goodput_bits_per_second is None
        assert sender.recovery.retransmitted_by == {"unknown": sender.retransmitted_packets}
        assert "NAK" not in healthy
        around = len(VXLAN) if tunnel else 0
        assert f"the snap length keeps {snap - around} bytes of a frame" in limits
        assert f"capture at least {full - snap} byte" in limits
        assert f"tcpdump -s {full - around}," in limits
        assert not [f for f in result.diagnosis.findings if f.kind in ("stalled", "capture-loss")]


@pytest.mark.parametrize("snap", [54, 69, 70])
def test_a_read_without_its_length_reserves_an_unknown_number_of_psns(
    snap: int, tmp_path: Path
) -> None:
    result = snapped(tmp_path / "x.pcap", list(frames_of("c04_rc_read_q4_64k.atB.pcap.gz")), snap)
    asking = [flow for flow in result.flows if flow.request_packets]
    assert {flow.messages for flow in asking} == {80}
    for flow in result.flows:
        assert (flow.missing_packets, flow.retransmitted_packets) in ((0, 0), (None, None))
        assert not flow.reordered_packets
        assert (flow.message_statistics.size_bytes is None) == (
            not flow.request_packets or snap < 70
        )
    assert not result.diagnosis.findings
    limits = " ".join(result.diagnosis.limits)
    assert ("320 READs of unknown length" in limits) == (snap < 70)
    assert ("tcpdump -s 70," in limits) == (snap < 70)


# Captures that hold packets twice, without IP identifications.

COPIES = [(50, 1), (300, 1), (1000, 1), (2000, 1), (300, 10), (1500, 7)]


def originals() -> list[Frame]:
    """The distinct frames of a capture that holds each frame twice, 300 ns apart."""
    kept: dict[bytes, int] = {}
    frames = []
    for frame in frames_of("cases/dup_all_v6.pcap.gz"):
        if frame.time_ns - kept.get(frame.data, 0) != 300:
            kept[frame.data] = frame.time_ns
            frames.append(frame)
    return frames


@pytest.mark.parametrize(("lag_ns", "nth"), COPIES)
def test_copies_without_identifications_are_no_retransmissions(
    lag_ns: int, nth: int, tmp_path: Path
) -> None:
    frames = originals()
    assert len(frames) == 1070 + 70
    copied = frames[::nth]
    doubled = sorted(
        [*frames, *(Frame(f.time_ns + lag_ns, f.data, f.wire_bytes) for f in copied)],
        key=lambda frame: frame.time_ns,
    )
    path = write_pcap(tmp_path / "x.pcap", doubled)
    result = analyze([str(path)], AnalyzeOptions())
    sender, receiver = sorted(result.flows, key=lambda flow: -flow.data_packets)
    assert sender.packets + receiver.packets == len(doubled)
    assert sender.duplicate_packets == sum(f.wire_bytes > 500 for f in copied)
    assert (sender.retransmitted_packets, receiver.naks) == (110, 10)
    assert (sender.recovered_packets, sender.missing_packets) == (0, 0)
    notes = [f for f in result.diagnosis.findings if f.kind == "duplication"]
    assert notes
    if nth == 1:
        assert all("--drop-duplicates 2us" in note.next_step for note in notes)
        assert {note.packets for note in notes} == {1070, 70}


def test_packets_doubled_with_identifications_are_counted_the_same() -> None:
    by_id, without = (
        analyze([str(DATA / f"cases/dup_all_{ip}.pcap.gz")], AnalyzeOptions())
        for ip in ("v4", "v6")
    )
    for flow, other in zip(by_id.flows, without.flows, strict=True):
        for name in ("packets", "retransmitted_packets", "duplicate_packets", "naks", "messages"):
            assert getattr(flow, name) == getattr(other, name), name


# Two taps before and after a lossy link.


@pytest.mark.parametrize("ip", ["v4id", "v6"])
def test_a_quick_retransmission_between_taps_is_a_transmission_of_its_own(ip: str) -> None:
    """A NAK 5 us after the loss, and the packets at once: without identifications as with them."""
    result = analyze(
        [str(DATA / f"cases/two_{ip}_{tap}.pcap.gz") for tap in "AB"], AnalyzeOptions()
    )
    (hop,) = [hop for hop in result.hops if hop.lost_packets]
    assert (hop.lost_packets, hop.reordered_packets) == (30, 0)
    assert sum(flow.retransmitted_packets or 0 for flow in result.flows) == 330
    (finding,) = [f for f in result.diagnosis.findings if f.severity != "note"]
    assert (finding.packets, finding.of_packets) == (30, 3210)
    assert finding.place.from_tap is not None and finding.place.to_tap is not None
