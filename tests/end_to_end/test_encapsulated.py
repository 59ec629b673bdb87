"""Real captures inside every mirror and tunnel give the flows and figures of the plain ones."""

from __future__ import annotations

import gzip
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from batches import batch, decoder
from batches import write_pcap as write_pcap_encapsulation_tshark
from captures import DATA
from encapsulations import (
    TAGS,
    WRAPPERS,
    counter_sample,
    erspan2,
    erspan3,
    ethernet,
    expanded_sample,
    flow_sample,
    gre,
    gtp,
    ipv4,
    ipv6,
    mpls,
    nsh,
    raw_header,
    sflow,
    tagged,
    udp,
    vxlan,
    vxlan_gpe,
)
from factories import Frame, write_pcap
from scapy.contrib.erspan import ERSPAN_I, ERSPAN_II, ERSPAN_III
from scapy.contrib.geneve import GENEVE
from scapy.contrib.mpls import MPLS
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import GRE, Dot1Q, Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Packet

from rocescope.analyzer.decode.mirrors import MirrorOptions
from rocescope.analyzer.decode.sessions import MAX_SESSIONS
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.results.analysis import Analysis
from rocescope.analyzer.results.captures import Sampling, UltraEthernet
from rocescope.analyzer.results.flow import Flow

from ..analyzer.decode.test_decoder import frame as roce

# Real captures inside every mirror and tunnel give the flows and figures of the plain ones.

TUNNELS = ("ip_in_ip", "mpls", "gre_ip", "mpls_pseudowire", "mpls_ethernet", "mpls_in_ip")
TUNNELS += ("nsh", "nsh_ip", "fabricpath", "trill", "pbb", "mpls_in_udp", "gtp", *TAGS)
TUNNELS += ("vlan_in_vn_tag", "vn_tag_in_vlan")
"""These belong to the frame on the wire: only here it grows."""


def frames_of(name: str, limit: int = 1 << 30) -> list[Frame]:
    (path,) = (p for p in DATA.glob(f"{name}*") if ".json" not in p.name)
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    assert struct.unpack_from("<I", data)[0] == 0xA1B23C4D
    at, frames = 24, []
    while at < len(data) and len(frames) < limit:
        seconds, fraction, held, wire = struct.unpack_from("<IIII", data, at)
        frames.append(Frame(seconds * 10**9 + fraction, data[at + 16 : at + 16 + held], wire))
        at += 16 + held
    return frames


def analysed(tmp_path: Path, frames: list[Frame], **options: object) -> Analysis:
    path = write_pcap(tmp_path / "mirror.pcap", frames)
    return analyze([str(path)], AnalyzeOptions(**options))  # type: ignore[arg-type]


def figures(flow: Flow, sizes: bool = True) -> dict[str, object]:
    """Everything about a flow but where it was seen."""
    values = msgspec.to_builtins(flow)
    for name in ("taps", "spraying", *(() if sizes else ("wire_bytes", "paths", "activity_bytes"))):
        del values[name]
    if not sizes:
        del values["recovery"]["rewound_bytes"]
    return values


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Frame], list[Flow]]:
    frames = [f for f in frames_of("i03_write_reorder5")[:1500] if f.data[23] == 17]
    return frames, analysed(tmp_path_factory.mktemp("plain"), frames).flows


@pytest.mark.thorough
@pytest.mark.parametrize("name", WRAPPERS)
def test_the_same_flows_and_figures(
    name: str, plain: tuple[list[Frame], list[Flow]], tmp_path: Path
) -> None:
    frames, flows = plain
    wrap = WRAPPERS[name]
    around = len(wrap(frames[0].data)) - len(frames[0].data)
    wrapped = [Frame(f.time_ns, wrap(f.data), f.wire_bytes + around) for f in frames]
    found = analysed(tmp_path, wrapped)
    sizes = name not in (*TUNNELS, "field", "ipv6_ethernet")
    assert [figures(f, sizes) for f in found.flows] == [figures(f, sizes) for f in flows]
    assert any(f.reordered_packets for f in found.flows)
    assert found.captures[0].frames == len(frames)
    assert not found.captures[0].undecodable_frames
    assert set(found.captures[0].encapsulations.values()) == {len(frames)}


