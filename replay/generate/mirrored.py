"""A generated capture as sent by a mirror port: every frame has the same outer headers."""

from __future__ import annotations

import io
import struct
from typing import Any, BinaryIO, cast

import numpy as np

from ...kernels.kernel import Bytes, Int, inlined, kernel
from .outer import Outer
from .words import put, put_checksum, put_word

_FILE_HEADER = 24
_RECORD_HEADER = 16
_LONGEST_SNAP = 262_144


def mirrored(file: BinaryIO, mirror: str | None) -> BinaryIO:
    """The output of a pcap writer, with the outer headers of `mirror`, if any."""
    if mirror is None:
        return file
    from .craft import outer_headers

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
        whole = wire + prefix - network
        if outer.ipv6:
            put(out, used + network + 4, 2, whole - 40)
        else:
            put(out, used + network + 2, 2, whole)
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
