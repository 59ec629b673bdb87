"""Crafts packets with scapy, plain and mirrored.

The only module that imports scapy, which is GPL-2.0 and an optional package.
"""

from __future__ import annotations

import io
import struct
from ipaddress import ip_address
from typing import Any, BinaryIO, Final, NamedTuple, cast

import numpy as np

from ...analyzer.errors import UsageError
from ...analyzer.spec import Options, parse_options
from ...kernels.kernel import Bytes, Int, inlined, kernel
from .from_pattern import put, put_checksum, put_word

# Outer headers of a frame, and the offsets of fields that differ from frame to frame.

NO_FIELD: Final = -1


class Outer(NamedTuple):
    """Outer headers, and the offsets of fields that differ from frame to frame."""

    data: Bytes
    network_at: int
    ipv6: bool
    udp_at: int
    """Offset of a UDP header whose length is set per frame, or NO_FIELD."""
    sequence_at: int
    """Offset of a 32-bit frame number, or NO_FIELD."""
    stamp_at: int
    """Offset of a 32-bit time in units of 100 ns, or NO_FIELD."""


_DEFAULTS: Final = {"src": "192.0.2.1", "dst": "192.0.2.2", "session": "1", "vlan": "0"}
_MOST: Final = {
    "gre": (1 << 32) - 1,
    "erspan1": 0,
    "erspan2": 1023,
    "erspan3": 1023,
    "vxlan": (1 << 24) - 1,
    "geneve": (1 << 24) - 1,
}
"""Largest session: GRE key, ERSPAN session or network identifier; type I has none."""


def outer_headers(text: str) -> Outer:
    """The headers of `erspan3:session=7,src=10.9.0.1,dst=10.9.0.2,vlan=100`.

    Kinds: gre, erspan1, erspan2, erspan3, vxlan, geneve; addresses select IPv4 or
    IPv6; vlan is the outer tag, 0 for none. UsageError names the mistake.
    """
    kind, _, rest = text.partition(":")
    if kind not in _MOST:
        raise UsageError(f"--mirror: there is no {kind!r}; there are {', '.join(_MOST)}")
    given = parse_options(rest, "--mirror", len(kind) + 2)
    given.check_known(_DEFAULTS, "--mirror has no option")
    options = given.with_defaults(_DEFAULTS)
    if kind == "erspan1" and "session" in given:
        raise UsageError("--mirror: ERSPAN type I has no session")
    session = options.whole("session", most=_MOST[kind]) if kind != "erspan1" else 0
    return _crafted(kind, session, options)


def _crafted(kind: str, session: int, options: Options) -> Outer:
    from scapy.layers.inet import IP, UDP
    from scapy.layers.inet6 import IPv6
    from scapy.layers.l2 import Dot1Q, Ether

    try:
        src, dst = ip_address(options["src"]), ip_address(options["dst"])
    except ValueError as error:
        raise UsageError(f"--mirror: {error}") from None
    if src.version != dst.version:
        raise UsageError("--mirror: src and dst must both be IPv4 or both IPv6")
    link = Ether(dst="02:00:00:00:00:02", src="02:00:00:00:00:01")
    vlan = options.whole("vlan", most=4094)
    if vlan:
        link /= Dot1Q(vlan=vlan)
    if src.version == 4:
        network = link / IP(src=str(src), dst=str(dst), ttl=255, flags="DF", id=0)
    else:
        network = link / IPv6(src=str(src), dst=str(dst), hlim=255)
    inside = _inside(kind, session)
    packet = network / inside
    # scapy adds nothing after the last header: the frame follows it.
    data = np.frombuffer(bytes(packet), np.uint8)
    network_at = len(bytes(link))
    payload_at = len(data) - len(bytes(inside))
    return Outer(
        data=data.copy(),
        network_at=network_at,
        ipv6=src.version == 6,
        udp_at=payload_at if UDP in packet else NO_FIELD,
        sequence_at=payload_at + 4 if kind in ("erspan2", "erspan3") else NO_FIELD,
        stamp_at=len(data) - 8 if kind == "erspan3" else NO_FIELD,
    )