def test_sessions_are_taps_with_readable_names(tmp_path: Path) -> None:
    """Both directions of a mirrored port, a second session, and the host's own traffic."""
    frames = frames_of("c10_rping_ipv4")
    wrapped = []
    for i, frame in enumerate(frames):
        mirrored = erspan3(frame.data, 5, egress=bool(i & 1)) if i % 4 else erspan2(frame.data, 9)
        data = ethernet(0x0800, ipv4(47, mirrored)) if i >= 10 else frame.data
        wrapped.append(Frame(frame.time_ns, data))
    found = analysed(tmp_path, wrapped)
    taps = {tap.name: tap.roce_packets for tap in found.captures[0].taps}
    assert set(taps) == {
        "mirror.pcap",
        "erspan 9 from 192.0.2.1",
        "erspan 5 ingress from 192.0.2.1",
        "erspan 5 egress from 192.0.2.1",
    }
    assert sum(taps.values()) == found.captures[0].roce_packets == len(frames)
    assert sum(n for flow in found.flows for n in flow.taps.values()) == len(frames)


def test_a_packet_mirrored_at_two_places_counts_once(
    plain: tuple[list[Frame], list[Flow]], tmp_path: Path
) -> None:
    frames, flows = plain
    wrapped = []
    for frame in frames:
        for session in (1, 2):
            data = ethernet(0x0800, ipv4(47, erspan2(frame.data, session)))
            wrapped.append(Frame(frame.time_ns + session, data))
    found = analysed(tmp_path, wrapped).flows
    assert [f.packets for f in found] == [f.packets for f in flows]
    assert [f.tap_copies for f in found] == [f.packets for f in flows]
    for name in ("reordered_packets", "missing_packets", "duplicate_packets"):
        assert [getattr(f, name) for f in found] == [getattr(f, name) for f in flows]


def test_copies_in_one_session_are_dropped_when_asked(
    plain: tuple[list[Frame], list[Flow]], tmp_path: Path
) -> None:
    frames, flows = plain
    wrapped = []
    for frame in frames:
        data = ethernet(0x0800, ipv4(47, erspan2(frame.data)))
        wrapped += [Frame(frame.time_ns, data), Frame(frame.time_ns + 700, data)]
    kept = analysed(tmp_path, wrapped, mirror=MirrorOptions(drop_duplicates_ns=1000))
    assert [figures(f) for f in kept.flows] == [figures(f) for f in flows]
    assert f"{len(frames)} packets repeat" in " ".join(kept.warnings)
    found = analysed(tmp_path, wrapped).flows
    assert sum(f.duplicate_packets or 0 for f in found) > len(frames) // 2


def test_no_capture_can_make_more_taps_than_there_may_be(tmp_path: Path) -> None:
    frame = frames_of("c10_rping_ipv4", 1)[0]
    keyed = [ethernet(0x0800, ipv4(47, gre(0x6558, frame.data, key=k))) for k in range(400)]
    found = analysed(tmp_path, [Frame(frame.time_ns + i, data) for i, data in enumerate(keyed)])
    taps = found.captures[0].taps
    assert len(taps) == MAX_SESSIONS + 2
    assert taps[-1].name == "further mirror sessions in mirror.pcap"
    assert taps[-1].frames == 400 - MAX_SESSIONS
    assert any("more than 256 mirror sessions" in line for line in found.warnings)


def sampled(frames: list[Frame], rate: int) -> list[Frame]:
    """Every 8th frame, three to a datagram."""
    picked, wrapped = frames[::8], []
    for i in range(0, len(picked), 3):
        group = picked[i : i + 3]
        records = [raw_header(f.data, 128, f.wire_bytes) for f in group]
        samples = [flow_sample(*records[:2], rate=rate), counter_sample()]
        samples += [expanded_sample(r, rate=rate, port=7, way=(7, 9)) for r in records[2:]]
        data = ethernet(0x0800, ipv4(17, udp(6343, sflow(*samples))))
        wrapped.append(Frame(group[0].time_ns, data))
    return wrapped


