"""Rings of records that probes write: as frame batches in place, and as blocks of capture files.

One CPU writes a ring, one thread reads it (ring.bpf.h). Positions are bytes since the
start and multiples of 8; during the write of a record the head also has a mark. A ring
consists of chunks, and each record is inside one chunk: if the largest record does not fit
into the rest of a chunk, the next record starts in the next chunk.

For a capture file each record is read once and its block written once, in order of time over
all rings. Frames are not decoded, so a capture to a file costs little more than the copy.
Format: https://datatracker.ietf.org/doc/draft-ietf-opsawg-pcapng/
"""

from __future__ import annotations

import mmap
import os
import select
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, fields
from typing import Any, Final, TypeAlias

import numpy as np

from ..analyzer.capture.pcapng_writer import ENHANCED_PACKET, Blocks
from ..analyzer.decode.decoder import Decoder
from ..analyzer.wire.packets import I64, LINKTYPE_ETHERNET, U8, U16, U32, FrameBatch
from ..kernels.kernel import FromNumba, Int, Records, UInt64s, allocating, inlined, kernel
from . import bpf
from .bpf import WallClock, kernel_ns

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


# The fate of every frame at the probes: each one is counted exactly once.


@dataclass(frozen=True, slots=True)
class Loss:
    """Counters of one tap, or of several, in the order of struct loss of ring.bpf.h."""

    seen: int = 0
    """Frames that passed the hook."""
    exported: int = 0
    """RoCE packets exported to the rings."""
    ring_full: int = 0
    """RoCE packets lost because their ring was full."""
    filtered: int = 0
    sampled_out: int = 0
    too_short: int = 0
    """Frames that end within their headers."""
    merged: int = 0
    """Exported frames that are merges of several frames on the wire (GRO, GSO)."""
    ultra_ethernet: int = 0
    """Packets of Ultra Ethernet (UDP port 4793), which are not exported."""

    @property
    def matched(self) -> int:
        """RoCE packets among the frames: each is counted as one of these four."""
        return self.exported + self.ring_full + self.filtered + self.sampled_out

    def __add__(self, other: Loss) -> Loss:
        return Loss(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Loss)))

    def __sub__(self, other: Loss) -> Loss:
        return Loss(*(getattr(self, f.name) - getattr(other, f.name) for f in fields(Loss)))


LOSS: Final = np.dtype([(field.name, "<u8") for field in fields(Loss)])
"""struct loss of ring.bpf.h."""


def total(counters: Records) -> Loss:
    """The sum over all CPUs (and taps) of an array of LOSS."""
    return Loss(**{field.name: int(counters[field.name].sum()) for field in fields(Loss)})


# Sleep until frames arrive or a timeout ends.
#
# The probes ring a bell whenever they start another quarter of a ring, a few times per
# second at the highest rates; at low rates frames wait for the end of the sleep. Both
# need hardly any processor time.
#
# The bell is a ring buffer of the kernel (kernel/bpf/ringbuf.c: a page with the
# consumer position, which is ours to write, and one with the producer position).
# It is never read: records are discarded when they are created.


