"""Mirrors and tunnels around a frame, byte by byte from the RFCs and drafts; for several tests."""

from __future__ import annotations

import struct
from collections.abc import Callable
from ipaddress import ip_address

COLLECTOR = "192.0.2.9"
SWITCH = "192.0.2.1"


def ethernet(ethertype: int, content: bytes) -> bytes:
    return bytes.fromhex("020000000001020000000002") + struct.pack(">H", ethertype) + content


def vlan(tag: int, ethertype: int, content: bytes) -> tuple[int, bytes]:
    return 0x8100, struct.pack(">HH", tag, ethertype) + content


def ipv4(
    protocol: int, content: bytes, source: str = SWITCH, destination: str = COLLECTOR
) -> bytes:
    head = struct.pack(">BBHHHBBH", 0x45, 32, 20 + len(content), 1, 0x4000, 255, protocol, 0)
    return head + ip_address(source).packed + ip_address(destination).packed + content


def ipv6(protocol: int, content: bytes, source: str = "2001:db8::1") -> bytes:
    head = struct.pack(">IHBB", 6 << 28 | 32 << 20, len(content), protocol, 255)
    return head + ip_address(source).packed + ip_address("2001:db8::9").packed + content


def udp(port: int, content: bytes, sport: int = 0xC001) -> bytes:
    return struct.pack(">HHHH", sport, port, 8 + len(content), 0) + content


def gre(
    protocol: int,
    content: bytes,
    *,
    key: int | None = None,
    sequence: int | None = None,
    checksum: bool = False,
) -> bytes:
    flags = (checksum << 15) | ((key is not None) << 13) | ((sequence is not None) << 12)
    out = struct.pack(">HH", flags, protocol) + bytes(4 * checksum)
    for field in (key, sequence):
        out += b"" if field is None else struct.pack(">I", field)
    return out + content


def erspan2(frame: bytes, session: int = 12, truncated: bool = False, sequence: int = 7) -> bytes:
    head = struct.pack(">HHI", 1 << 12, 3 << 11 | truncated << 10 | session, 5)
    return gre(0x88BE, head + frame, sequence=sequence)


def erspan3(
    frame: bytes,
    session: int = 12,
    *,
    stamp: int = 0,
    granularity: int = 1,
    egress: bool = False,
    truncated: bool = False,
    frame_type: int = 0,
    platform: tuple[int, int] | None = None,
    sequence: int = 7,
) -> bytes:
    """`platform`: (platform ID, last 32 bits of the sub-header)."""
    last = frame_type << 10 | egress << 3 | granularity << 1 | (platform is not None)
    head = struct.pack(">HHIHH", 2 << 12, truncated << 10 | session, stamp, 0, last)
    if platform is not None:
        head += struct.pack(">II", platform[0] << 26, platform[1])
    return gre(0x22EB, head + frame, sequence=sequence)


def vxlan(frame: bytes, vni: int = 5000, port: int = 4789) -> bytes:
    return udp(port, struct.pack(">II", 0x08 << 24, vni << 8) + frame)


def vxlan_gpe(content: bytes, following: int = 3, vni: int = 5000) -> bytes:
    return udp(4790, struct.pack(">II", 0x0C << 24 | following, vni << 8) + content)


def nsh(content: bytes, following: int, words: int = 6) -> bytes:
    """RFC 8300: with context headers of type 1, or of type 2 for another length."""
    head = struct.pack(">HBBI", 0x0FC0 | words, 1 if words == 6 else 2, following, 0x1FF)
    return head + bytes(max(0, 4 * words - 8)) + content


def gtp(content: bytes, sequence: bool = False, extensions: int = 0) -> bytes:
    """GTP-U with a sequence number, and with PDU session containers (5G)."""
    extra = b""
    if sequence or extensions:
        extra = struct.pack(">HBB", 9, 0, 0x85 if extensions else 0)
    for left in range(extensions, 0, -1):
        extra += bytes((1, 0, 9, 0x85 if left > 1 else 0))
    flags = 0x30 | 4 * bool(extensions) | 2 * sequence
    head = struct.pack(">BBHI", flags, 255, len(extra) + len(content), 0x1234)
    return udp(2152, head + extra + content, 2152)