def test_samples_are_estimates(plain: tuple[list[Frame], list[Flow]], tmp_path: Path) -> None:
    frames, _ = plain
    found = analysed(tmp_path, sampled(frames, 8))
    picked = frames[::8]
    capture = found.captures[0]
    assert capture.roce_packets == len(picked) and capture.encapsulations == {"sFlow": len(picked)}
    (tap,) = (tap for tap in capture.taps if tap.roce_packets)
    assert tap.name == "sflow interface 7 ingress from 198.51.100.4"
    assert tap.sampling == Sampling(
        one_in=8.0,
        estimated_packets=8 * len(picked),
        estimated_wire_bytes=8 * sum(f.wire_bytes for f in picked),
        error_percent=pytest.approx(100 / len(picked) ** 0.5),
    )
    for flow in found.flows:
        assert flow.missing_packets is flow.reordered_packets is flow.reordering is None
        assert flow.messages is flow.message_statistics.count is flow.sequence_restarts is None
        assert flow.latency.request_to_ack_ns is None
        assert flow.notes[0].startswith("sampled 1 in 8: messages, loss")
        assert flow.sampling.estimated_packets == 8 * flow.packets
    assert not [e for e in found.events if e.kind in ("rewind", "sequence_restart")]
    assert any("samples, 1 in 8" in line for line in found.warnings)


def test_ultra_ethernet_is_counted(tmp_path: Path) -> None:
    def request(kind: int, psn: int, sport: int) -> bytes:
        pds = struct.pack(">HHIHH", kind << 11, 0, psn, 1, 2)
        return ethernet(0x0800, ipv4(17, udp(4793, pds, sport)))

    uet = [request(2, 5, 100), request(2, 9, 101), request(13, 3, 100), request(7, 77, 50)]
    frames = frames_of("c10_rping_ipv4", 20)
    frames += [Frame(frames[-1].time_ns, data) for data in uet]
    found = analysed(tmp_path, frames).captures[0]
    assert found.ultra_ethernet == UltraEthernet(
        packets=4,
        wire_bytes=sum(map(len, uet)),
        by_type={"RUD request": 2, "ACK": 1, "RUD_CC request": 1},
        entropy_values=3,
        lowest_psn=3,
        highest_psn=9,
    )
    assert found.contents["Ultra Ethernet"] == 4


# Every field behind mirrors and tunnels equals tshark's, on frames crafted by scapy.

FIELDS = (
    "ip.src ipv6.src ip.id ip.ttl vlan.id udp.srcport udp.dstport infiniband.bth.opcode"
    " infiniband.bth.destqp infiniband.bth.psn gre.proto erspan.spanid erspan.direction"
    " erspan.timestamp vxlan.vni geneve.vni"
).split()


def link(**fields: int) -> Packet:
    """With both addresses, else scapy asks the network for them."""
    return Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02", **fields)


INNER = Ether(roce(77))
HEADERS_BYTES = 14 + 20 + 8  # Ethernet, IPv4, UDP
TAGGED = link() / Dot1Q(vlan=100) / INNER[IP]
SWITCH = {"src": "192.0.2.1", "dst": "192.0.2.9"}


def outer() -> Packet:
    return link() / IP(**SWITCH)


