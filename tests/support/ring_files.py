"""Captures split into the ring files of a tap, as dumpcap -b writes them."""

from __future__ import annotations

import gzip
import lzma
import struct
from collections.abc import Iterable
from pathlib import Path

HEADER, RECORD = 24, 16
"""Bytes of the header of a pcap file, and of a record."""


def ring_files(path: Path, folder: Path, count: int) -> list[Path]:
    """The records of a pcap, in about equal parts, in `folder`."""
    kinds = {".xz": lzma.open, ".gz": gzip.open}
    with kinds.get(path.suffix, open)(path, "rb") as file:
        data = file.read()
    places = [HEADER]
    while places[-1] < len(data):
        (size,) = struct.unpack_from("<I", data, places[-1] + 8)
        places.append(places[-1] + RECORD + size)
    folder.mkdir(parents=True)
    bounds = [places[(len(places) - 1) * n // count] for n in range(count + 1)]
    written = []
    for n in range(count):
        one = folder / f"ring_{n + 1:05d}_202611221000{n:02d}.pcap"
        one.write_bytes(data[:HEADER] + data[bounds[n] : bounds[n + 1]])
        written.append(one)
    return written


def rings(paths: Iterable[Path], folder: Path, count: int) -> dict[str, list[Path]]:
    """The ring files of several captures, by the names of their taps."""
    taps = {path.name.partition(".")[0]: path for path in paths}
    return {tap: ring_files(path, folder / tap, count) for tap, path in taps.items()}
