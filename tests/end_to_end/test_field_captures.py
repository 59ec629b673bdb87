"""Captures as mirrors in the field write them, header by header as hexadecimal from the RFCs.

Nothing here is built by the code under test or by the other tests' wrappers: it is a second
pair of eyes. Every capture holds one message and its ACK; wherever they are found, the flows
must be those of the plain capture.
"""

from __future__ import annotations

import random
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import UNSET

from rocescope.analyzer.errors import RocescopeError
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.results.analysis import Analysis
from rocescope.analyzer.results.flow import Flow
from rocescope.analyzer.wire.registry import parse_usid_format

MACS = "0c42a1000001 0c42a1000002"
H1, H2 = "0a010101", "0a010202"  # 10.1.1.1, 10.1.2.2
V6 = "20010db8000000000000000000000001 20010db8000000000000000000000009"


def hexed(text: str) -> bytes:
    return bytes.fromhex(text)


def length(n: int) -> str:
    return f"{n:04x}"


def packet(
    psn: int, opcode: int, body: str, source: str, to: str, qp: str, port: int = 4791
) -> str:
    """An IPv4 packet of RoCEv2 without options, DF, TTL 64, UDP checksum 0, ICRC not computed."""
    bth = f"{opcode:02x} 40 ffff 00{qp} {'80' if opcode in (8, 10) else '00'}{psn:06x}"
    inside = bth + body + "deadbeef"
    udp = f"c350 {port:04x} {length(8 + len(hexed(inside)))} 0000"
    total = 20 + 8 + len(hexed(inside))
    return f"45 02 {length(total)} {psn:04x} 4000 40 11 0000 {source} {to} {udp} {inside}"


RETH = "0000 7f00 0000 1000 0000 abcd 0000 0c00"
PACKETS = [
    packet(7, 0x06, RETH + "11" * 1024, H1, H2, "000011"),
    packet(8, 0x07, "22" * 1024, H1, H2, "000011"),
    packet(9, 0x08, "33" * 1024, H1, H2, "000011"),
    packet(9, 0x11, "1f000001", H2, H1, "000012"),
]


def ether(packet: str) -> str:
    return f"{MACS} 0800 {packet}"


def tagged(packet: str) -> str:
    return f"{MACS} 8100 6064 0800 {packet}"


def v4(protocol: str, inside: str) -> str:
    total = 20 + len(hexed(inside))
    return (
        f"{MACS} 0800 45 00 {length(total)} 0001 0000 ff {protocol} 0000 c0000201 c0000209 {inside}"
    )


def v6(next_header: str, inside: str, tag: str = "", target: str = "") -> str:
    ends = V6 if not target else V6[:33] + target
    header = f"60000000 {length(len(hexed(inside)))} {next_header} 40 {ends}"
    return f"{MACS} {tag} 86dd {header} {inside}"


def udp(port: str, inside: str) -> str:
    return f"d000 {port} {length(8 + len(hexed(inside)))} 0000 {inside}"


