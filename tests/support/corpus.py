"""Random frames around RoCE: every encapsulation and opcode, lengths that lie, cut and damaged.

`frame` takes any object with the methods of `random.Random`, so hypothesis can drive it too.
"""

from __future__ import annotations

import random
import struct

LINK_TYPES = (1, 101, 113, 228, 229, 276)
PORTS = (4791,) * 8 + (4971, 4790, 53)


def bth(rng: random.Random) -> bytes:
    mrc = rng.choice((0xC6, 0xC7, 0xCA, 0xCB, 0xD1, 0xD8, 0xD9, 0xDC, 0xDD, 0xDE))
    opcode = rng.choice((rng.randrange(256), rng.randrange(0x20), 0x11, 0x64, 0x65, 0x81, mrc))
    dest_qp = rng.choice((0, 1, 1, 0x12, 0xFFFFFF, rng.randrange(1 << 24)))
    return struct.pack(
        ">BBHII",
        opcode,
        rng.choice((0, 0x40, 0x70, rng.randrange(256))),
        rng.choice((0xFFFF, rng.randrange(65536))),
        rng.choice((0, 0x80, 0x40, 0xC0)) << 24 | dest_qp,
        rng.choice((0, 0x80, 0x10, 0x30)) << 24 | rng.randrange(1 << 24),
    )


def lie(rng: random.Random, length: int) -> int:
    """A length field: mostly right, sometimes off by a little or by anything."""
    kind = rng.randrange(12)
    if kind == 0:
        return rng.randrange(65536)
    if kind == 1:
        return max(0, min(65535, length + rng.randrange(-30, 30)))
    return min(length, 65535)


def udp(rng: random.Random, content: bytes) -> bytes:
    length = lie(rng, 8 + len(content))
    return struct.pack(">HHHH", rng.randrange(65536), rng.choice(PORTS), length, 0) + content


def ipv4(rng: random.Random, protocol: int, content: bytes) -> bytes:
    words = rng.choice((5, 5, 5, 6, 15, rng.randrange(16)))
    options = bytes(max(0, words * 4 - 20))
    fragment = rng.choice((0, 0x4000, 0x4000, 0x4000, 0x2000, 185, 0x2001))
    return (
        struct.pack(
            ">BBHHHBBH4s4s",
            rng.choice((4, 4, 4, 4, 4, 5)) << 4 | words,
            rng.randrange(256),
            lie(rng, 20 + len(options) + len(content)),
            rng.randrange(65536),
            fragment,
            64,
            protocol,
            0,
            bytes((10, 0, 0, rng.randrange(4))),
            bytes((10, 0, rng.randrange(4), 1)),
        )
        + options
        + content
    )


def ipv6(rng: random.Random, protocol: int, content: bytes) -> bytes:
    for _ in range(rng.choice((0, 0, 0, 1, 2, 10))):
        kind = rng.choice((0, 43, 44, 60))
        if kind == 44:
            offset = rng.choice((0, 0, 1, 8, 0xFFF8))
            content = struct.pack(">BBHI", protocol, 0, offset, 7) + content
        else:
            extra = rng.choice((0, 0, 1, 5))
            content = bytes((protocol, extra)) + bytes(6 + 8 * extra) + content
        protocol = kind
    first = rng.choice((6, 6, 6, 6, 7)) << 28 | rng.randrange(1 << 28)
    source = b"\x20\x01" + bytes(13) + bytes((rng.randrange(4),))
    gid = bytes(10) + b"\xff\xff" + bytes((10, 0, 0, rng.randrange(4)))
    header = struct.pack(">IHBB", first, lie(rng, len(content)), protocol, rng.randrange(256))
    return header + source + rng.choice((source, gid)) + content


def ethertype_and_content(rng: random.Random) -> tuple[int, bytes]:
    length = rng.choice((rng.randrange(48), rng.choice((8, 20, 24, 40)), 70))
    packet = bth(rng) + bytes(rng.choices(range(256), k=length))
    kind = rng.randrange(12)
    if kind < 4:
        return 0x0800, ipv4(rng, 17, udp(rng, packet))
    if kind < 7:
        return 0x86DD, ipv6(rng, 17, udp(rng, packet))
    if kind == 7:
        return 0x8915, ipv6(rng, 0x1B, packet)
    if kind == 8:
        opcode = rng.choice((0x0101, 0x0001, 0x0002))
        times = rng.choices((0, 100, 65535), k=8)
        return 0x8808, struct.pack(">HH8H", opcode, rng.randrange(65536), *times)
    if kind == 9:
        return rng.choice((0x0806, 0x88CC, 100, 0x8915)), packet
    return rng.choice(((0x0800, ipv4(rng, 6, packet)), (0x86DD, ipv6(rng, 58, packet))))


def frame(rng: random.Random) -> tuple[bytes, int, int]:
    """(captured bytes, link type, length on the wire) of one random frame."""
    ethertype, content = ethertype_and_content(rng)
    for _ in range(rng.choice((0, 0, 0, 1, 2, 4, 5))):
        content = struct.pack(">HH", rng.randrange(65536), ethertype) + content
        ethertype = rng.choice((0x8100, 0x88A8, 0x9100))
    link_type = rng.choice((1, 1, 1, 1, *LINK_TYPES, 9))
    if link_type == 1:
        content = bytes(12) + struct.pack(">H", ethertype) + content
    elif link_type == 113:
        content = bytes(14) + struct.pack(">H", ethertype) + content
    elif link_type == 276:
        content = struct.pack(">H", ethertype) + bytes(18) + content
    data = bytearray(content)
    for _ in range(rng.choice((0, 0, 0, 1, 3))):
        if data:
            data[rng.randrange(len(data))] = rng.randrange(256)
    wire = rng.choice((len(data), len(data), len(data) + 4, 30))
    if rng.randrange(3) == 0:
        del data[rng.randrange(len(data) + 1) :]
    return bytes(data), link_type, wire