class Wakeups:
    """Wakes one reader. bell: descriptor of a BPF ring buffer."""

    def __init__(self, bell: int) -> None:
        page = mmap.PAGESIZE
        self._consumer = np.frombuffer(mmap.mmap(bell, page, mmap.MAP_SHARED), np.uint64, 1)
        producer = mmap.mmap(bell, page, mmap.MAP_SHARED, mmap.PROT_READ, offset=page)
        self._producer = np.frombuffer(producer, np.uint64, 1)
        self._epoll = select.epoll()
        self._stopped = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._stopped, select.EPOLLIN)
        self._epoll.register(bell, select.EPOLLIN)

    def wait(self, seconds: float) -> bool:
        """Sleep until the timeout, a bell of a probe or `stop`; returns False after a timeout."""
        woken = bool(self._epoll.poll(seconds))
        # Later bells wake the next call.
        self._consumer[0] = self._producer[0]
        return woken

    def stop(self) -> None:
        """End the current and every later sleep; also from other threads and signal handlers."""
        os.eventfd_write(self._stopped, 1)

    def resume(self) -> None:
        """Undo `stop`."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._stopped)

    def close(self) -> None:
        """Close the descriptors."""
        self._epoll.close()
        os.close(self._stopped)


# Reads all rings of a capture together, so that their frames are in order of time.

_ROWS = 1 << 15
"""Maximum frames of one gathering over all rings, so that they stay in the cache during use."""
_LEAST_ROWS = 1 << 11
_VISIBLE_AFTER_NS = 20_000
"""After this time the mark of another CPU is visible here, independent of its clock."""
_FOREVER = (1 << 63) - 1


class _Rows:
    """The descriptions of the frames of one ring."""

    def __init__(self, rows: int) -> None:
        self.offset, self.time_ns, self.end = (np.empty(rows, np.int64) for _ in range(3))
        self.captured, self.wire = (np.empty(rows, np.uint32) for _ in range(2))
        self.tap = np.empty(rows, np.uint16)
        self.link_type = np.full(rows, LINKTYPE_ETHERNET, np.uint16)


@kernel
def count_taps(tap: U16, frames: I64) -> None:
    """Add the frames of each tap to int64[taps]; invalid tap numbers are ignored."""
    for t in tap:
        if t < len(frames):
            frames[t] += 1


class Drain:
    """Reads frames from the rings: `gather`, use them, `release`."""

    def __init__(self, rings: list[Ring]) -> None:
        self.clock = WallClock()
        self.frames = 0
        """Frames gathered so far."""
        self.more = False
        """Whether the last gathering left frames that are ready."""
        self._rings = rings
        rows = max(_ROWS // len(rings), _LEAST_ROWS)
        self._rows = [_Rows(rows) for _ in rings]
        self._positions = [ring.tail for ring in rings]
        self._released = list(self._positions)

    def warm_up(self, decoder: Decoder) -> None:
        """Compile or load the machine code before frames arrive."""
        self._scan(0, self._positions[0], 0)
        nothing = self._batch(self._rings[0], self._rows[0], 0)
        decoder.warm_up(nothing)
        count_taps(nothing.tap, np.zeros(0, np.int64))
        self._rings[0].release(self._positions[0])

    def gather(self, everything: bool = False) -> list[FrameBatch]:
        """One batch for each ring with frames, in order of time within and between gatherings.

        A record gets its time after its ring was marked. So when the heads are read
        after the time `horizon`, every record up to it is in the ring or the ring is marked,
        and later records wait for the next gathering (`everything`: none waits). An unfinished
        record delays all records that may be later.
        """
        horizon = self._horizon(everything)
        counts = [0] * len(self._rings)
        cut = _FOREVER
        self.more = False
        for index, ring in enumerate(self._rings):
            head = ring.head
            if head == self._positions[index]:
                continue
            count, busy = self._scan(index, head, horizon)
            counts[index] = count
            if busy or count == len(self._rows[index].offset):
                # Frames of other rings must not overtake frames after the last row of this ring.
                last_ns = int(self._rows[index].time_ns[count - 1]) if count else 0
                cut = min(cut, last_ns)
                self.more = True
        batches = []
        for index, count in enumerate(counts):
            rows = self._rows[index]
            if self.more and count:
                count = int(np.searchsorted(rows.time_ns[:count], cut, "right"))
            if count:
                batches.append(self._batch(self._rings[index], rows, count))
                self._positions[index] = int(rows.end[count - 1])
                self.frames += count
        return batches

    def lay_out(self, blocks: PacketBlocks, everything: bool = False) -> Blocks:
        """The frames of `gather`, as packet blocks."""
        horizon = self._horizon(everything)
        heads = [ring.head for ring in self._rings]
        self.more = False
        if heads == self._positions:
            return blocks.none
        positions = np.array(self._positions, np.uint64)
        laid_out, self.more = blocks.lay_out(
            positions, np.array(heads, np.uint64), horizon, self.clock.offset_ns
        )
        self.frames += int(laid_out.frames.sum())
        self._positions = positions.tolist()
        return laid_out

    def _horizon(self, everything: bool) -> int:
        """Kernel time up to which all records are known if the heads are read after it."""
        self.clock.check()
        if everything:
            return _FOREVER
        return kernel_ns() - _VISIBLE_AFTER_NS

    def skip(self) -> None:
        """Pass over the frames in the rings."""
        self._positions = [ring.head & ~7 for ring in self._rings]
        self.release()

    def release(self) -> None:
        """Return the space of the gathered frames to the probes."""
        for index, position in enumerate(self._positions):
            if position != self._released[index]:
                self._rings[index].release(position)
                self._released[index] = position

    def _scan(self, index: int, head: int, horizon: int) -> tuple[int, int]:
        ring, rows = self._rings[index], self._rows[index]
        return scan(
            ring.words,
            ring.size - 1,
            self._positions[index],
            head,
            horizon,
            self.clock.offset_ns,
            rows.offset,
            rows.captured,
            rows.wire,
            rows.time_ns,
            rows.tap,
            rows.end,
        )

    def _batch(self, ring: Ring, rows: _Rows, count: int) -> FrameBatch:
        return FrameBatch(
            ring.data,
            rows.offset[:count],
            rows.captured[:count],
            rows.wire[:count],
            rows.time_ns[:count],
            rows.tap[:count],
            rows.link_type[:count],
            self.frames + 1,
            0,
        )


@dataclass(frozen=True, slots=True)
class RingMaps:
    """Definitions for the probes: descriptors of their maps, and sizes."""

    rings: int
    chunks: int
    bell: int
    """A ring buffer of the kernel, used only to wake the reader."""
    ring_bytes: int
    taps: int
    """Number of taps with counters in each ring."""


def ring_layout(taps: int) -> np.dtype[Any]:
    """struct ring of ring.bpf.h, with counters for `taps` taps."""
    return np.dtype(
        [
            ("head", "<u8"),
            ("of_the_probe", "<u8", 15),
            ("tail", "<u8"),
            ("first_chunk", "<u8"),
            ("of_the_reader", "<u8", 14),
            ("loss", LOSS, taps),
        ]
    )


class Rings:
    """Rings of `ring_bytes` (a power of two, at least a page) for these CPUs, until `close`.

    Other CPUs cannot write records. OSError if the kernel has no memory for the rings.
    """

    def __init__(self, cpus: Sequence[int], ring_bytes: int, taps: int) -> None:
        self._stack = ExitStack()
        possible = bpf.possible_cpus()
        taps += taps % 2  # keeps the rings of two CPUs on separate pairs of cache lines
        layout = ring_layout(taps)
        chunk_bytes = min(CHUNK_BYTES, ring_bytes)
        chunks_each = ring_bytes // chunk_bytes
        try:
            self.maps = RingMaps(
                self._map(bpf.MAP_ARRAY, layout.itemsize, possible, "rocescope_rings"),
                self._map(bpf.MAP_ARRAY, chunk_bytes, chunks_each * len(cpus), "rocescope_data"),
                self._map(bpf.MAP_RINGBUF, 0, bpf.page_bytes(), "rocescope_bell"),
                ring_bytes,
                taps,
            )
            control = mmap.mmap(self.maps.rings, layout.itemsize * possible, mmap.MAP_SHARED)
            chunks = mmap.mmap(
                self.maps.chunks,
                ring_bytes * len(cpus),
                mmap.MAP_SHARED | mmap.MAP_POPULATE,  # no page faults while frames arrive
                mmap.PROT_READ,
            )
        except BaseException:
            self._stack.close()
            raise
        self._control = np.frombuffer(control, layout, possible)
        self._control["tail"] = np.uint64((1 << 64) - ring_bytes)  # full
        data = np.frombuffer(chunks, np.uint8)
        self.rings: list[Ring] = []
        """In the order of `cpus`."""
        for number, cpu in enumerate(cpus):
            self._control["first_chunk"][cpu] = number * chunks_each
            self._control["tail"][cpu] = 0
            self.rings.append(
                Ring(
                    self._control["head"][cpu : cpu + 1],
                    self._control["tail"][cpu : cpu + 1],
                    data[number * ring_bytes : (number + 1) * ring_bytes],
                )
            )

    def loss(self) -> Records:
        """Counters of the probes so far, LOSS[taps, cpus]; also after `close`."""
        counters: Records = self._control["loss"].T.copy()
        return counters

    def forget(self) -> None:
        """Unmap the records, which nobody reads any longer; the counters of the probes stay."""
        self.rings.clear()

    def close(self) -> None:
        """Close the maps; the kernel frees their memory after the last reference."""
        self._stack.close()

    def _map(self, kind: int, value_bytes: int, entries: int, name: str) -> int:
        array = kind == bpf.MAP_ARRAY
        fd = bpf.create_map(
            kind, 4 * array, value_bytes, entries, flags=bpf.MAPPABLE * array, name=name
        )
        self._stack.callback(os.close, fd)
        return fd


INBOUND, OUTBOUND = 1, 2
"""Direction bits of epb_flags."""

_EPB_FLAGS: Final = 4 << 16 | 2  # epb_flags, 4 bytes
_FRONT_WORDS, _BEHIND_WORDS = 7, 4
"""Bytes of an enhanced packet block before and after its data."""
_RECORD_WORDS: Final = RECORD_BYTES // 4
_BUFFER_BYTES: Final = 12 << 20
"""Size for the contents of a default ring at wake-up. Each round costs hundreds of
microseconds, because the frames evict the interpreter from the caches; so few rounds."""


class PacketBlocks:
    """Writes enhanced packet blocks into a buffer that is reused.

    rings: uint32[size / 4] of each, all of one size.
    first_tap: the tap that is interface 0. directions: INBOUND or OUTBOUND for each
    interface.
    """

    def __init__(
        self,
        rings: Sequence[U32],
        first_tap: int,
        directions: Sequence[int],
        buffer_bytes: int = _BUFFER_BYTES,
    ) -> None:
        self.left: int | None = None
        """Number of frames still to write; None: all."""
        self._rings = list(rings)  # they must exist as long as their addresses are used
        self._addresses = np.array([ring.ctypes.data for ring in rings], np.int64)
        self._mask = len(rings[0]) * 4 - 1
        self._times = np.empty(len(rings), np.int64)
        self._first_tap = first_tap
        self._directions = np.array(directions, np.uint32)
        self._words: U32 = np.full(buffer_bytes // 4, 0, np.uint32)  # no page faults later
        nothing = np.zeros(len(rings), np.uint64)
        self.none, _ = self.lay_out(nothing, nothing, 0, 0)  # compiles before frames arrive

    def lay_out(
        self, positions: U64, heads: U64, horizon_ns: int, clock_offset_ns: int
    ) -> tuple[Blocks, bool]:
        """The records not later than `horizon_ns` (kernel time) from `positions` up to `heads`.

        `positions` moves after them. Also returns whether more records are ready: the
        buffer was full, or a record was being written.
        """
        frames = np.zeros(len(self._directions), np.int64)
        words, more = _write_blocks(
            self._addresses,
            self._mask,
            positions,
            heads,
            self._times,
            min(horizon_ns, AT_END - 1),
            clock_offset_ns,
            self._first_tap,
            self._directions,
            frames,
            AT_END if self.left is None else self.left,
            self._words,
        )
        if self.left is not None:
            self.left -= int(frames.sum())
        return Blocks(self._words.data.cast("B")[: 4 * words], frames), bool(more)


@FromNumba
def _words_at() -> Any:
    """The memory at an address as uint32s."""
    from numba import types
    from numba.extending import intrinsic

    @intrinsic
    def pointer(typingctx: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        words: Any = types.CPointer(types.uint32)  # type: ignore[no-untyped-call]
        return words(types.int64), generate

    return pointer


@FromNumba
def _array() -> Any:
    """numba's carray: an array over memory."""
    from numba import carray  # type: ignore[attr-defined]

    return carray


