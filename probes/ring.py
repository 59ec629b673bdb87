"""A ring of records, written by probes: records become frame batches in place.

One CPU writes a ring, one thread reads it (ring.bpf.h). Positions are bytes since the
start and multiples of 8; during the write of a record the head also has a mark. A ring
consists of chunks, and each record is inside one chunk: if the largest record does not fit
into the rest of a chunk, the next record starts in the next chunk.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np

from ..analyzer.wire.packets import I64, U8, U16, U32
from ..kernels.kernel import FromNumba, Int, UInt64s, inlined, kernel

RECORD_HEADER: Final = np.dtype(
    [("time_ns", "<u8"), ("wire_bytes", "<u4"), ("captured_bytes", "<u2"), ("tap", "<u2")]
)
"""struct record_header of ring.bpf.h."""
RECORD_BYTES: Final = RECORD_HEADER.itemsize
"""Bytes of the header before the bytes of a frame."""
WIDE_SNAP: Final = 256
"""Bytes kept of an encapsulated frame; the maximum of any frame."""
LARGEST_RECORD: Final = RECORD_BYTES + WIDE_SNAP
CHUNK_BYTES: Final = 1 << 20
"""Size of the chunks of a ring, or of the ring if it is smaller."""

U64: TypeAlias = UInt64s

BEING_WRITTEN: Final = -1
AT_END: Final = (1 << 63) - 1

_WIDE_SNAP = np.uint64(WIDE_SNAP)
_MARKS = np.uint64(7)


def _fence(ordering: str) -> Any:
    from numba import types
    from numba.extending import intrinsic

    @intrinsic
    def fence(typingctx: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            builder.fence(ordering)
            return context.get_dummy_value()

        return types.void(), generate

    return fence


acquire_fence = FromNumba(lambda: _fence("acquire"))
"""Load barrier: later loads are not done before earlier loads."""
_release_fence = FromNumba(lambda: _fence("release"))
"""Store barrier: later stores become visible after earlier loads and stores."""


@inlined
def next_record(words: U32, mask: int, position: Int, head: Int) -> tuple[Int, Int]:
    """(position of the next record, its kernel time) from `position` on; both unsigned.

    Instead of a time, AT_END means that there is no finished record before `head`,
    and BEING_WRITTEN that the next record is not finished.
    """
    if position >= head & ~_MARKS:
        return position, BEING_WRITTEN if head & _MARKS else AT_END
    in_chunk = np.uint64(min(mask, CHUNK_BYTES - 1))
    if position & in_chunk > in_chunk + np.uint64(1) - np.uint64(LARGEST_RECORD):
        position = (position | in_chunk) + np.uint64(1)
    w = (position & np.uint64(mask)) >> np.uint64(2)
    time = np.uint64(words[w]) | np.uint64(words[w + np.uint64(1)]) << np.uint64(32)
    return position, np.int64(time)


@inlined
def length_of(packed: Int) -> Int:
    """Captured bytes, from the last word of a record's header; at most the maximum of a probe."""
    return min(np.uint64(packed & np.uint32(0xFFFF)), _WIDE_SNAP)


@inlined
def room_of(length: Int) -> Int:
    """Bytes of a record in the ring."""
    return np.uint64(RECORD_BYTES) + ((length + np.uint64(7)) & ~np.uint64(7))


@kernel
def scan(
    words: U32,
    mask: int,
    begin: int,
    head: int,
    horizon_ns: int,
    clock_offset_ns: int,
    offset: I64,
    captured: U32,
    wire: U32,
    time_ns: I64,
    tap: U16,
    end: I64,
) -> tuple[int, int]:
    """Find the records from `begin` to `head` that are not later than `horizon_ns`.

    Fills one row per record, sets `end` to the position after it, and returns (rows,
    whether an unfinished record stopped the scan). Records are read in place: `words`
    is uint32[size / 4].
    """
    row = np.uint64(0)
    rows = np.uint64(len(offset))
    position: Any = np.uint64(begin)
    busy = 0
    acquire_fence()
    while row < rows:
        position, kernel_ns = next_record(words, mask, position, np.uint64(head))
        if kernel_ns == BEING_WRITTEN:
            busy = 1
        if kernel_ns == BEING_WRITTEN or kernel_ns == AT_END or kernel_ns > horizon_ns:
            break
        # Unsigned indices need no test for negative values.
        at = position & np.uint64(mask)
        w = at >> np.uint64(2)
        packed = words[w + np.uint64(3)]
        length = length_of(packed)
        position += room_of(length)
        offset[row] = at + np.uint64(RECORD_BYTES)
        time_ns[row] = kernel_ns + clock_offset_ns
        wire[row] = words[w + np.uint64(2)]
        captured[row] = length
        tap[row] = packed >> np.uint32(16)
        end[row] = position
        row += np.uint64(1)
    records: Any = np.int64(row)
    return records, busy


@kernel
def _store_position(tail: U64, position: int) -> None:
    _release_fence()
    tail[0] = position


class Ring:
    """One ring, read by one thread.

    head, tail: uint64[1] each, shared with the probes. data: uint8[size], a power of two.
    """

    def __init__(self, head: U64, tail: U64, data: U8) -> None:
        self.size = len(data)
        self.data = data
        self.words: U32 = data.view(np.uint32)
        self._head, self._tail = head, tail

    @property
    def head(self) -> int:
        """Position after the last record; not a multiple of 8 while a record is being written."""
        return int(self._head[0])

    @property
    def tail(self) -> int:
        """Position up to which records are released."""
        return int(self._tail[0])

    def release(self, position: int) -> None:
        """Return the space before `position` to the probes."""
        _store_position(self._tail, position)
