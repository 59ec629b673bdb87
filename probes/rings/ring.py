"""A ring of records as the probes write it: records become frame batches where they lie.

One CPU writes a ring, one thread reads it (ring.bpf.h). Positions are bytes since
the beginning and multiples of 8; the head is more while a record is being written.
A ring consists of chunks, and a record lies in one of them: where less than the
largest record has room, the next one begins with the next chunk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias, cast

import numpy as np
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from ...analyzer.wire.packets import I64, U8, U16, U32
from ...kernels.kernel import Int, inlined, kernel

RECORD_HEADER: Final = np.dtype(
    [("time_ns", "<u8"), ("wire_bytes", "<u4"), ("captured_bytes", "<u2"), ("tap", "<u2")]
)
"""struct record_header of ring.bpf.h."""
RECORD_BYTES: Final = RECORD_HEADER.itemsize
"""In front of the bytes of a frame."""
WIDE_SNAP: Final = 256
"""Bytes kept of an encapsulated frame, and the most that are kept of any."""
LARGEST_RECORD: Final = RECORD_BYTES + WIDE_SNAP
CHUNK_BYTES: Final = 1 << 20
"""Of the chunks of a ring, or the ring if that is smaller."""

U64: TypeAlias = NDArray[np.uint64]

BEING_WRITTEN: Final = -1
AT_END: Final = (1 << 63) - 1

_WIDE_SNAP = np.uint64(WIDE_SNAP)
_MARKS = np.uint64(7)


@intrinsic
def _acquire(typingctx: Any) -> Any:
    """Loads behind it see what was written before the loads in front of it were."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.fence("acquire")
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def _release(typingctx: Any) -> Any:
    """Stores behind it are seen only after the loads and stores in front of it are done."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.fence("release")
        return context.get_dummy_value()

    return types.void(), generate


# Numba passes the first parameter itself; a type checker cannot know.
acquire_fence: Callable[[], None] = cast("Callable[[], None]", _acquire)
_release_fence: Callable[[], None] = cast("Callable[[], None]", _release)


@inlined
def next_record(words: U32, mask: int, position: Int, head: Int) -> tuple[Int, Int]:
    """(where the next record is, its kernel time) from `position` on; both unsigned positions.

    Instead of a time AT_END says that there is no finished record before `head`,
    and BEING_WRITTEN that the next one is not finished.
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
    """Captured bytes, by the last word of a record's header; never more than a probe writes."""
    return min(np.uint64(packed & np.uint32(0xFFFF)), _WIDE_SNAP)


@inlined
def room_of(length: Int) -> Int:
    """How many bytes of the ring a record takes."""
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

    Fills one row per record, `end` with the position behind it, and gives (rows,
    whether a record that is being written stopped the scan). Records are read in
    place: `words` is uint32[size / 4].
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
        # Unsigned indices spare the test for negative ones.
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
    found: Any = np.int64(row)
    return found, busy


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
        """Position behind the last record; no multiple of 8 while another one is being written."""
        return int(self._head[0])

    @property
    def tail(self) -> int:
        """Position up to which records are released."""
        return int(self._tail[0])

    def release(self, position: int) -> None:
        """Give the room before `position` back to the probes."""
        _store_position(self._tail, position)