@inlined
def _copied(words: U32, source: Int, out: U32, to: Int, length: Int) -> Int:
    """Copy `length` bytes, padded with zeros to a multiple of 4; returns the next word of `out`."""
    count = (length + np.uint64(3)) >> np.uint64(2)
    for k in range(count):
        out[to + k] = words[source + k]
    odd = length & np.uint64(3)
    if odd:
        # Bytes after the frame in the ring are not part of it.
        kept = (np.uint32(1) << np.uint32(np.uint64(8) * odd)) - np.uint32(1)
        out[to + count - np.uint64(1)] &= kept
    return to + count


@allocating
def _write_blocks(
    addresses: I64,
    mask: int,
    positions: U64,
    heads: U64,
    times: I64,
    horizon_ns: int,
    clock_offset_ns: int,
    first_tap: int,
    directions: U32,
    frames: I64,
    limit: int,
    out: U32,
) -> tuple[int, int]:
    """Write a block for each record, the earliest first; (words written, whether there is more).

    addresses: where each ring is mapped. times: int64[rings] of working memory.
    """
    size = (mask + 1) // 4
    acquire_fence()
    for ring in range(len(addresses)):
        words = _array(_words_at(addresses[ring]), size)
        position, times[ring] = next_record(words, mask, positions[ring], heads[ring])
        positions[ring] = position
    # Unsigned indices need no test for negative values, which would prevent vectorisation.
    o: Any = np.uint64(0)
    room = np.uint64(len(out))
    written: Any = 0
    while True:
        ring, until = 0, horizon_ns
        for r in range(1, len(times)):
            if times[r] < times[ring]:
                ring = r
        time = times[ring]
        if time == BEING_WRITTEN:
            return int(o), 1
        if time > horizon_ns:
            return int(o), 0
        for r in range(len(times)):  # while no other ring has an earlier record
            if r != ring:
                until = min(until, times[r] - (r < ring))
        words = _array(_words_at(addresses[ring]), size)
        position = positions[ring]
        while time != BEING_WRITTEN and time <= until:
            w = (position & np.uint64(mask)) >> np.uint64(2)
            bytes_and_tap = words[w + np.uint64(3)]
            length = length_of(bytes_and_tap)
            interface = np.uint64(bytes_and_tap >> np.uint32(16)) - np.uint64(first_tap)
            position += room_of(length)
            if interface < np.uint64(
                len(directions)
            ):  # an invalid tap number was not written by a probe
                total = ((length + np.uint64(3)) >> np.uint64(2)) + np.uint64(
                    _FRONT_WORDS + _BEHIND_WORDS
                )
                if o + total > room or written == limit:
                    return int(o), 1
                stamp = np.uint64(time + clock_offset_ns)
                out[o] = ENHANCED_PACKET
                out[o + np.uint64(1)] = total * np.uint64(4)
                out[o + np.uint64(2)] = interface
                out[o + np.uint64(3)] = stamp >> np.uint64(32)
                out[o + np.uint64(4)] = stamp & np.uint64(0xFFFFFFFF)
                out[o + np.uint64(5)] = length
                out[o + np.uint64(6)] = words[w + np.uint64(2)]
                o = _copied(
                    words, w + np.uint64(_RECORD_WORDS), out, o + np.uint64(_FRONT_WORDS), length
                )
                out[o] = _EPB_FLAGS
                out[o + np.uint64(1)] = directions[interface]
                out[o + np.uint64(2)] = 0
                out[o + np.uint64(3)] = total * np.uint64(4)
                o += np.uint64(_BEHIND_WORDS)
                frames[interface] += 1
                written += 1
            position, time = next_record(words, mask, position, heads[ring])
            positions[ring] = position
        times[ring] = time