FRAMES: dict[str, Packet] = {
    "erspan1": outer() / GRE(proto=0x88BE) / ERSPAN_I() / INNER,
    "erspan2": outer() / GRE(proto=0x88BE, seqnum_present=1) / ERSPAN_II(session_id=9) / INNER,
    "field": link()
    / Dot1Q(vlan=7)
    / IPv6(src="2001:db8::1")
    / GRE(proto=0x22EB, seqnum_present=1, sequence_number=4)
    / ERSPAN_III(session_id=12, timestamp=123456, d=1, gra=1)
    / TAGGED,
    "gre": outer() / GRE(proto=0x6558, key_present=1, key=5, chksum_present=1) / TAGGED,
    "gre_ip": outer() / GRE(proto=0x0800) / INNER[IP],
    "vxlan": outer() / UDP(sport=999, dport=4789) / VXLAN(vni=5000, flags=8) / TAGGED,
    "geneve": outer() / UDP(sport=999, dport=6081) / GENEVE(vni=77, proto=0x6558) / INNER,
    "ip_in_ip": outer() / INNER[IP],
    "ip_in_ipv6": link() / IPv6(nh=4) / INNER[IP],
    "mpls": link(type=0x8847) / MPLS(label=100, s=0) / MPLS(label=17, s=1) / INNER[IP],
    "vxlan_in_erspan": outer()
    / GRE(proto=0x88BE, seqnum_present=1)
    / ERSPAN_II(session_id=3)
    / (link() / IP(src="10.9.9.9") / UDP(sport=999, dport=4789) / VXLAN(vni=1, flags=8) / TAGGED),
}
TAPS = {
    "erspan1": "erspan from {gre}",
    "erspan2": "erspan {erspan.spanid} from {gre}",
    "vxlan_in_erspan": "erspan {erspan.spanid} from {gre}",
    "field": "erspan {erspan.spanid} egress from {gre}",
    "gre": "gre key 5 from {gre}",
    "gre_ip": "gre tunnel from {gre}",
    "vxlan": "vxlan {vxlan.vni} from {gre}",
    "geneve": "geneve {geneve.vni} from {gre}",
}


