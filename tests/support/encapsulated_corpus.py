"""Random mirrors and tunnels in each other around the frames of `corpus`, lying and damaged."""

from __future__ import annotations

import random
import struct

import encapsulations as enc
from corpus import ethertype_and_content


def _plain(rng: random.Random) -> bytes:
    ethertype, content = ethertype_and_content(rng)
    if rng.randrange(3) == 0:
        ethertype, content = enc.vlan(rng.randrange(4096), ethertype, content)
    return enc.ethernet(ethertype, content)


def _in_ip(rng: random.Random, protocol: int, content: bytes) -> bytes:
    if rng.randrange(2):
        ethertype, packet = 0x0800, enc.ipv4(protocol, content, f"10.0.0.{rng.randrange(3)}")
    else:
        ethertype, packet = 0x86DD, enc.ipv6(protocol, content, f"fd00::{rng.randrange(3)}")
    if rng.randrange(3) == 0:
        ethertype, packet = enc.vlan(rng.randrange(4096), ethertype, packet)
    return enc.ethernet(ethertype, packet)


def _gre(rng: random.Random, protocol: int, content: bytes) -> bytes:
    return enc.gre(
        protocol,
        content,
        key=rng.choice((None, 0, 7)),
        sequence=rng.choice((None, 1)),
        checksum=bool(rng.randrange(2)),
    )


def _erspan3(rng: random.Random, frame: bytes) -> bytes:
    frame_type = rng.choice((0, 0, 0, 2, 5))
    return enc.erspan3(
        enc.without_ethernet(frame)[1] if frame_type == 2 else frame,
        rng.randrange(3),
        stamp=rng.randrange(1 << 32),
        granularity=rng.randrange(4),
        egress=bool(rng.randrange(2)),
        truncated=rng.randrange(4) == 0,
        frame_type=frame_type,
        platform=rng.choice((None, (rng.randrange(8), rng.randrange(1 << 32)))),
    )


def _sflow(rng: random.Random, frame: bytes) -> bytes:
    samples = []
    for _ in range(rng.randrange(4)):
        records = [enc.raw_header(frame, rng.choice((0, 30, 64, 128)))] * rng.randrange(3)
        way = rng.choice(((7, 9), (9, 7), (1, 2)))
        make = rng.choice((enc.flow_sample, enc.expanded_sample))
        samples.append(make(*records, rate=rng.choice((0, 1, 1000)), port=7, way=way))
        if rng.randrange(3) == 0:
            samples.append(enc.counter_sample())
    datagram = enc.sflow(*samples, agent=rng.choice(("10.0.0.1", "fd00::1")))
    return _in_ip(rng, 17, enc.udp(6343, datagram))


def wrapped(rng: random.Random, frame: bytes) -> bytes:
    """The frame in one more encapsulation, seldom one that does not fit."""
    kind = rng.randrange(21)
    packet = enc.without_ethernet(frame)[1]
    if kind == 0:
        return _in_ip(rng, 47, _gre(rng, rng.choice((0x6558, 0x88BE, 0x8949, 0x0800)), frame))
    if kind == 1:
        extra = bytes(rng.choice((0, 4, 8, 12, 20, 22, 9)))
        return _in_ip(rng, 47, _gre(rng, rng.choice((0x8949, 0x88BE, 0x22EB)), extra + frame))
    if kind == 2:
        return _in_ip(rng, 47, _gre(rng, rng.choice((0x0800, 0x86DD, 0x880B)), packet))
    if kind == 3:
        return _in_ip(rng, 47, enc.erspan2(frame, rng.randrange(3), rng.randrange(4) == 0))
    if kind == 4:
        return _in_ip(rng, 47, _erspan3(rng, frame))
    if kind == 5:
        return _in_ip(rng, 17, enc.vxlan(frame, rng.randrange(3)))
    if kind == 6:
        options, protocol = bytes(4 * rng.randrange(3)), rng.choice((0x6558, 0x6558, 0x0800))
        return _in_ip(rng, 17, enc.geneve(frame, rng.randrange(3), protocol, options))
    if kind == 7:
        return _in_ip(rng, rng.choice((4, 41, 143)), rng.choice((packet, frame)))
    if kind == 8:
        return enc.ethernet(
            0x8847, enc.mpls(rng.choice((packet, frame)), *range(rng.randrange(20)))
        )
    if kind == 9:
        return _in_ip(rng, 137, enc.mpls(bytes(rng.choice((0, 4))) + frame, 17))
    if kind == 10:
        return enc.arista(frame, rng.randrange(1 << 32), rng.randrange(1 << 30), rng.random() < 0.5)
    if kind == 11:
        return _sflow(rng, frame)
    if kind == 12:
        pds = struct.pack(">HHIHH", rng.randrange(1 << 16), 0, rng.randrange(1 << 32), 1, 2)
        return _in_ip(rng, 17, enc.udp(4793, pds, rng.randrange(65536)))
    if kind == 13:
        return _in_ip(rng, 47, _gre(rng, 0x8847, enc.mpls(packet, 3)))
    if kind == 14:
        return enc.tagged(frame, rng.choice(sorted(enc.TAGS)))
    if kind == 15:
        content = enc.nsh(rng.choice((frame, packet)), rng.randrange(7), rng.choice((1, 2, 3, 6)))
        gre = _in_ip(rng, 47, _gre(rng, 0x894F, content))
        return rng.choice((enc.ethernet(0x894F, content), gre))
    if kind == 16:
        head = rng.choice((b"", bytes(2), bytes(4), bytes(6), struct.pack(">HI", 2 << 6, 9)))
        return enc.ethernet(rng.choice((0x8903, 0x88E7, 0x22F3)), head + frame)
    if kind == 17:
        inner = rng.choice((frame, packet, enc.nsh(frame, 3), enc.mpls(packet, 3)))
        return _in_ip(rng, 17, enc.vxlan_gpe(inner, rng.randrange(7), rng.randrange(3)))
    if kind == 18:
        return _in_ip(rng, 17, enc.vxlan(frame, rng.randrange(3), rng.choice((8472, 250, 48879))))
    if kind == 19:
        return _in_ip(rng, 17, enc.udp(6635, enc.mpls(rng.choice((packet, frame)), 3)))
    return _in_ip(rng, 17, enc.gtp(packet, rng.random() < 0.5, rng.randrange(3)))


def frame(rng: random.Random) -> tuple[bytes, int, int]:
    """(captured bytes, link type, length on the wire) of one random frame."""
    data = _plain(rng)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 2, 3, 4, 10))):
        data = wrapped(rng, data)
    out = bytearray(data[:2000])
    for _ in range(rng.choice((0, 0, 0, 0, 1, 3))):
        out[rng.randrange(len(out))] = rng.randrange(256)
    wire = rng.choice((len(data), len(data), len(data) + 4, 30))
    if rng.randrange(3) == 0:
        del out[rng.randrange(len(out) + 1) :]
    return bytes(out), 1, wire
