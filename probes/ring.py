"""Ring buffers of the kernel, mapped: records become frame batches where they lie.

Layout of a mapped BPF ring buffer (kernel/bpf/ringbuf.c): a page with the
consumer position, which is ours to write; a page with the producer position;
the data, mapped twice in a row so that no record is ever torn.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from typing import Any, Final, TypeAlias, cast

import numpy as np
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from ..analyzer.kernel import Int, inlined, kernel
from ..analyzer.packets import I64, U8, U16, U32
from . import bpf

RECORD_HEADER: Final = np.dtype(
    [("time_ns", "<u8"), ("wire_bytes", "<u4"), ("captured_bytes", "<u2"), ("tap", "<u2")]
)
"""struct record_header of rocescope.bpf.c."""

U64: TypeAlias = NDArray[np.uint64]

BEING_WRITTEN: Final = -1
AT_END: Final = (1 << 63) - 1

_BUSY, _DISCARD, _LENGTH = np.uint32(1 << 31), np.uint32(1 << 30), np.uint32((1 << 30) - 1)
_RING_HEADER_BYTES = 8
RECORD_BYTES: Final = _RING_HEADER_BYTES + RECORD_HEADER.itemsize
"""In the ring in front of the bytes of a frame."""


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
def next_record(words: U32, mask: int, position: Int, stop: Int) -> tuple[Int, Int]:
    """(where the next record is, its kernel time) from `position` on; both unsigned positions.

    Discarded records are passed over. Instead of a time AT_END says that there is
    no record before `stop`, and BEING_WRITTEN that it is not finished.
    """
    while position < stop:
        w = (position & np.uint64(mask)) >> np.uint64(2)
        header = words[w]
        if header & _BUSY:
            return position, BEING_WRITTEN
        acquire_fence()
        if not header & _DISCARD:
            time = np.uint64(words[w + np.uint64(2)])
            time |= np.uint64(words[w + np.uint64(3)]) << np.uint64(32)
            return position, np.int64(time)
        position += room_of(header)
    return position, AT_END


@inlined
def room_of(header: Int) -> Int:
    """How many bytes of the ring a record takes, by the first word of its header."""
    length = np.uint64(header & _LENGTH)
    return (length + np.uint64(_RING_HEADER_BYTES + 7)) & ~np.uint64(7)


@kernel
def scan(
    data: U8,
    words: U32,
    mask: int,
    consumer: int,
    producer: int,
    horizon_ns: int,
    clock_offset_ns: int,
    offset: I64,
    captured: U32,
    wire: U32,
    time_ns: I64,
    tap: U16,
    end: I64,
) -> tuple[int, int]:
    """Find the records from `consumer` to `producer` that are not later than `horizon_ns`.

    Fills one row per record, `end` with the position behind it, and gives (rows,
    whether a record that is being written stopped the scan). Records are read in
    place: `data` is uint8[2 * size], `words` the same memory as uint32.
    """
    row = np.uint64(0)
    rows = np.uint64(len(offset))
    position: Any = np.uint64(consumer)
    stop = np.uint64(producer)
    busy = 0
    acquire_fence()
    while row < rows:
        position, kernel_ns = next_record(words, mask, position, stop)
        if kernel_ns == BEING_WRITTEN:
            busy = 1
        if kernel_ns == BEING_WRITTEN or kernel_ns == AT_END or kernel_ns > horizon_ns:
            break
        # Unsigned indices spare the test for negative ones.
        at = position & np.uint64(mask)
        w = at >> np.uint64(2)
        position += room_of(words[w])
        packed = words[w + np.uint64(5)]
        offset[row] = at + np.uint64(RECORD_BYTES)
        time_ns[row] = kernel_ns + clock_offset_ns
        wire[row] = words[w + np.uint64(4)]
        captured[row] = packed & np.uint32(0xFFFF)
        tap[row] = packed >> np.uint32(16)
        end[row] = position
        row += np.uint64(1)
    found: Any = np.int64(row)
    return found, busy


@kernel
def _store_position(consumer: U64, position: int) -> None:
    _release_fence()
    consumer[0] = position


class Ring:
    """One ring buffer, read by one thread.

    size: bytes, a power of two and a multiple of the page size. OSError when the
    kernel has no memory for it.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.fd = bpf.create_map(bpf.MAP_RINGBUF, 0, 0, size, name="rocescope_ring")
        page = mmap.PAGESIZE
        self._consumer_page = mmap.mmap(self.fd, page, mmap.MAP_SHARED)
        self._pages = mmap.mmap(
            self.fd,
            page + 2 * size,
            mmap.MAP_SHARED | mmap.MAP_POPULATE,  # no page faults while frames arrive
            mmap.PROT_READ,
            offset=page,
        )
        self._consumer = np.frombuffer(self._consumer_page, np.uint64, 1)
        self._producer = np.frombuffer(self._pages, np.uint64, 1)
        self.data: U8 = np.frombuffer(self._pages, np.uint8, 2 * size, page)
        self.words: U32 = np.frombuffer(self._pages, np.uint32, size // 2, page)

    @property
    def consumer(self) -> int:
        """Position up to which records are released."""
        return int(self._consumer[0])

    @property
    def producer(self) -> int:
        """Position up to which records are reserved."""
        return int(self._producer[0])

    def release(self, position: int) -> None:
        """Give the room before `position` back to the kernel."""
        _store_position(self._consumer, position)

    def close(self) -> None:
        """Close the descriptor; the memory goes when nothing refers to it any more."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
