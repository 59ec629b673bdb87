"""The blocks of a pcapng: sections, interfaces and packets.

Format: https://datatracker.ietf.org/doc/draft-ietf-opsawg-pcapng/
Everything is little-endian, time stamps are nanoseconds.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ..analyzer.wire.packets import I64
from ..analyzer.wire.taps import Tap

SECTION_HEADER, INTERFACE_DESCRIPTION, INTERFACE_STATISTICS, ENHANCED_PACKET = (
    0x0A0D0D0A,
    1,
    5,
    6,
)
_BYTE_ORDER_MAGIC = 0x1A2B3C4D
_NANOSECONDS = 9  # if_tsresol
_COMMENT = 1
_SHB_OS, _SHB_APPLICATION = 3, 4
_IF_NAME, _IF_SPEED, _IF_TSRESOL, _IF_FILTER = 2, 8, 9, 11
_ISB_START, _ISB_END, _ISB_RECEIVED, _ISB_DROPPED, _ISB_ACCEPTED, _ISB_DELIVERED = 2, 3, 4, 5, 6, 8


@dataclass(frozen=True, slots=True)
class InterfaceStatistics:
    """The contents of an interface statistics block, since the start of the section."""

    start_ns: int
    end_ns: int
    received: int
    """Frames that passed the hook."""
    accepted: int
    """Frames that passed the filter."""
    dropped: int
    """Of these, frames dropped because a ring was full."""
    delivered: int
    """Of these, frames in the file."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """Packet blocks in order of time."""

    data: memoryview
    """Their bytes; valid until the next blocks are written."""
    frames: I64
    """Number of blocks of each interface, int64[interfaces]."""

    def split(self, size: int) -> tuple[Blocks, Blocks]:
        """The blocks that begin in the first `size` bytes, and the others."""
        frames, end = np.zeros_like(self.frames), 0
        while end < min(size, len(self.data)):
            block, interface = struct.unpack_from("<4xII", self.data, end)
            end += block
            frames[interface] += 1
        return Blocks(self.data[:end], frames), Blocks(self.data[end:], self.frames - frames)

    def whole(self, size: int) -> Blocks:
        """The whole blocks in the first `size` bytes."""
        frames, end = np.zeros_like(self.frames), 0
        while end + 12 <= size:
            block, interface = struct.unpack_from("<4xII", self.data, end)
            if end + block > size:
                break
            end += block
            frames[interface] += 1
        return Blocks(self.data[:end], frames)


def section_header(application: str, system: str, comments: Iterable[str]) -> bytes:
    """The first block of a file or section."""
    options = [(_SHB_OS, system.encode()), (_SHB_APPLICATION, application.encode())]
    options += [(_COMMENT, comment.encode()) for comment in comments]
    return _block(
        SECTION_HEADER, struct.pack("<IHHq", _BYTE_ORDER_MAGIC, 1, 0, -1) + _options(options)
    )


def interface_description(tap: Tap) -> bytes:
    """The block that describes a tap; the interface number is its rank."""
    options = [(_IF_NAME, tap.name.encode()), (_IF_TSRESOL, bytes([_NANOSECONDS]))]
    if tap.speed_bits_per_second:
        options.append((_IF_SPEED, struct.pack("<Q", tap.speed_bits_per_second)))
    if tap.filter:
        options.append((_IF_FILTER, b"\0" + tap.filter.encode()))
    head = struct.pack("<HHI", tap.link_type, 0, tap.snap_length or 0)
    return _block(INTERFACE_DESCRIPTION, head + _options(options))


def interface_statistics(interface: int, counts: InterfaceStatistics) -> bytes:
    """The block with the counters of one interface."""
    options = [
        (_ISB_START, _time(counts.start_ns)),
        (_ISB_END, _time(counts.end_ns)),
        (_ISB_RECEIVED, struct.pack("<Q", counts.received)),
        (_ISB_DROPPED, struct.pack("<Q", counts.dropped)),
        (_ISB_ACCEPTED, struct.pack("<Q", counts.accepted)),
        (_ISB_DELIVERED, struct.pack("<Q", counts.delivered)),
    ]
    head = struct.pack("<I", interface) + _time(counts.end_ns)
    return _block(INTERFACE_STATISTICS, head + _options(options))


def _time(time_ns: int) -> bytes:
    return struct.pack("<II", time_ns >> 32, time_ns & 0xFFFFFFFF)


def _options(options: Sequence[tuple[int, bytes]]) -> bytes:
    parts = [
        struct.pack("<HH", code, len(value)) + value + bytes(-len(value) % 4)
        for code, value in options
    ]
    return b"".join(parts) + bytes(4)


def _block(kind: int, body: bytes) -> bytes:
    total = len(body) + 12
    return struct.pack("<II", kind, total) + body + struct.pack("<I", total)