def tshark(tool: str, path: Path) -> list[dict[str, list[str]]]:
    selection = [argument for name in FIELDS for argument in ("-e", name)]
    done = subprocess.run(
        [tool, "-n", "-r", str(path), "-T", "fields", *selection],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    return [{n: v.split(",") for n, v in zip(FIELDS, line, strict=True)} for line in lines]


def test_fields_and_sessions(tmp_path: Path, need_tool: Callable[[str], str]) -> None:
    path = tmp_path / "frames.pcap"
    frames = [bytes(packet) for packet in FRAMES.values()]
    write_pcap_encapsulation_tshark(path, frames, 1)
    decode = decoder()
    table = decode.decode(batch(frames))
    assert table.frame_number.tolist() == list(range(1, len(frames) + 1))
    for i, (name, seen) in enumerate(zip(FRAMES, tshark(need_tool("tshark"), path), strict=True)):
        assert int(table.psn[i]) == int(seen["infiniband.bth.psn"][-1]), name
        assert int(table.dest_qp[i]) == int(seen["infiniband.bth.destqp"][-1], 0), name
        assert int(table.opcode[i]) == int(seen["infiniband.bth.opcode"][-1]), name
        assert int(table.udp_sport[i]) == int(seen["udp.srcport"][-1]), name
        assert int(table.ip_id[i]) == int(seen["ip.id"][-1], 0), name
        assert int(table.hop_limit[i]) == int(seen["ip.ttl"][-1]), name
        inside = len(TAGGED) if "100" in seen["vlan.id"] else len(INNER)
        assert int(table.vlan[i]) == (100 if "100" in seen["vlan.id"] else 0), name
        assert int(table.payload_bytes[i]) == 64
        tap = decode.registry.taps[int(table.tap[i])].name
        if name in TAPS:
            source = (seen["ipv6.src"] if seen["ipv6.src"] != [""] else seen["ip.src"])[0]
            fields = {key.replace(".", "_"): value[0] for key, value in seen.items()}
            fields["geneve_vni"] = str(int(fields["geneve_vni"] or "0", 0))
            wanted = TAPS[name].replace("erspan.", "erspan_").replace(".vni", "_vni")
            assert tap == wanted.format(gre=source, **fields)
            assert int(table.wire_bytes[i]) == (len(frames[i]) if name == "gre_ip" else inside)
        else:
            assert tap == "tap0"
            assert int(table.wire_bytes[i]) == len(frames[i])


PLAIN = roce(77, sport=0xC077)
IN_VLAN = PLAIN[:12] + bytes.fromhex("81000064") + PLAIN[12:]
LIKE_TSHARK = {
    **{name: tagged(PLAIN, name) for name in TAGS},
    **{f"{name} of vlan": tagged(IN_VLAN, name) for name in TAGS},
    **{f"vlan of {name}": IN_VLAN[:16] + tagged(PLAIN, name)[12:] for name in TAGS},
    **{f"{name} twice": tagged(tagged(PLAIN, name), name) for name in TAGS},
    "vxlan of vn_tag": ethernet(0x0800, ipv4(17, vxlan(tagged(PLAIN, "vn_tag")))),
    "nsh": ethernet(0x894F, nsh(PLAIN, 3)),
    "nsh ip": ethernet(0x894F, nsh(PLAIN[14:], 1, words=2)),
    "nsh mpls": ethernet(0x894F, nsh(mpls(PLAIN[14:], 17, 18), 5)),
    "nsh in gre": ethernet(0x0800, ipv4(47, gre(0x894F, nsh(PLAIN, 3, words=5), key=1))),
    "gpe": ethernet(0x0800, ipv4(17, vxlan_gpe(PLAIN))),
    "gpe ip": ethernet(0x86DD, ipv6(17, vxlan_gpe(PLAIN[14:], 1))),
    "gpe nsh": ethernet(0x0800, ipv4(17, vxlan_gpe(nsh(PLAIN[14:], 1), 4))),
    "gpe mpls": ethernet(0x0800, ipv4(17, vxlan_gpe(mpls(PLAIN[14:], 17), 5))),
    "mpls in udp": ethernet(0x0800, ipv4(17, udp(6635, mpls(PLAIN[14:], 17, 3)))),
    "fabricpath": ethernet(0x8903, b"\0\x60" + PLAIN),
    "fabricpath vlan": ethernet(0x8903, b"\0\x60" + IN_VLAN),
    "trill": ethernet(0x22F3, bytes.fromhex("000500010002") + IN_VLAN),
    "trill options": ethernet(0x22F3, bytes.fromhex("00450001000200000000") + PLAIN),
    "pbb": ethernet(0x88E7, bytes.fromhex("00001234") + PLAIN),
    "gtp": ethernet(0x0800, ipv4(17, gtp(PLAIN[14:]))),
    "gtp sequence": ethernet(0x0800, ipv4(17, gtp(PLAIN[14:], sequence=True))),
    "gtp 5g": ethernet(0x86DD, ipv6(17, gtp(PLAIN[14:], extensions=1))),
    "gtp extensions": ethernet(0x0800, ipv4(17, gtp(PLAIN[14:], True, extensions=3))),
    "vxlan 8472": ethernet(0x0800, ipv4(17, vxlan(PLAIN, port=8472))),
    "vlan 9100": PLAIN[:12] + bytes.fromhex("9100000a81000064") + PLAIN[12:],
}
NOT_BY_DEFAULT = {"vxlan 8472": "udp.port==8472,vxlan"}
"""What tshark reads only when told how."""


@pytest.mark.parametrize("name", LIKE_TSHARK)
def test_tags_and_tunnels_like_tshark(
    name: str, tmp_path: Path, need_tool: Callable[[str], str]
) -> None:
    path = tmp_path / "frames.pcap"
    write_pcap_encapsulation_tshark(path, [LIKE_TSHARK[name]], 1)
    command = [need_tool("tshark"), "-r", str(path), "-T", "fields"]
    command += [part for field in ("psn", "destqp") for part in ("-e", f"infiniband.bth.{field}")]
    command += ["-e", "udp.srcport", "-e", "vlan.id"]
    command += ["-d", NOT_BY_DEFAULT[name]] if name in NOT_BY_DEFAULT else []
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    psn, dest_qp, ports, vlans = done.stdout.rstrip("\n").split("\t")
    table = decoder().decode(batch([LIKE_TSHARK[name]]))
    assert table.psn.tolist() == [int(psn)] == [77]
    assert table.dest_qp.tolist() == [int(dest_qp, 0)]
    assert table.udp_sport.tolist() == [int(ports.split(",")[-1])]
    assert table.vlan.tolist() == [int(vlans.split(",")[-1] or 0)]


@pytest.mark.parametrize("name", FRAMES)
def test_scapy_finds_the_same_innermost_packet(name: str) -> None:
    """The bytes that the row names begin with the inner BTH."""
    data = bytes(FRAMES[name])
    table = decoder().decode(batch([data]))
    at = int(table.file_offset[0]) + int(table.bth_offset[0])
    assert data[at:] == roce(77)[HEADERS_BYTES:]