TAGS = {
    "vn_tag": (0x8926, bytes.fromhex("00050003")),
    "e_tag": (0x893F, bytes.fromhex("000000030000")),
    "cisco_metadata": (0x8909, bytes.fromhex("010100010005")),
    "hsr": (0x892F, bytes.fromhex("00600007")),
    "r_tag": (0xF1C1, bytes.fromhex("00000007")),
}


def tagged(frame: bytes, name: str) -> bytes:
    """With a tag between the addresses and the EtherType."""
    ethertype, content = TAGS[name]
    return frame[:12] + struct.pack(">H", ethertype) + content + frame[12:]


def geneve(content: bytes, vni: int = 77, protocol: int = 0x6558, options: bytes = b"") -> bytes:
    head = struct.pack(">BBHI", len(options) // 4, 0, protocol, vni << 8)
    return udp(6081, head + options + content)


def mpls(content: bytes, *labels: int) -> bytes:
    stack = b""
    for label in labels:
        stack += struct.pack(">I", label << 12 | (label == labels[-1]) << 8 | 64)
    return stack + content


def arista(frame: bytes, seconds: int = 0, nanoseconds: int = 0, wide: bool = True) -> bytes:
    stamp = struct.pack(">II" if wide else ">HI", seconds & (-1 if wide else 0xFFFF), nanoseconds)
    head = struct.pack(">HHH", 0xD28B, 1, 0x10 if wide else 0x20)
    return frame[:12] + head + stamp + frame[12:]


def raw_header(frame: bytes, held: int = 128, wire: int | None = None) -> bytes:
    """An sFlow record with the first bytes of a frame (with FCS, as switches count it)."""
    cut = frame[:held]
    body = struct.pack(">IIII", 1, (wire or len(frame)) + 4, 4, len(cut)) + cut
    return struct.pack(">II", 1, len(body) + -len(body) % 4) + body + bytes(-len(body) % 4)


def flow_sample(
    *records: bytes, rate: int = 1000, port: int = 7, way: tuple[int, int] = (7, 8)
) -> bytes:
    body = struct.pack(">8I", 1, port, rate, 0, 0, *way, len(records)) + b"".join(records)
    return struct.pack(">II", 1, len(body)) + body


def expanded_sample(*records: bytes, rate: int, port: int, way: tuple[int, int]) -> bytes:
    words = (1, 0, port, rate, 0, 0, 0, way[0], 0, way[1], len(records))
    body = struct.pack(">11I", *words) + b"".join(records)
    return struct.pack(">II", 3, len(body)) + body


def counter_sample() -> bytes:
    return struct.pack(">IIIII", 2, 12, 1, 7, 0)


def sflow(*samples: bytes, agent: str = "198.51.100.4") -> bytes:
    address = ip_address(agent)
    head = struct.pack(">II", 5, 1 if address.version == 4 else 2) + address.packed
    return head + struct.pack(">IIII", 0, 1, 1000, len(samples)) + b"".join(samples)


def without_ethernet(frame: bytes) -> tuple[int, bytes]:
    """(IP version, packet) of an untagged frame."""
    return (4 if frame[12:14] == b"\x08\x00" else 6), frame[14:]


def _in_ip(frame: bytes) -> bytes:
    version, packet = without_ethernet(frame)
    return ethernet(0x0800, ipv4(4 if version == 4 else 41, packet))


def _in_mpls(frame: bytes) -> bytes:
    return ethernet(0x8847, mpls(without_ethernet(frame)[1], 100, 17))


def _field(frame: bytes) -> bytes:
    """VLAN, IPv6, GRE, ERSPAN III, and a VLAN around what was mirrored."""
    tagged = frame[:12] + b"\x81\x00" + struct.pack(">H", 100) + frame[12:]
    return ethernet(*vlan(7, 0x86DD, ipv6(47, erspan3(tagged))))


WRAPPERS: dict[str, Callable[[bytes], bytes]] = {
    "erspan1": lambda f: ethernet(0x0800, ipv4(47, gre(0x88BE, f))),
    "erspan2": lambda f: ethernet(0x0800, ipv4(47, erspan2(f))),
    "erspan3": lambda f: ethernet(0x0800, ipv4(47, erspan3(f))),
    "erspan3_platform": lambda f: ethernet(0x86DD, ipv6(47, erspan3(f, platform=(5, 1700000000)))),
    "field": _field,
    "gre_bridged": lambda f: ethernet(0x0800, ipv4(47, gre(0x6558, f, key=9, checksum=True))),
    "gre_ip": lambda f: ethernet(0x0800, ipv4(47, gre(0x0800, without_ethernet(f)[1]))),
    "nvidia_22": lambda f: ethernet(0x0800, ipv4(47, gre(0x8949, bytes(22) + f))),
    "nvidia_0": lambda f: ethernet(0x0800, ipv4(47, gre(0x8949, f))),
    "sonic_12": lambda f: ethernet(0x0800, ipv4(47, gre(0x88BE, bytes(12) + f))),
    "vxlan": lambda f: ethernet(0x0800, ipv4(17, vxlan(f))),
    "vxlan6": lambda f: ethernet(0x86DD, ipv6(17, vxlan(f))),
    "geneve": lambda f: ethernet(0x0800, ipv4(17, geneve(f, options=bytes(12)))),
    "ip_in_ip": _in_ip,
    "mpls": _in_mpls,
    "mpls_pseudowire": lambda f: ethernet(0x8847, mpls(bytes(4) + f, 17)),
    "mpls_ethernet": lambda f: ethernet(0x8847, mpls(f, 17)),
    "mpls_in_ip": lambda f: ethernet(0x0800, ipv4(137, mpls(f, 17))),
    "ipv6_ethernet": lambda f: ethernet(0x86DD, ipv6(143, f)),
    "arista": lambda f: arista(f, 1_700_000_000, 5),
    **{name: lambda f, name=name: tagged(f, name) for name in TAGS},  # type: ignore[misc]
    "vlan_in_vn_tag": lambda f: tagged(f[:12] + bytes.fromhex("81000064") + f[12:], "vn_tag"),
    "vn_tag_in_vlan": lambda f: f[:12] + bytes.fromhex("81000064") + tagged(f, "vn_tag")[12:],
    "nsh": lambda f: ethernet(0x894F, nsh(f, 3)),
    "nsh_ip": lambda f: ethernet(0x894F, nsh(f[14:], 1 if f[13] == 0 else 2, words=3)),
    "nsh_in_gre": lambda f: ethernet(0x0800, ipv4(47, gre(0x894F, nsh(f, 3)))),
    "fabricpath": lambda f: ethernet(0x8903, b"\0\x60" + f),
    "trill": lambda f: ethernet(0x22F3, bytes.fromhex("000500010002") + f),
    "pbb": lambda f: ethernet(0x88E7, bytes.fromhex("00001234") + f),
    "vxlan_8472": lambda f: ethernet(0x0800, ipv4(17, vxlan(f, port=8472))),
    "vxlan_gpe": lambda f: ethernet(0x0800, ipv4(17, vxlan_gpe(f))),
    "vxlan_gpe_nsh": lambda f: ethernet(0x0800, ipv4(17, vxlan_gpe(nsh(f, 3), 4))),
    "vxlan_gpe_mpls": lambda f: ethernet(0x86DD, ipv6(17, vxlan_gpe(mpls(f, 17), 5))),
    "mpls_in_udp": lambda f: ethernet(0x0800, ipv4(17, udp(6635, mpls(f[14:], 17)))),
    "gtp": lambda f: ethernet(0x0800, ipv4(17, gtp(f[14:]))),
    "erspan2_of_vxlan": lambda f: ethernet(
        0x0800, ipv4(47, erspan2(ethernet(0x0800, ipv4(17, vxlan(f)))))
    ),
}
"""Every encapsulation around a whole Ethernet frame, by name."""
