"""Every field behind mirrors and tunnels equals tshark's, on frames crafted by scapy."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from batches import batch, decoder, write_pcap
from scapy.contrib.erspan import ERSPAN_I, ERSPAN_II, ERSPAN_III
from scapy.contrib.geneve import GENEVE
from scapy.contrib.mpls import MPLS
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import GRE, Dot1Q, Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Packet

from ..analyzer.decode.test_decoder import frame as roce

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
    write_pcap(path, frames, 1)
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


@pytest.mark.parametrize("name", FRAMES)
def test_scapy_finds_the_same_innermost_packet(name: str) -> None:
    """The bytes that the row names begin with the inner BTH."""
    data = bytes(FRAMES[name])
    table = decoder().decode(batch([data]))
    at = int(table.file_offset[0]) + int(table.bth_offset[0])
    assert data[at:] == roce(77)[HEADERS_BYTES:]
