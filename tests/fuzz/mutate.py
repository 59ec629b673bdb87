"""A deterministic mutator: mutant number n is always the same bytes.

Frames are changed where it hurts (lengths, versions, ports, opcodes, PSNs), written as
a capture of any kind, and then the file is changed again: headers of records and
blocks, cut, spliced, flipped. Some are compressed before that, some after.
"""

from __future__ import annotations

import gzip
import lzma
import random
import struct
from collections.abc import Sequence

import lz4.frame
import zstandard
from factories import Frame, Pcapng, pcap_bytes

from .seeds import ETHERNET, Record, Seed

_EXTREMES = (0, 1, 3, 4, 7, 8, 11, 12, 16, 28, 60, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF)
_EXTREMES_32 = (
    *_EXTREMES, 0x10000, 0x3FFFF, 0x40000, 0x40001, 0xFFFFFF, 0x1000000, 0x7FFFFFFF, 0x80000000,
    0xFFFFFFF0, 0xFFFFFFFC, 0xFFFFFFFF,
)  # fmt: skip
_LINK_TYPES = (ETHERNET, 101, 113, 228, 229, 276)
_MAX_BYTES = 12_000


def mutant(number: int, seeds: Sequence[Seed]) -> bytes:
    """The file of this number."""
    rng = random.Random(number)
    records = list(rng.choice(seeds).records)
    if rng.random() < 0.1:
        other = rng.choice(seeds).records
        records[rng.randrange(len(records) + 1) :] = other[rng.randrange(len(other)) :]
    for _ in range(rng.choice((0, 1, 1, 2, 4, 12))):
        _mutate_records(rng, records)
    data = _written(rng, records)[:_MAX_BYTES]
    compress_first = rng.random() < 0.5
    pack = rng.choice(_PACKERS) if rng.random() < 0.08 else None
    if pack and compress_first:
        data = pack(data)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 5))):
        data = rng.choice(_FILE_MUTATIONS)(rng, data)
    return pack(data) if pack and not compress_first else data


# --- records -----------------------------------------------------------------


def _mutate_records(rng: random.Random, records: list[Record]) -> None:
    if not records:
        return
    at = rng.randrange(len(records))
    record = records[at]
    kind = rng.randrange(10)
    if kind < 6:
        records[at] = record._replace(data=_mutate_frame(rng, record.data))
    elif kind == 6:
        records[at:at] = [record] * rng.choice((1, 1, 2, 8))
    elif kind == 7:
        other = rng.randrange(len(records))
        records[at], records[other] = records[other], record
    elif kind == 8:
        jump = rng.choice((-1, 1, -(10**9), 10**9, 10**13, 10**18, -record.time_ns))
        for i in range(at, len(records)):
            time_ns = min(max(0, records[i].time_ns + jump), (1 << 32) * 10**9 - 1)
            records[i] = records[i]._replace(time_ns=time_ns)
    else:
        records[at] = record._replace(wire=rng.choice(_EXTREMES_32))


def _mutate_frame(rng: random.Random, data: bytes) -> bytes:
    frame = bytearray(data)
    ip, udp, bth = _offsets(data)
    kind = rng.randrange(16)
    if kind == 0:  # cut or padded
        return bytes(frame[: rng.randrange(len(frame) + 1)]) + bytes(rng.choice((0, 0, 2, 46)))
    if kind == 1:  # VLAN tags
        tags = rng.choice((b"\x81\x00\x00\x64", b"\x88\xa8\x00\x01\x81\x00\x0f\xff")) * (
            rng.choice((1, 1, 2, 4))
        )
        frame[12:12] = tags
    elif kind == 2:  # IP version and header length
        _put(frame, ip, bytes((rng.randrange(256),)))
    elif kind == 3:  # IPv4 total length, IPv6 flow label
        _put(frame, ip + 2, struct.pack(">H", rng.choice(_EXTREMES)))
    elif kind == 4:  # IPv4 fragments, IPv6 payload length and next header
        _put(frame, ip + rng.choice((4, 6)), rng.randbytes(2))
    elif kind == 5:
        _put(frame, ip + 9, bytes((rng.choice((17, 6, 1, 44, 60, 0, 43, 0x1B)),)))
    elif kind == 6:  # an address
        _put(frame, ip + rng.randrange(8, 40), bytes((rng.randrange(256),)))
    elif kind == 7:
        _put(frame, udp + 4, struct.pack(">H", rng.choice(_EXTREMES)))
    elif kind == 8:
        _put(frame, udp, rng.randbytes(2))
    elif kind < 11:
        _put(frame, bth, bytes((rng.randrange(256),)))
    elif kind == 11:
        _put(frame, bth + 5, rng.choice((bytes(3), b"\0\0\1", b"\xff\xff\xff", rng.randbytes(3))))
    elif kind == 12:
        _put(
            frame,
            bth + 9,
            rng.choice((bytes(3), b"\xff\xff\xff", b"\x7f\xff\xff", rng.randbytes(3))),
        )
    elif kind == 13:  # AETH, DETH, RETH
        _put(frame, bth + 12 + rng.randrange(17), struct.pack(">I", rng.choice(_EXTREMES_32)))
    elif kind == 14:  # a bit
        if frame:
            frame[rng.randrange(len(frame))] ^= 1 << rng.randrange(8)
    else:  # extension headers before UDP, if it is IPv6
        header = bytes((17, rng.choice((0, 0, 1, 255)))) + bytes(6)
        if ip + 40 <= len(frame):
            frame[ip + 6 : ip + 7] = bytes((rng.choice((0, 43, 44, 60)),))
            frame[ip + 40 : ip + 40] = header
    return bytes(frame)