def _inside(kind: str, session: int) -> Any:
    """What follows the IP header."""
    from scapy.contrib.erspan import ERSPAN_II, ERSPAN_III
    from scapy.contrib.geneve import GENEVE
    from scapy.layers.inet import UDP
    from scapy.layers.l2 import GRE
    from scapy.layers.vxlan import VXLAN

    if kind == "gre":
        return GRE(proto=0x6558, key_present=1, key=session)
    if kind == "vxlan":
        return UDP(sport=49152, dport=4789, chksum=0) / VXLAN(vni=session, flags="Instance")
    if kind == "geneve":
        return UDP(sport=49152, dport=6081, chksum=0) / GENEVE(vni=session, proto=0x6558)
    if kind == "erspan1":
        return GRE(proto=0x88BE)
    if kind == "erspan2":
        tunnel = GRE(proto=0x88BE, seqnum_present=1, sequence_number=0)
        return tunnel / ERSPAN_II(session_id=session)
    tunnel = GRE(proto=0x22EB, seqnum_present=1, sequence_number=0)
    return tunnel / ERSPAN_III(session_id=session, gra=1)  # stamps of 100 ns


# A generated capture as sent by a mirror port: every frame has the same outer headers.

_FILE_HEADER = 24
_RECORD_HEADER = 16
_LONGEST_SNAP = 262_144


def mirrored(file: BinaryIO, mirror: str | None) -> BinaryIO:
    """The output of a pcap writer, with the outer headers of `mirror`, if any."""
    if mirror is None:
        return file

    return cast(BinaryIO, MirroredFile(file, outer_headers(mirror)))


class MirroredFile(io.RawIOBase):
    """Adds the outer headers to the little-endian nanosecond pcap of a writer.

    The first write is the file header, each further write is whole records.
    """

    def __init__(self, file: BinaryIO, outer: Outer) -> None:
        super().__init__()
        self._file = file
        self._outer = outer
        self._frames = 0
        self._begun = False

    def writable(self) -> bool:
        """Always."""
        return True

    def write(self, data: Any) -> int:
        """The file header, or whole records."""
        given = np.frombuffer(data, np.uint8)
        if not self._begun:
            self._begun = True
            *rest, snap, link_type = struct.unpack("<IHHiIII", given[:_FILE_HEADER].tobytes())
            snap = min(snap + len(self._outer.data), _LONGEST_SNAP)
            self._file.write(struct.pack("<IHHiIII", *rest, snap, link_type))
            given = given[_FILE_HEADER:]
        if len(given):
            self._frames += self._wrap(given)
        return len(data)

    def _wrap(self, records: Bytes) -> int:
        out = np.empty(len(records) + count(records) * len(self._outer.data), np.uint8)
        used, frames = wrap(records, self._outer, self._frames, out)
        self._file.write(out[:used].data)
        return int(frames)


@inlined
def _word(data: Bytes, at: Int) -> Int:
    """Four bytes in the byte order of the file."""
    return (
        np.int64(data[at])
        | np.int64(data[at + 1]) << 8
        | np.int64(data[at + 2]) << 16
        | np.int64(data[at + 3]) << 24
    )


@kernel
def count(records: Bytes) -> Int:
    """Frames in whole pcap records."""
    at = frames = 0
    while at + _RECORD_HEADER <= len(records):
        at += _RECORD_HEADER + _word(records, at + 8)
        frames += 1
    return frames


@kernel
def wrap(records: Bytes, outer: Outer, first: Int, out: Bytes) -> tuple[int, int]:
    """Add the outer headers to every frame; returns (bytes used of `out`, frames).

    records: whole pcap records; out: room for them and the headers of each record.
    first: number of the first frame.
    """
    prefix = len(outer.data)
    network = outer.network_at
    at = used = frames = 0
    while at + _RECORD_HEADER <= len(records):
        seconds, part = _word(records, at), _word(records, at + 4)
        captured, wire = _word(records, at + 8), _word(records, at + 12)
        begin = at + _RECORD_HEADER
        for i in range(8):
            out[used + i] = records[at + i]
        put_word(out, used + 8, captured + prefix)
        put_word(out, used + 12, wire + prefix)
        used += _RECORD_HEADER
        for i in range(prefix):
            out[used + i] = outer.data[i]
        outer_bytes = wire + prefix - network
        if outer.ipv6:
            put(out, used + network + 4, 2, outer_bytes - 40)
        else:
            put(out, used + network + 2, 2, outer_bytes)
            put_checksum(out, used + network)
        if outer.udp_at >= 0:
            put(out, used + outer.udp_at + 4, 2, wire + prefix - outer.udp_at)
        if outer.sequence_at >= 0:
            put(out, used + outer.sequence_at, 4, first + frames)
        if outer.stamp_at >= 0:
            put(out, used + outer.stamp_at, 4, (seconds * 1_000_000_000 + part) // 100)
        used += prefix
        for i in range(captured):
            out[used + i] = records[begin + i]
        used += captured
        at = begin + captured
        frames += 1
    return used, frames
