"""pcapng blocks of live frames: one compiled pass from the rings into a buffer.

Format: https://datatracker.ietf.org/doc/draft-ietf-opsawg-pcapng/
Everything is little-endian, time stamps are nanoseconds.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ..analyzer.frames import FrameBatch, Tap
from ..analyzer.kernel import kernel
from ..analyzer.packets import I64, U16, U32

SECTION_HEADER, INTERFACE_DESCRIPTION, INTERFACE_STATISTICS, ENHANCED_PACKET = (
    0x0A0D0D0A,
    1,
    5,
    6,
)
INBOUND, OUTBOUND = 1, 2
"""Direction bits of epb_flags."""

_BYTE_ORDER_MAGIC = 0x1A2B3C4D
_NANOSECONDS = 9  # if_tsresol
_COMMENT = 1
_SHB_OS, _SHB_APPLICATION = 3, 4
_IF_NAME, _IF_SPEED, _IF_TSRESOL, _IF_FILTER = 2, 8, 9, 11
_ISB_START, _ISB_END, _ISB_RECEIVED, _ISB_DROPPED, _ISB_ACCEPTED, _ISB_DELIVERED = 2, 3, 4, 5, 6, 8

_EPB_FLAGS: Final = 4 << 16 | 2  # epb_flags, 4 bytes
_FIXED_BYTES: Final = 28 + 12 + 4
"""An enhanced packet block without its data: header, epb_flags with end of options, length."""


@dataclass(frozen=True, slots=True)
class InterfaceStatistics:
    """What an interface statistics block says of one interface, since the section began."""

    start_ns: int
    end_ns: int
    received: int
    """Frames that passed the hook."""
    accepted: int
    """Frames that passed the filter."""
    dropped: int
    """Of these, frames lost for want of room."""
    delivered: int
    """Of these, frames in the file."""


def section_header(application: str, system: str, comments: Iterable[str]) -> bytes:
    """The block a file begins with."""
    options = [(_SHB_OS, system.encode()), (_SHB_APPLICATION, application.encode())]
    options += [(_COMMENT, comment.encode()) for comment in comments]
    return _block(
        SECTION_HEADER, struct.pack("<IHHq", _BYTE_ORDER_MAGIC, 1, 0, -1) + _options(options)
    )


def interface_description(tap: Tap, filter: str | None) -> bytes:
    """The block that describes a tap; their order is their number."""
    options = [(_IF_NAME, tap.name.encode()), (_IF_TSRESOL, bytes([_NANOSECONDS]))]
    if tap.speed_bits_per_second:
        options.append((_IF_SPEED, struct.pack("<Q", tap.speed_bits_per_second)))
    if filter:
        options.append((_IF_FILTER, b"\0" + filter.encode()))
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


def _no_frames() -> FrameBatch:
    data = np.zeros(4, np.uint8)
    data.flags.writeable = False  # as a mapped ring is: one type, one compiled kernel
    return FrameBatch(
        data,
        np.zeros(0, np.int64),
        np.zeros(0, np.uint32),
        np.zeros(0, np.uint32),
        np.zeros(0, np.int64),
        np.zeros(0, np.uint16),
        np.zeros(0, np.uint16),
        1,
        0,
    )


_NO_FRAMES: Final = _no_frames()


@dataclass(frozen=True, slots=True)
class Blocks:
    """Packet blocks in order of time."""

    data: memoryview
    """Their bytes; like the rest gone when the next ones are laid out."""
    ends: I64
    """Where each block ends in `data`."""
    taps: U16
    """The tap of the frame of each block."""

    def __len__(self) -> int:
        return len(self.ends)


class PacketBlocks:
    """Lays out enhanced packet blocks, in a buffer that is used again and again.

    first_tap: the tap that is interface 0. directions: INBOUND or OUTBOUND for each
    interface.
    """

    def __init__(self, first_tap: int, directions: Sequence[int]) -> None:
        self._first_tap = first_tap
        self._directions = np.array(directions, np.uint32)
        self._words: U32 = np.empty(1 << 16, np.uint32)
        self._ends, self._at = np.empty(0, np.int64), np.empty(0, np.int64)
        self.lay_out([_NO_FRAMES])  # the machine code is there before frames

    def lay_out(self, batches: Sequence[FrameBatch], limit: int | None = None) -> Blocks:
        """The frames of several batches, each in order of time, as blocks in order of time.

        Frames begin at multiples of 4 bytes in their buffers, as records in a ring
        do. At most `limit` blocks, the earliest.
        """
        rows = sum(map(len, batches))
        if len(self._ends) < rows:
            self._ends, self._at = np.empty(rows, np.int64), np.empty(rows, np.int64)
        at, ends = self._at[:rows], self._ends[:rows]
        if len(batches) == 1:
            taps = batches[0].tap
            total = _place_in_order(batches[0].captured, at, ends)
        else:
            captured = np.concatenate([b.captured for b in batches] or [np.zeros(0, np.uint32)])
            times = np.concatenate([b.time_ns for b in batches] or [np.zeros(0, np.int64)])
            taps = np.concatenate([b.tap for b in batches] or [np.zeros(0, np.uint16)])
            order = np.argsort(times, kind="stable")
            in_order = np.empty(rows, np.int64)
            total = _place_in_order(captured[order], in_order, ends)
            at[order] = in_order
            taps = taps[order]
        if len(self._words) * 4 < total:
            self._words = np.empty(total // 4 * 5 // 4, np.uint32)
        first = 0
        for batch in batches:
            self._write(batch, at[first : first + len(batch)])
            first += len(batch)
        ends, taps = ends[:limit], taps[:limit]
        total = int(ends[-1]) if len(ends) else 0
        return Blocks(self._words.data.cast("B")[:total], ends, taps)

    def _write(self, batch: FrameBatch, at: I64) -> None:
        _write_blocks(
            batch.data.view(np.uint32),
            batch.offset,
            batch.captured,
            batch.wire,
            batch.time_ns,
            batch.tap,
            self._first_tap,
            self._directions,
            at,
            self._words,
        )


@kernel
def _place_in_order(captured: U32, at: I64, ends: I64) -> int:
    """Where the block of each frame begins and ends, one behind the other; the end of all."""
    end: Any = 0
    for i in range(len(captured)):
        at[i] = end
        end += ((np.int64(captured[i]) + 3) & ~3) + _FIXED_BYTES
        ends[i] = end
    return end  # type: ignore[no-any-return]


@kernel
def _write_blocks(
    words: U32,
    offset: I64,
    captured: U32,
    wire: U32,
    time_ns: I64,
    tap: U16,
    first_tap: int,
    directions: U32,
    at: I64,
    out: U32,
) -> None:
    """Write an enhanced packet block for each frame to byte `at` of `out`."""
    # Unsigned indices spare the test for negative ones, which would keep the copy from
    # being vectorised.
    for i in range(len(offset)):
        length = np.uint64(captured[i])
        data_words = (length + np.uint64(3)) >> np.uint64(2)
        total = data_words * np.uint64(4) + np.uint64(44)
        w = np.uint64(at[i]) >> np.uint64(2)
        interface = np.uint64(tap[i]) - np.uint64(first_tap)
        time = np.uint64(time_ns[i])
        out[w] = ENHANCED_PACKET
        out[w + np.uint64(1)] = total
        out[w + np.uint64(2)] = interface
        out[w + np.uint64(3)] = time >> np.uint64(32)
        out[w + np.uint64(4)] = time & np.uint64(0xFFFFFFFF)
        out[w + np.uint64(5)] = length
        out[w + np.uint64(6)] = wire[i]
        source = np.uint64(offset[i]) >> np.uint64(2)
        w += np.uint64(7)
        for k in range(data_words):
            out[w + k] = words[source + k]
        w += data_words
        odd = length & np.uint64(3)
        if odd:
            # What lies behind the frame in its buffer is not part of it.
            kept = (np.uint32(1) << np.uint32(np.uint64(8) * odd)) - np.uint32(1)
            out[w - np.uint64(1)] &= kept
        out[w] = _EPB_FLAGS
        out[w + np.uint64(1)] = directions[interface]
        out[w + np.uint64(2)] = 0
        out[w + np.uint64(3)] = total
