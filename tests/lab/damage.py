"""Faults of the captures themselves: frames that one of them missed, clocks that are wrong."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

_HEADER = 24


def records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Time in nanoseconds and record of every frame of a capture."""
    at = _HEADER
    while at < len(data):
        seconds, nanoseconds, kept, _ = struct.unpack_from("<IIII", data, at)
        yield seconds * 10**9 + nanoseconds, data[at : at + 16 + kept]
        at += 16 + kept


def miss_frames(path: Path, share: float, chance: random.Random) -> int:
    """Remove a share of the frames, in runs as a full buffer does; how many."""
    data = path.read_bytes()
    kept, missed, left = [data[:_HEADER]], 0, 0
    for _, record in records(data):
        if not left and chance.random() < share / 5:
            left = chance.randint(1, 9)
        if left:
            left -= 1
            missed += 1
        else:
            kept.append(record)
    path.write_bytes(b"".join(kept))
    return missed


def change_clock(path: Path, clock: Callable[[int], int]) -> int:
    """Rewrite all times: `clock` is the wrong time of a true time, both in ns; how many."""
    data = path.read_bytes()
    out = [data[:_HEADER]]
    for time_ns, record in records(data):
        seconds, nanoseconds = divmod(clock(time_ns), 10**9)
        out.append(struct.pack("<II", seconds, nanoseconds) + record[8:])
    path.write_bytes(b"".join(out))
    return len(out) - 1
