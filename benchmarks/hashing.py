"""Hash evaluations per second and core, beside Python (zlib, binascii, scapy) and numpy.

An evaluation is one flow under one seed, down to the chosen member of a group of
16 next hops. Both sides run in turn on one thread and are measured in CPU time of
that thread, so other load on the machine counts little; the ratio is the median of
the ratios of the rounds. Every peer's members are compared with ours. A CRC and Toeplitz
are linear in the seed, so rocescope needs one XOR per evaluation; the peers compute the whole hash.
"""

from __future__ import annotations

import argparse
import binascii
import json
import statistics
import sys
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from time import thread_time
from typing import NamedTuple

import numpy as np
from scapy.layers.sctp import crc32c as scapy_crc32c
from siphash_twin import siphash24

from rocescope.replay.hashing.bound import BoundHash
from rocescope.replay.hashing.functions import MICROSOFT_KEY
from rocescope.replay.hashing.keys import PacketKeys, fields_matrix, packet_keys
from rocescope.replay.hashing.models import MODELS, bind
from rocescope.replay.hashing.settings import HashSettings, equal_cost

sys.path.append(str(Path(__file__).parent.parent / "tests" / "support"))

FLOWS = 1000
MEMBERS = 16
FLOORS = {"crc16-ccitt": 100, "crc16-bisync": 100, "crc32": 100, "crc32c": 100, "toeplitz": 100}
FLOORS |= {"linux": 30}

Peer = Callable[[PacketKeys, Sequence[int]], np.ndarray]
"""Members, int[m, n], of all keys under all seeds."""


class Row(NamedTuple):
    """One line: our millions of evaluations per second, and how often a peer's."""

    model: str
    millions: float
    floor: float | None
    peers: dict[str, float]


def some_keys() -> PacketKeys:
    hosts = np.random.default_rng(1).integers(1, 250, (FLOWS, 2)).tolist()
    return packet_keys(
        [f"10.1.0.{a}" for a, _ in hosts],
        [f"10.2.0.{b}" for _, b in hosts],
        49152 + np.arange(FLOWS),
    )


def texts(keys: PacketKeys) -> list[bytes]:
    return [row.tobytes() for row in fields_matrix(keys, "5-tuple").data]


def each(function: Callable[[bytes, int], int]) -> Peer:
    """A peer that hashes one key at a time."""

    def members(keys: PacketKeys, seeds: Sequence[int]) -> np.ndarray:
        rows = texts(keys)
        return np.array([[function(row, seed) % MEMBERS for row in rows] for seed in seeds])

    return members


def scapy_castagnoli(row: bytes, seed: int) -> int:
    return int.from_bytes(scapy_crc32c(row).to_bytes(4, "big"), "little") ^ seed


def python_toeplitz(row: bytes, seed: int) -> int:
    key = int.from_bytes(MICROSOFT_KEY, "big")
    value = seed
    bits = int.from_bytes(row, "big")
    for i in range(len(row) * 8):
        if bits >> (len(row) * 8 - 1 - i) & 1:
            value ^= key >> (288 - i) & 0xFFFFFFFF
    return value


def linux_key(keys: PacketKeys, i: int) -> bytes:
    src, dst = sorted(
        (keys.src[i, 12:].tobytes(), keys.dst[i, 12:].tobytes()), key=lambda b: b[::-1]
    )
    ports = sorted(int(p).to_bytes(2, "big") for p in (keys.sport[i], keys.dport[i]))
    ports.sort(key=lambda b: b[::-1])
    return b"\0\0\x11" + bytes(25) + b"".join(ports) + bytes(4) + src + dst + bytes(4)


def python_linux(keys: PacketKeys, seeds: Sequence[int]) -> np.ndarray:
    rows = [linux_key(keys, i) for i in range(keys.units)]
    hashes = [
        [siphash24(row, s << 32 | s, s << 32 | s) & 0xFFFFFFFF for row in rows] for s in seeds
    ]
    return (np.array(hashes) >> 1) * MEMBERS >> 31


def numpy_crc32(keys: PacketKeys, seeds: Sequence[int]) -> np.ndarray:
    table = np.array(
        [zlib.crc32(bytes([b]), 0xFFFFFFFF) ^ 0xFFFFFFFF for b in range(256)], np.uint32
    )
    columns = fields_matrix(keys, "5-tuple").data.T
    out = []
    for seed in seeds:
        register = np.full(keys.units, seed ^ 0xFFFFFFFF, np.uint32)
        for column in columns:
            register = (register >> 8) ^ table[(register ^ column) & 0xFF]
        out.append((register ^ np.uint32(0xFFFFFFFF)) % MEMBERS)
    return np.array(out)