def _offsets(frame: bytes) -> tuple[int, int, int]:
    """Where IP, UDP and BTH are in an Ethernet frame, about."""
    at = 12
    while frame[at : at + 2] in (b"\x81\x00", b"\x88\xa8"):
        at += 4
    ip = at + 2
    udp = ip + (40 if frame[at : at + 2] == b"\x86\xdd" else 20)
    return ip, udp, udp + 8


def _put(frame: bytearray, at: int, value: bytes) -> None:
    """Overwrite without making the frame longer."""
    room = max(0, len(frame) - at)
    frame[at : at + len(value)] = value[:room]


# --- capture files -------------------------------------------------------------


def _written(rng: random.Random, records: list[Record]) -> bytes:
    order = rng.choice("<<>")
    kind = rng.randrange(10)
    if kind < 5:
        link_type = records[0].link_type if records and rng.random() < 0.9 else ETHERNET
        if rng.random() < 0.1:
            link_type = rng.choice(_LINK_TYPES)
        frames = [Frame(r.time_ns, r.data, r.wire) for r in records]
        return pcap_bytes(
            frames,
            order=order,
            nanoseconds=kind != 1,
            modified=kind == 2,
            link_type=link_type | rng.choice((0, 0, 0xF4000000)),
        )
    return _pcapng(rng, records, order)


def _pcapng(rng: random.Random, records: list[Record], order: str) -> bytes:
    """One interface per link type, now and then another section or a block of another kind."""
    file = Pcapng(order).section()
    resolution = rng.choice((9, 9, 9, 6, 0x80 | 30, 0, 0x7F, 0xFF, 19, None))
    interfaces: dict[int, int] = {}
    for record in records:
        if rng.random() < 0.03:
            file.section(rng.choice("<>"))
            interfaces.clear()
        if record.link_type not in interfaces or rng.random() < 0.01:
            interfaces[record.link_type] = len(interfaces)
            file.interface(
                record.link_type,
                name=rng.choice((None, "eth0", "\u00e4\n")),
                resolution=resolution,
                offset_seconds=rng.choice((None, None, 5, -(2**40), 2**62)),
                speed=rng.choice((None, 10**11)),
                snap_length=rng.choice((0, 0, 64)),
            )
        interface = interfaces[record.link_type]
        kind = rng.randrange(30)
        if kind == 0:
            file.simple(record.data, record.wire)
        elif kind == 1:
            file.obsolete(record.time_ns, record.data, wire=record.wire, interface=interface)
        else:
            file.enhanced(record.time_ns, record.data, wire=record.wire, interface=interface)
        if kind == 2:
            file.statistics(interface, {5: rng.randrange(1 << 64), 7: 3})
        elif kind == 3:
            file.block(rng.choice((4, 10, 0x0BAD, 0xFFFFFFFF)), rng.randbytes(rng.randrange(40)))
    return file.bytes()


# --- bytes ---------------------------------------------------------------------


def _flip(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 3, 20))):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _number(rng: random.Random, data: bytes) -> bytes:
    """A number of two or four bytes anywhere, mostly where numbers begin."""
    at = rng.randrange(len(data) + 1)
    if rng.random() < 0.7:
        at -= at % 4
    if rng.random() < 0.5:
        value = struct.pack(rng.choice("<>") + "I", rng.choice(_EXTREMES_32))
    else:
        value = struct.pack(rng.choice("<>") + "H", rng.choice(_EXTREMES))
    return data[:at] + value + data[at + len(value) :]


def _header(rng: random.Random, data: bytes) -> bytes:
    """A field of the file's first headers, or of the header of a record of a classic pcap."""
    at = rng.randrange(0, 48, 4)
    if rng.random() < 0.7 and len(data) > 40:
        order = "<" if data[0] in (0xD4, 0x4D, 0x34) else ">"
        extra = 8 if data[:4] in (b"\x34\xcd\xb2\xa1", b"\xa1\xb2\xcd\x34") else 0
        at = 24
        for _ in range(rng.randrange(20)):
            if at + 16 > len(data):
                break
            following = at + 16 + extra + struct.unpack_from(order + "I", data, at + 8)[0]
            if following + 16 > len(data):
                break
            at = following
        at += rng.choice((0, 4, 8, 8, 8, 12))
    value = struct.pack(rng.choice("<>") + "I", rng.choice(_EXTREMES_32))
    return data[:at] + value + data[at + 4 :]


def _cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _piece(rng: random.Random, data: bytes) -> tuple[int, int]:
    begin = rng.randrange(len(data) + 1)
    return begin, min(len(data), begin + rng.choice((1, 4, 16, 100, 1000)))


def _delete(rng: random.Random, data: bytes) -> bytes:
    begin, end = _piece(rng, data)
    return data[:begin] + data[end:]


def _repeat(rng: random.Random, data: bytes) -> bytes:
    begin, end = _piece(rng, data)
    return data[:end] + data[begin:end] * rng.choice((1, 1, 5)) + data[end:]


def _insert(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.randbytes(rng.choice((1, 2, 4, 8, 200))) + data[at:]


def _fill(rng: random.Random, data: bytes) -> bytes:
    begin, end = _piece(rng, data)
    return data[:begin] + rng.choice((b"\0", b"\xff")) * (end - begin) + data[end:]


_FILE_MUTATIONS = (
    _flip, _flip, _number, _number, _header, _header, _cut, _delete, _repeat, _insert, _fill,
)  # fmt: skip
_PACKERS = (
    lambda data: gzip.compress(data, 1, mtime=0),
    lambda data: zstandard.ZstdCompressor(1).compress(data),
    lambda data: lzma.compress(data, preset=0),
    lz4.frame.compress,
)
