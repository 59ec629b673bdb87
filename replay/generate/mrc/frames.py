"""Frames of MRC as bytes: Ethernet, optional SRv6, IPv6 or IPv4, UDP, BTH and MRC's headers.

Layouts and their certainty: docs/mrc.md.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from ....analyzer.wire.ports import ROCE_UDP_PORT

WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST, WRITE_ONLY = 0xC6, 0xC7, 0xC8, 0xCA
ACK, ENDPOINT_REQUEST, ENDPOINT_RESPONSE, SACK, NACK, PROBE = 0xD1, 0xD8, 0xD9, 0xDC, 0xDD, 0xDE
ENDPOINT_QP = 2
RTX, TS, ACK_REQUEST = 0x20, 0x10, 0x80
CE, ECT0 = 3, 2
TIMESTAMP_NS = 128
_DEFAULT_TYPE = 1  # ftype of TSETH and of the stamps in PETH and ERTH


@dataclass(frozen=True, slots=True)
class Format:
    """Properties common to all packets of a capture."""

    ipv6: bool = True
    srv6: bool = True
    timestamps: bool = True
    label_high: bool = True
    """The flow label is the high half of an entropy value that SACKs and NACKs reflect."""
    port: int = ROCE_UDP_PORT
    snap: int = 160
    """Bytes kept of every frame, 0 for whole ones."""


@dataclass(frozen=True, slots=True)
class Way:
    """Destination and path of a packet."""

    src: bytes
    """16 bytes; IPv4 in the last four."""
    dst: bytes
    sport: int
    label: int
    """Flow label bits 15..0."""
    carrier: bytes
    """Outer destination address (uSID carrier)."""
    dscp: int
    ecn: int = ECT0


def entropy(way: Way, form: Format) -> int:
    """The entropy value as SACKs and NACKs reflect it."""
    label = way.label if form.ipv6 else 0
    return label << 16 | way.sport if form.label_high else way.sport << 16 | label


def bth(opcode: int, qp: int, psn: int, flags: int = 0, pad: int = 0) -> bytes:
    """The base transport header; `flags` is its byte 8."""
    return struct.pack(">BBHII", opcode, pad << 4, 0xFFFF, qp, flags << 24 | psn & 0xFFFFFF)


def write_headers(
    message: int, timestamp: int | None, address: int, length: int, key: int = 0x1234
) -> bytes:
    """METH, TSETH if there is a timestamp, and RETH."""
    stamp = b"" if timestamp is None else struct.pack(">HH", timestamp & 0xFFFF, _DEFAULT_TYPE)
    return (
        struct.pack(">HH", 0, message & 0xFFFF) + stamp + struct.pack(">QII", address, key, length)
    )


def sack_headers(
    *,
    feedback: int,
    probe_id: int | None,
    offset: int,
    entropy: int,
    cumulative: int,
    mpr: int,
    base_offset: int,
    bitmap: int,
    timestamp: int,
    held: int,
    received: int,
) -> bytes:
    """SETH and CC_STATE; `received` counts units of 256 bytes."""
    third = probe_id if probe_id is not None else offset & 0xFFFF
    first = feedback << 5 | (probe_id is not None) << 1
    seth = struct.pack(
        ">BBHIHHIBBHQ",
        0, first, third, entropy, 0, 0, cumulative & 0xFFFFFF, 0, mpr, base_offset & 0xFFFF, bitmap,
    )  # fmt: skip
    return seth + struct.pack(">HHI", timestamp & 0xFFFF, held & 0x7FFF, received & 0xFFFFFF)


def nack_headers(reason: int, entropy: int, psn: int, timestamp: int) -> bytes:
    """NETH."""
    return struct.pack(
        ">HBBIHHIBBH", 0, reason, 0, entropy, 0, 0, psn & 0xFFFFFF, 0x20, 0, timestamp & 0xFFFF
    )


def probe_headers(probe_id: int, timestamp: int) -> bytes:
    """PETH."""
    return struct.pack(">HBBHHHHHH", 0, 0, 0, probe_id, 0, 0, 0, timestamp & 0xFFFF, _DEFAULT_TYPE)


def port_status_headers(mask: int, timestamp: int) -> bytes:
    """ERTH of a port status update."""
    return struct.pack(">BBBBIIHH", 0, 0, 0, 0, mask, 0, timestamp & 0xFFFF, _DEFAULT_TYPE)


def endpoint_response_headers(timestamp: int) -> bytes:
    """EETH."""
    return bytes(28) + struct.pack(">H", timestamp & 0xFFFF) + bytes(6)


def frame(
    way: Way, form: Format, transport: bytes, payload: int, trimmed: bool = False
) -> tuple[bytes, int]:
    """(captured bytes, bytes on the wire); `transport` is BTH and headers, zeros follow.

    A trimmed packet ends after its headers, with adjusted lengths and without ICRC.
    """
    content = len(transport) + (0 if trimmed else payload + 4)
    udp = struct.pack(">HHHH", way.sport, form.port, 8 + content, 0)
    dsfield = way.dscp << 2 | way.ecn
    if form.ipv6:
        first = 6 << 28 | dsfield << 20 | way.label
        ip = struct.pack(">IHBB", first, 8 + content, 17, 64) + way.src + way.dst
    else:
        ip = _ipv4(way, dsfield, 28 + content)
    outer = b""
    if form.srv6:
        size = len(ip) + 8 + content
        next_header = 41 if form.ipv6 else 4
        first = 6 << 28 | dsfield << 20 | way.label
        outer = struct.pack(">IHBB", first, size, next_header, 63) + way.src + way.carrier
    ethertype = 0x86DD if form.srv6 or form.ipv6 else 0x0800
    link = b"\x02\x00" + way.dst[12:] + b"\x02\x00" + way.src[12:] + struct.pack(">H", ethertype)
    headers = link + outer + ip + udp + transport
    wire = len(headers) + (0 if trimmed else payload + 4)
    if form.snap and form.snap < wire:
        return (headers + bytes(max(0, form.snap - len(headers))))[: form.snap], wire
    if trimmed:
        return headers, wire
    body = bytes(payload)
    return headers + body + _icrc(ip, udp, transport + body, form.ipv6), wire


def _ipv4(way: Way, dsfield: int, total: int) -> bytes:
    head = struct.pack(">BBHHHBBH", 0x45, dsfield, total, 0, 0x4000, 64, 17, 0)
    head += way.src[12:] + way.dst[12:]
    words = sum(struct.unpack(">10H", head))
    words = (words & 0xFFFF) + (words >> 16)
    checksum = ~((words & 0xFFFF) + (words >> 16)) & 0xFFFF
    return head[:10] + struct.pack(">H", checksum) + head[12:]


def _icrc(ip: bytes, udp: bytes, content: bytes, ipv6: bool) -> bytes:
    """The ICRC of the inner packet: fields that routers change are ones (RoCEv2, annex A17)."""
    if ipv6:
        masked = b"\x6f\xff\xff\xff" + ip[4:7] + b"\xff" + ip[8:]
    else:
        masked = ip[:1] + b"\xff" + ip[2:8] + b"\xff" + ip[9:10] + b"\xff\xff" + ip[12:]
    masked += udp[:6] + b"\xff\xff" + content[:4] + b"\xff" + content[5:]
    return struct.pack("<I", zlib.crc32(b"\xff" * 8 + masked))