def numpy_toeplitz(keys: PacketKeys, seeds: Sequence[int]) -> np.ndarray:
    bits = np.unpackbits(fields_matrix(keys, "5-tuple").data, axis=1).astype(bool)
    key = int.from_bytes(MICROSOFT_KEY, "big")
    windows = np.array([key >> (288 - i) & 0xFFFFFFFF for i in range(bits.shape[1])], np.uint32)
    return np.array(
        [
            (np.bitwise_xor.reduce(np.where(bits, windows, np.uint32(0)), axis=1) ^ np.uint32(seed))
            % MEMBERS
            for seed in seeds
        ]
    )


def numpy_linux(keys: PacketKeys, seeds: Sequence[int]) -> np.ndarray:
    rows = b"".join(linux_key(keys, i) for i in range(keys.units))
    words = np.frombuffer(rows, "<u8").reshape(-1, 6).T.copy()
    last = np.full(keys.units, 48 << 56, np.uint64)

    def left(x: np.ndarray, k: int) -> np.ndarray:
        return (x << np.uint64(k)) | (x >> np.uint64(64 - k))

    def rounds(v: list[np.ndarray], count: int) -> None:
        for _ in range(count):
            v[0], v[2] = v[0] + v[1], v[2] + v[3]
            v[1], v[3] = left(v[1], 13) ^ v[0], left(v[3], 16) ^ v[2]
            v[0] = left(v[0], 32)
            v[2], v[0] = v[2] + v[1], v[0] + v[3]
            v[1], v[3] = left(v[1], 17) ^ v[2], left(v[3], 21) ^ v[0]
            v[2] = left(v[2], 32)

    out = []
    starts = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
    for seed in seeds:
        v = [np.full(keys.units, (seed << 32 | seed) ^ start, np.uint64) for start in starts]
        for word in [*words, last]:
            v[3] = v[3] ^ word
            rounds(v, 2)
            v[0] = v[0] ^ word
        v[2] = v[2] ^ np.uint64(0xFF)
        rounds(v, 4)
        h = (v[0] ^ v[1] ^ v[2] ^ v[3]) & np.uint64(0xFFFFFFFF)
        out.append((h >> np.uint64(1)).astype(np.int64) * MEMBERS >> 31)
    return np.array(out)


PEERS: dict[str, dict[str, tuple[Peer, int]]] = {
    # The number is how many seeds the peer is given: enough for some 50 ms.
    "crc16-ccitt": {"binascii": (each(lambda row, s: binascii.crc_hqx(row, s & 0xFFFF)), 100)},
    "crc32": {"zlib": (each(zlib.crc32), 100), "numpy": (numpy_crc32, 200)},
    "crc32c": {"scapy": (each(scapy_castagnoli), 5)},
    "toeplitz": {"Python": (each(python_toeplitz), 2), "numpy": (numpy_toeplitz, 50)},
    "linux": {"Python": (python_linux, 1), "numpy": (numpy_linux, 20)},
}


def ours(bound: BoundHash, seeds: np.ndarray, out: np.ndarray) -> float:
    """Evaluations per second of CPU time."""
    packed = bound.pack([equal_cost(MEMBERS)])
    start = thread_time()
    bound.choose_into(seeds, packed, out)
    return out.size / (thread_time() - start)


def row(model: str, keys: PacketKeys, seeds: int, rounds: int) -> Row:
    bound = bind(keys, HashSettings(model))
    many = np.arange(seeds, dtype=np.uint64) * np.uint64(2_654_435_761) & np.uint64(0xFFFFFFFF)
    out = np.empty((seeds, keys.units), np.uint16)
    ours(bound, many[:2], out[:2])
    speeds, ratios = [], {name: [] for name in PEERS.get(model, {})}
    for _ in range(rounds):
        speeds.append(ours(bound, many, out))
        for name, (peer, count) in PEERS.get(model, {}).items():
            start = thread_time()
            found = peer(keys, many[:count].tolist())
            speed = found.size / (thread_time() - start)
            ratios[name].append(speeds[-1] / speed)
            same = found == out[:count]
            # The first seed is 0; scapy's CRC has no start value for the others.
            if not (same[0] if name == "scapy" else same).all():
                raise SystemExit(f"{model}: {name} chose other members")
    medians = {name: statistics.median(r) for name, r in ratios.items()}
    return Row(model, statistics.median(speeds) / 1e6, FLOORS.get(model), medians)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer seeds and rounds")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    keys = some_keys()
    seeds, rounds = (2_000, 3) if options.quick else (20_000, 5)
    rows = [row(model, keys, seeds, rounds) for model in MODELS]
    if options.json:
        print(json.dumps([r._asdict() for r in rows], indent=1))
    else:
        print(f"{'hash':14}{'M/s per core':>13}  {'at least':9} times as fast as")
        for r in rows:
            floor = "" if r.floor is None else f"{r.floor:g}"
            peers = ", ".join(f"{name} {ratio:,.0f}x" for name, ratio in r.peers.items())
            print(f"{r.model:14}{r.millions:13,.0f}  {floor:9} {peers}")
    return int(any(r.floor is not None and r.millions < r.floor for r in rows))


if __name__ == "__main__":
    sys.exit(main())
