"""Generated captures against scapy, tshark, zlib's CRC and the analyzer."""

from __future__ import annotations

import io
import struct
import subprocess
import zlib
from collections import defaultdict

import dpkt
import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import IP
from scapy.layers.l2 import Ether

from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.replay.fabrics.fabric import AddressPlan
from rocescope.replay.generate.from_pattern import generate
from rocescope.replay.generate.patterns import PATTERNS, Settings
from rocescope.replay.generate.pcap_writer import write_pcap
from rocescope.replay.generate.queue_pairs import START_NS, Sending

SETTINGS = Settings(
    hosts=5, message_bytes=10_001, messages=3, flows=7, fan_in=None, load=0.5,
    rate_bits_per_second=100 * 10**9,
)  # fmt: skip


def written(pairs, snap=0):
    """(time in ns, captured bytes, wire length) of every record."""
    file = io.BytesIO()
    count = write_pcap(file, pairs, AddressPlan(SETTINGS.hosts), snap)
    data = file.getvalue()
    magic, major, minor, _, _, _, link_type = struct.unpack_from("<IHHiIII", data)
    assert (magic, major, minor, link_type) == (0xA1B23C4D, 2, 4, 1)
    at, records = 24, []
    while at < len(data):
        seconds, ns, captured, wire = struct.unpack_from("<IIII", data, at)
        records.append((seconds * 10**9 + ns, data[at + 16 : at + 16 + captured], wire))
        at += 16 + captured
    assert len(records) == count == pairs.total_packets
    return records


def icrc_of(frame, ipv6):
    """The invariant CRC by its definition, with zlib (InfiniBand Architecture A17.3.3)."""
    ip = bytearray(frame[14:-4])
    if ipv6:
        ip[0:4] = bytes([0x6F, 0xFF, 0xFF, 0xFF])
        ip[7] = 0xFF
        udp = 40
    else:
        ip[1] = ip[8] = ip[10] = ip[11] = 0xFF
        udp = 20
    ip[udp + 6] = ip[udp + 7] = 0xFF
    ip[udp + 12] = 0xFF
    return struct.pack("<I", zlib.crc32(bytes(8 * [0xFF]) + bytes(ip)))


@given(
    st.sampled_from(sorted(PATTERNS)),
    st.integers(1, 3),
    st.integers(1, 5),
    st.sampled_from([256, 1024, 4096]),
    st.integers(15, 5000),
    st.booleans(),
    st.booleans(),
)
@examples(25)
def test_frames_agree_with_scapy_dpkt_and_zlib(pattern, qps, spray, mtu, size, ipv6, write):
    sending = Sending(qps=qps, entropy_values=spray, path_mtu=mtu, ipv6=ipv6, write=write)
    records = written(generate(pattern, SETTINGS._replace(message_bytes=size), sending, seed=3))
    assert [t for t, _, _ in records] == sorted(t for t, _, _ in records)
    for time_ns, frame, wire in records:
        assert wire == len(frame) and time_ns >= START_NS
        ethernet = dpkt.ethernet.Ethernet(frame)
        network = ethernet.data
        udp = network.data
        assert isinstance(udp, dpkt.udp.UDP) and (udp.dport, udp.ulen) == (4791, len(udp))
        assert udp.sport >= 0xC000
        assert frame[-4:] == icrc_of(frame, ipv6)
        if ipv6:
            assert network.plen == len(frame) - 54
            continue
        assert network.len == len(frame) - 14
        packet = Ether(frame)
        right = packet[IP].chksum
        del packet[IP].chksum
        assert Ether(bytes(packet))[IP].chksum == right


def bth(frame):
    """(opcode, pad, destination QP, ACK request, PSN, what follows) of an IPv4 frame."""
    head = frame[42:54]
    return (
        head[0], head[1] >> 4 & 3, int.from_bytes(head[5:8], "big"), head[8] >> 7,
        int.from_bytes(head[9:12], "big"), frame[54:-4],
    )  # fmt: skip


@pytest.mark.thorough
def test_messages_psns_reth_and_aeth():
    pairs = generate("incast", SETTINGS._replace(fan_in=1), Sending(path_mtu=4096), seed=1)
    (src_qp,), (dst_qp,) = pairs.src_qp.tolist(), pairs.dst_qp.tolist()
    (first,) = pairs.first_psn.tolist()
    data, acks = [], []
    for _, frame, _ in written(pairs):
        (acks if frame[42] == 0x11 else data).append(bth(frame))
    # Three messages of 10,001 bytes: 4096 + 4096 + 1809 and three bytes of padding.
    assert [p[0] for p in data] == [0x06, 0x07, 0x08] * 3  # WRITE first, middle, last
    assert [p[1] for p in data] == [0, 0, 3] * 3
    assert {p[2] for p in data} == {dst_qp} and {p[2] for p in acks} == {src_qp}
    assert [p[3] for p in data] == [0, 0, 1] * 3
    assert [p[4] for p in data] == [(first + i) % (1 << 24) for i in range(9)]
    assert [len(p[5]) for p in data] == [16 + 4096, 4096, 1812] * 3
    virtual_addresses = []
    for packet in data[::3]:
        address, _, length = struct.unpack(">QII", packet[5][:16])
        assert length == 10_001
        virtual_addresses.append(address)
    assert np.diff(virtual_addresses).tolist() == [10_001, 10_001]
    assert [(p[0], p[4]) for p in acks] == [(0x11, (first + i) % (1 << 24)) for i in (2, 5, 8)]
    assert [p[5] for p in acks] == [bytes([0x1F, 0, 0, msn]) for msn in (1, 2, 3)]