USIDS = "fcbb bbbb 0101 0102 0201 f001 0000 0000"
SRH = "{} 06 04 01 02 00 0000 " + "20010db8000000000000000000000002" + USIDS + USIDS
ERSPAN3 = "1000 22eb 00000007 2064 02a5 0001e240 0000 0002"  # VLAN 100, session 677, 100 ns
ERSPAN3_PLATFORM = "1000 22eb 00000008 2064 02a5 0001e240 0000 0003 0c000000 5f5e1000"
GENEVE_OPTIONS = "05 40 6558 00007b 00 0102 80 01 cafebabe 0103 01 02" + "55" * 8
WRAPPED = {
    "VLAN": tagged,
    "QinQ": lambda p: f"{MACS} 88a8 0065 8100 0064 0800 {p}",
    "the whole nest": lambda p: v6("2f", ERSPAN3 + tagged(p), tag="8100 0064"),
    "ERSPAN III with platform sub-header": lambda p: v4("2f", ERSPAN3_PLATFORM + ether(p)),
    "ERSPAN III of an IP packet": lambda p: v4(
        "2f", "1000 22eb 00000007 2000 02a5 0001e240 0000 0802" + p
    ),
    "ERSPAN II": lambda p: v4("2f", "1000 88be 00000001 1064 1805 00000000" + ether(p)),
    "ERSPAN I": lambda p: v4("2f", "0000 88be" + ether(p)),
    "GRE with Ethernet": lambda p: v4("2f", "0000 6558" + ether(p)),
    "GRE with key and sequence": lambda p: v4("2f", "3000 6558 00000bad 00000001" + ether(p)),
    "GRE with checksum": lambda p: v4("2f", "8000 6558 1234 0000" + ether(p)),
    "GRE with IP": lambda p: v6("2f", "0000 0800" + p),
    "SONiC, 12 bytes": lambda p: v4("2f", "0000 88be 00000001 1000 0001 00000000" + ether(p)),
    "NVIDIA, 22 bytes": lambda p: v4("2f", "0000 8949" + "a5" * 22 + ether(p)),
    "VXLAN": lambda p: v4("11", udp("12b5", "08000000 001388 00" + ether(p))),
    "Geneve": lambda p: v4("11", udp("17c1", "00 00 6558 00007b 00" + ether(p))),
    "Geneve with options": lambda p: v6(
        "11", udp("17c1", GENEVE_OPTIONS + ether(p))
    ),
    "IP in IP": lambda p: v4("04", p),
    "IPv4 in IPv6": lambda p: v6("04", p),
    "MPLS with IP": lambda p: f"{MACS} 8847 0001 00fe 0001 11fe {p}",
    "MPLS pseudo-wire": lambda p: f"{MACS} 8847 0001 11fe {ether(p)}",
    "MPLS with control word": lambda p: f"{MACS} 8847 0001 00fe 0001 11fe 0000 0001 {ether(p)}",
    "SRv6, uSIDs": lambda p: v6("04", p, target=USIDS),
    "SRv6, SRH partly used": lambda p: v6("2b", SRH.format("04") + p, target=USIDS),
    "SRv6, Ethernet": lambda p: v6("8f", ether(p), target=USIDS),
    "Arista, 64 bit": lambda p: f"{MACS} d28b 0001 0010 65534c80 0001e240 0800 {p}",
    "Arista, 48 bit": lambda p: f"{MACS} d28b 0001 0020 4c80 0001e240 0800 {p}",
    "Arista in GRE": lambda p: v4(
        "2f", f"2000 6558 00000003 {MACS} d28b 0001 0010 65534c80 0001e240 0800 {p}"
    ),
    "VXLAN in VLAN around IP in IP": lambda p: v6(
        "11", udp("12b5", "08000000 001388 00" + v4("04", p)), tag="8100 0007"
    ),
}  # fmt: skip
MIRRORS = {
    "ERSPAN I", "ERSPAN II", "ERSPAN III with platform sub-header", "GRE with Ethernet",
    "GRE with key and sequence", "GRE with checksum", "SONiC, 12 bytes", "NVIDIA, 22 bytes",
    "VXLAN", "Geneve", "Geneve with options",
}  # fmt: skip


