"""Small captures to begin with: pieces of the bundled real ones, and crafted odd ones."""

from __future__ import annotations

import gzip
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from corpus import frame as odd_frame
from encapsulated_corpus import frame as mirrored_frame
from encapsulated_corpus import wrapped
from factories import START_NS

from rocescope.replay.generate.mrc import Format, Settings, Traffic

ETHERNET = 1
_SNAP_BYTES = 160


class Record(NamedTuple):
    """One frame of a capture, as the capture states it."""

    time_ns: int
    data: bytes
    wire: int
    link_type: int = ETHERNET


@dataclass(frozen=True)
class Seed:
    name: str
    records: tuple[Record, ...]


def _pcap_records(path: Path, first: int, count: int) -> Iterator[Record]:
    """Some records of a little-endian Ethernet pcap, snapped to keep mutants small."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    tick_ns = 1 if struct.unpack_from("<I", data)[0] == 0xA1B23C4D else 1000
    at, number = 24, 0
    while at < len(data) and number < first + count:
        seconds, fraction, held, wire = struct.unpack_from("<IIII", data, at)
        if number >= first:
            frame = data[at + 16 : at + 16 + held]
            if number % 4:
                frame = frame[:_SNAP_BYTES]
            yield Record(seconds * 10**9 + fraction * tick_ns, frame[:600], wire)
        at += 16 + held
        number += 1


_REAL = (
    ("c04_rc_read_q4_64k", 40, 16),
    ("c05_rc_atomic_fetchadd", 100, 12),
    ("c07_ud_send", 10, 8),
    ("c08_uc_write_q2_64k", 0, 20),
    ("c10_rping_ipv4", 0, 24),
    ("c15_rc_write_ipv6_gid", 20, 16),
    ("c16_rc_write_bidir", 30, 24),
    ("c23_rc_write_vlan100", 5, 12),
    ("c40_rc_oddities_ipv4", 30, 40),
    ("i01_write_loss0.5_AtoB.atB", 150, 40),
    ("i03_write_reorder5", 200, 30),
    ("i04_write_duplicate1", 100, 30),
    ("i13_write_ecn_ce2", 60, 24),
    ("n05_rc_write_lat_timeouts", 20, 20),
)


def _real(data: Path) -> Iterator[Seed]:
    for name, first, count in _REAL:
        (path,) = (p for p in data.glob(f"{name}*") if ".json" not in p.name)
        yield Seed(name, tuple(_pcap_records(path, first, count)))


def _bth(opcode: int, qp: int, psn: int, rest: bytes = b"") -> bytes:
    return struct.pack(">BBHII", opcode, 0, 0xFFFF, qp, 1 << 31 | psn & 0xFFFFFF) + rest + bytes(4)


def _packet(forth: bool, transport: bytes, ip_id: int, sport: int = 0xC123) -> bytes:
    hosts = (bytes((10, 0, 0, 1)), bytes((10, 0, 0, 2)))
    source, destination = hosts if forth else hosts[::-1]
    udp = struct.pack(">HHHH", sport, 4791, 8 + len(transport), 0) + transport
    ip = struct.pack(">BBHHHBBH", 0x45, 2, 20 + len(udp), ip_id & 0xFFFF, 0x4000, 64, 17, 0)
    return bytes(12) + b"\x08\x00" + ip + source + destination + udp


def _requester(rng: random.Random) -> Seed:
    """READs of any length, WRITEs, atomics, ACKs and NAKs around a PSN wrap."""
    psn, frames = 0xFFFFF8, []
    for i in range(40):
        kind = rng.randrange(9)
        if kind < 3:
            length = rng.choice((0, 1, 1024, 5000, 1 << 20, (1 << 32) - 1))
            frames.append((True, _bth(0x0C, 0x12, psn, struct.pack(">QII", 0, 7, length))))
            psn += max(1, (min(length, 5000) + 1023) // 1024)
        elif kind == 3:
            frames.append((False, _bth(0x0E, 0x11, psn - 2, bytes(64))))
        elif kind == 4:
            frames.append((True, _bth(0x14, 0x12, psn, bytes(28))))
            psn += 1
        elif kind < 7:
            syndrome = rng.choice((0x1F, 0x60, 0x61, 0x2E))
            aeth = struct.pack(">I", syndrome << 24 | i)
            frames.append((False, _bth(0x11, 0x11, psn - rng.randrange(1, 4), aeth)))
        else:
            psn += rng.choice((1, 1, 2, -3, 100, 40_000))
            frames.append((True, _bth(rng.choice((6, 7, 8, 10)), 0x12, psn, bytes(64))))
            psn += 1
    records = (
        Record(START_NS + 2_000 * i, data, len(data))
        for i, data in enumerate(_packet(forth, bth, i) for i, (forth, bth) in enumerate(frames))
    )
    return Seed("requester", tuple(records))


def _odd(rng: random.Random, number: int) -> Seed:
    """Frames of every encapsulation; in a pcap of one link type some of them make no sense."""
    records = []
    for i in range(24):
        data, link_type, wire = odd_frame(rng)
        records.append(Record(START_NS + 1_000 * i, data, wire, link_type))
    return Seed(f"odd{number}", tuple(records))


def _mirrored(rng: random.Random, number: int) -> Seed:
    """Frames inside mirrors, tunnels and samples, nested and damaged."""
    records = []
    for i in range(16):
        data, link_type, wire = mirrored_frame(rng)
        records.append(Record(START_NS + 1_000 * i, data[:600], wire, link_type))
    return Seed(f"mirrored{number}", tuple(records))


def _mirror_of(rng: random.Random, seed: Seed) -> Seed:
    """A real capture as one mirror would send it: every frame in some encapsulation."""
    records = []
    for record in seed.records:
        data = wrapped(rng, record.data)
        wire = record.wire + len(data) - len(record.data)
        records.append(Record(record.time_ns, data, max(wire, len(data))))
    return Seed(f"mirror_of_{seed.name}", tuple(records))


def _many_flows(rng: random.Random) -> Seed:
    """Every packet in a flow of its own."""
    records = []
    for i in range(20):
        data = _packet(bool(i & 1), _bth(4, rng.randrange(1 << 24), rng.randrange(1 << 24)), i, i)
        records.append(Record(START_NS + 50_000_000 * i, data, len(data)))
    return Seed("many_flows", tuple(records))


def _mrc() -> Iterator[Seed]:
    """Sprayed, lost, trimmed and answered packets, in SRv6 or not; a port that goes down."""
    trouble = {"message_bytes": 24_576, "path_mtu": 1024, "evs": 16, "messages": 2, "ce": 0.1}
    for number, (form, at_receiver) in enumerate(
        [(Format(snap=0), False), (Format(srv6=False, label_high=False, port=4971), True)]
    ):
        traffic = Traffic(
            Settings(loss=0.05, trim=0.05, failed_plane=1, at_receiver=at_receiver, **trouble), form
        )
        records = [Record(*captured) for captured in traffic.captured()]
        yield Seed(f"mrc{number}", tuple(records[number * 20 :: 3][:40]))


def seeds(data: Path) -> list[Seed]:
    """All seeds, always the same; `data` is the folder of bundled captures."""
    rng = random.Random(4791)
    crafted = [_requester(rng) for _ in range(4)] + [_odd(rng, n) for n in range(6)]
    real, flows = list(_real(data)), _many_flows(rng)
    mirrors = [_mirrored(rng, n) for n in range(6)]
    mirrors += [_mirror_of(rng, real[n]) for n in (0, 9, 11)]
    return [*real, *crafted, flows, *_mrc(), *mirrors]