def test_psns_wrap_at_24_bits():
    pairs = generate("incast", SETTINGS._replace(fan_in=1), seed=1)
    pairs.first_psn[:] = 0xFFFFFE
    psns = [bth(frame)[4] for _, frame, _ in written(pairs) if frame[42] != 0x11]
    assert psns == [0xFFFFFE, 0xFFFFFF, 0, 1, 2, 3, 4, 5, 6]


def test_entropy_values_come_in_turn_and_acks_keep_the_port_of_linux():
    pairs = generate("permutation", SETTINGS, Sending(entropy_values=3, path_mtu=1024), seed=5)
    ports, acked = defaultdict(list), defaultdict(set)
    for _, frame, _ in written(pairs):
        opcode, _, qp, _, psn, _ = bth(frame)
        key = frame[26:30], frame[30:34], qp
        sport = int.from_bytes(frame[34:36], "big")
        if opcode == 0x11:
            acked[key].add(sport)
        else:
            ports[key].append(sport)
    assert len(ports) == len(acked) == 5
    for used in ports.values():
        assert len(set(used)) == 3 and used == (used[:3] * 10)[: len(used)]
    assert {used[0] for used in ports.values()} == {p for a in acked.values() for p in a}


def test_a_snapped_file_holds_the_beginnings_of_the_same_frames():
    pairs = generate("random", SETTINGS, Sending(qps=2), seed=2)
    whole, cut = written(pairs), written(pairs, 100)
    for (time, frame, wire), (cut_time, cut_frame, cut_wire) in zip(whole, cut, strict=True):
        assert (time, wire) == (cut_time, cut_wire)
        assert cut_frame == frame[:100]


@pytest.mark.parametrize("pattern", sorted(PATTERNS))
@pytest.mark.parametrize("ipv6", [False, True])
def test_the_analyzer_finds_nothing_wrong(pattern, ipv6, tmp_path):
    sending = Sending(qps=2, entropy_values=4, path_mtu=1024, ipv6=ipv6)
    pairs = generate(pattern, SETTINGS._replace(message_bytes=16_384, messages=4), sending, seed=9)
    path = tmp_path / "g.pcap"
    with path.open("wb") as file:
        write_pcap(file, pairs, AddressPlan(SETTINGS.hosts), 0)
    analysis = analyze([str(path)], AnalyzeOptions(icrc=True))
    assert not analysis.events
    (capture,) = analysis.captures
    assert (capture.roce_packets, capture.damaged_places) == (pairs.total_packets, 0)
    assert capture.icrc == {"ok": pairs.total_packets, "bad": 0, "truncated": 0}
    assert len(analysis.connections) == len(pairs)
    assert len(analysis.flows) == 2 * len(pairs)
    for flow in analysis.flows:
        anomalies = (
            flow.reordered_packets, flow.retransmitted_packets, flow.duplicate_packets,
            flow.missing_packets, flow.naks, flow.rnr_naks, flow.cnps, flow.ecn_marked_packets,
        )  # fmt: skip
        assert not any(anomalies)
        if flow.messages and pattern not in ("ring-allreduce", "trace-like"):
            assert flow.spraying_width == pytest.approx(4, rel=0.01)


def test_tshark_reads_the_same(need_tool, tmp_path):
    pairs = generate("permutation", SETTINGS, Sending(qps=2, entropy_values=2), seed=4)
    path = tmp_path / "g.pcap"
    with path.open("wb") as file:
        write_pcap(file, pairs, AddressPlan(SETTINGS.hosts), 0)
    fields = ("ip.checksum.status", "infiniband.bth.opcode", "infiniband.bth.destqp",
              "infiniband.bth.psn", "infiniband.aeth.msn", "infiniband.reth.dmalen",
              "udp.length", "_ws.malformed")  # fmt: skip
    command = [need_tool("tshark"), "-r", str(path), "-o", "ip.check_checksum:TRUE", "-T", "fields"]
    out = subprocess.run(
        [*command, *(word for f in fields for word in ("-e", f))],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    rows = [line.split("\t") for line in out.splitlines()]
    records = written(pairs)
    assert len(rows) == len(records)
    for row, (_, frame, _) in zip(rows, records, strict=True):
        opcode, _, qp, _, psn, rest = bth(frame)
        assert row[0] == "1"  # the header checksum is good
        assert [int(value, 0) for value in row[1:4]] == [opcode, qp, psn]
        assert int(row[6]) == len(frame) - 34
        assert row[7] == ""
        if opcode == 0x11:
            assert int(row[4]) == rest[3]
        elif opcode == 0x06:
            assert int(row[5]) == int.from_bytes(rest[12:16], "big")