def written(path: Path, frames: list[str] | list[bytes]) -> Path:
    """A classic pcap with nanoseconds, big endian; frames 1 us apart."""
    data = struct.pack(">IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1)
    for i, frame in enumerate(frames):
        content = hexed(frame) if isinstance(frame, str) else frame
        data += struct.pack(">IIII", 1_700_000_000, 1000 * i, len(content), len(content)) + content
    path.write_bytes(data)
    return path


def analysed(path: Path, **options: object) -> Analysis:
    return analyze([str(path)], AnalyzeOptions(**options))  # type: ignore[arg-type]


def figures(flow: Flow) -> tuple[object, ...]:
    return (
        flow.src, flow.dst, flow.dest_qp, flow.transport, flow.packets, flow.payload_bytes,
        flow.opcodes, flow.messages, flow.path_mtu, flow.missing_packets,
        flow.reordered_packets, flow.retransmitted_packets, flow.congestion.dscp,
    )  # fmt: skip


PLAIN = [
    ("10.1.1.1", "10.1.2.2", 0x11, 3, 3072),
    ("10.1.2.2", "10.1.1.1", 0x12, 1, 0),
]


def test_the_plain_capture(tmp_path: Path) -> None:
    found = analysed(written(tmp_path / "x.pcap", [ether(p) for p in PACKETS]))
    assert [(f.src, f.dst, f.dest_qp, f.packets, f.payload_bytes) for f in found.flows] == PLAIN
    assert found.flows[0].messages == 1 and found.flows[0].path_mtu == 1024


@pytest.mark.thorough
@pytest.mark.parametrize("name", WRAPPED)
def test_the_same_flows_wherever_they_are_found(tmp_path: Path, name: str) -> None:
    plain = analysed(written(tmp_path / "plain.pcap", [ether(p) for p in PACKETS]))
    path = written(tmp_path / "x.pcap", [WRAPPED[name](p) for p in PACKETS])
    found = analysed(path)
    assert list(map(figures, found.flows)) == list(map(figures, plain.flows))
    assert found.captures[0].roce_packets == 4
    for mine, theirs in zip(found.flows, plain.flows, strict=True):
        if name in MIRRORS:  # their headers are not of the wire that was mirrored
            assert mine.wire_bytes == theirs.wire_bytes


NOT_IN_TSHARK = {
    "SONiC, 12 bytes", "NVIDIA, 22 bytes", "Arista, 64 bit", "Arista, 48 bit", "Arista in GRE",
    "ERSPAN III of an IP packet", "SRv6, uSIDs",
}  # fmt: skip


def test_tshark_finds_the_same(need_tool: Callable[[str], str], tmp_path: Path) -> None:
    tshark = need_tool("tshark")
    names = [name for name in WRAPPED if name not in NOT_IN_TSHARK]
    path = written(tmp_path / "x.pcap", [WRAPPED[name](p) for name in names for p in PACKETS])
    words = [tshark, "-r", str(path), "-T", "fields", "-e", "infiniband.bth.psn"]
    shown = subprocess.run(words, capture_output=True, text=True, timeout=300, check=True)
    psns = [line.split(",")[-1] for line in shown.stdout.splitlines()]
    found = {name: psns[4 * i : 4 * i + 4] for i, name in enumerate(names)}
    assert found == dict.fromkeys(names, ["7", "8", "9", "9"])


def test_hardware_times(tmp_path: Path) -> None:
    """Arista: seconds and nanoseconds; ERSPAN III counts from the capture time on."""
    for name in ("Arista, 64 bit", "Arista, 48 bit"):
        frames = [
            WRAPPED[name](p).replace("0001e240", f"{i * 500:08x}") for i, p in enumerate(PACKETS)
        ]
        path = written(tmp_path / "x.pcap", frames)
        times = [flow.first_time_ns for flow in analysed(path, mirror=hardware()).flows]
        # 0x65534c80 s. The short form has its low 16 bits: the nearest to 0x6553f100, the capture.
        near = 0x65534C80 if "64" in name else 0x65544C80
        assert times[0] == near * 10**9 and times[1] - times[0] == 1500
    frames = [
        WRAPPED["the whole nest"](p).replace("0001e240", f"{i * 7:08x}")
        for i, p in enumerate(PACKETS)
    ]
    first, last = analysed(written(tmp_path / "x.pcap", frames), mirror=hardware()).flows
    assert last.first_time_ns - first.first_time_ns == 3 * 7 * 100


def hardware() -> object:
    from rocescope.analyzer.decode.mirrors import MirrorOptions

    return MirrorOptions(clock="hardware")


def test_segments_left(tmp_path: Path) -> None:
    path = written(tmp_path / "x.pcap", [WRAPPED["SRv6, uSIDs"](PACKETS[0])] * 2)
    for usid, expected in (
        ("32:16", ["0101", "0102", "0201", "f001"]),
        ("48:16", ["0102", "0201", "f001"]),
        ("32:32", ["01010102", "0201f001"]),
    ):
        (one,) = analysed(path, usid=parse_usid_format(usid)).segment_lists
        assert one.segments == [expected]
    path = written(tmp_path / "y.pcap", [WRAPPED["SRv6, SRH partly used"](PACKETS[0])])
    (one,) = analysed(path).segment_lists
    # One segment is left behind the active one: entry 0, the last of the path.
    assert len(one.segments) == 2
    assert one.segments[0] == ["0101", "0102", "0201", "f001"]


def sample(rate: int, header: str, wire: int, stripped: int = 4, expanded: bool = False) -> str:
    raw = hexed(header)[:128]
    padded = raw + bytes(-len(raw) % 4)
    record = f"00000001 {wire:08x} {stripped:08x} {len(raw):08x} {padded.hex()}"
    record = f"00000001 {len(hexed(record)):08x} {record}"
    ports = "00000000 00000005 00000000 00000006" if expanded else "00000005 00000006"
    source = "00000000 00000005" if expanded else "00000005"
    body = f"00000001 {source} {rate:08x} 00001000 00000000 {ports} 00000001 {record}"
    return f"{3 if expanded else 1:08x} {len(hexed(body)):08x} {body}"


def test_several_samples_in_one_datagram(tmp_path: Path) -> None:
    """Frames of 1,106 bytes, sampled one in 1,000 and one in 3,000; counters between them."""
    data = ether(PACKETS[1])
    wire = len(hexed(data)) + 4  # with its FCS, which is stripped
    counters = "00000002 0000000c 00000001 00000005 00000000"
    samples = sample(1000, data, wire) + counters + sample(3000, data, wire, expanded=True)
    head = "00000005 00000001 c0000201 00000000 00000001 00000064 00000003"
    found = analysed(written(tmp_path / "x.pcap", [v4("11", udp("18c7", head + samples))]))
    (flow,) = found.flows
    assert (flow.packets, flow.dest_qp, flow.retransmitted_packets) == (2, 0x11, None)
    (tap,) = [tap for tap in found.captures[0].taps if tap.roce_packets]
    assert tap.sampling.estimated_packets == 4000
    assert tap.sampling.estimated_wire_bytes == 4000 * len(hexed(data))
    assert tap.sampling.one_in == 2000


WRITE = "{op} 40 ffff 00000011 10{psn:06x} 0001 0002 1234 0001 {reth} {payload}"
MRC_RETH = "00007f0000001000 0000abcd {:08x}"


def mrc_write(psn: int, held: int, meant: int, port: int, dscp: int = 0) -> str:
    """A WRITE with METH, TSETH and RETH of which `held` of `meant` bytes came."""
    inside = WRITE.format(op="ca", psn=psn, reth=MRC_RETH.format(meant), payload="77" * held)
    inside += "deadbeef"
    body = f"c001 {port:04x} {length(8 + len(hexed(inside)))} 0000 {inside}"
    source, to = V6.split()
    first = f"6{dscp << 2 | 2:02x}0abcd {length(len(hexed(body)))} 11 40"
    return f"{MACS} 86dd {first} {source} {to} {body}"


def test_mrc_on_its_ports_and_trimmed(tmp_path: Path) -> None:
    for port, options in ((4791, {}), (4971, {}), (5555, {"udp_ports": (4791, 5555)})):
        whole, cut = mrc_write(7, 1024, 1024, port), mrc_write(8, 64, 1024, port)
        named = mrc_write(9, 1024, 1024, port, dscp=12)
        path = written(tmp_path / "x.pcap", [whole, cut, named])
        (flow,) = analysed(path, trimmed_dscps=(12,), **options).flows
        assert flow.transport == "MRC" and flow.mrc is not UNSET and flow.mrc is not None
        assert flow.mrc.trimmed_packets == 2
        (value,) = flow.mrc.values
        assert value.ev == "49153/0xabcd"
    with pytest.raises(RocescopeError, match="no RoCE packet"):
        analysed(written(tmp_path / "y.pcap", [mrc_write(7, 64, 64, 5555)]))


TRUE_FLOWS = {(src, dst, qp) for src, dst, qp, _, _ in PLAIN}


@pytest.mark.parametrize("seed", range(2))
def test_lying_headers_never_make_a_wrong_flow(tmp_path: Path, seed: int) -> None:
    """Each 16-bit field of each outer header lies in turn: fewer packets, but none invented.

    Only what is outside of the innermost IP header lies; that one alone says who talks.
    """
    rng = random.Random(seed)
    frames, outside = [], {}
    for name, wrap in WRAPPED.items():
        frame = hexed(wrap(PACKETS[0]))
        inner = frame.rindex(hexed("4502"))
        for at in range(12, inner - 1):
            lie = bytearray(frame)
            lie[at : at + 2] = rng.choice(
                [b"\0\0", b"\xff\xff", bytes([frame[at], frame[at + 1] ^ 8])]
            )
            outside[len(frames) + 1] = (name, at)
            frames.append(bytes(lie))
    found = analysed(written(tmp_path / "x.pcap", frames))
    assert {(f.src, f.dst, f.dest_qp) for f in found.flows} <= TRUE_FLOWS
    capture = found.captures[0]
    assert capture.frames == len(frames)
    assert 0 < capture.roce_packets < len(frames)
    undecodable = sum(capture.undecodable_frames.values())
    assert undecodable > 0
