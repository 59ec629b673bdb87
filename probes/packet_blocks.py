"""pcapng packet blocks of live frames: one compiled pass from the rings into a buffer.

Each record is read once and its block written once, in order of time over all
rings. Frames are not decoded, so a capture to a file costs little more than the copy.
Format: https://datatracker.ietf.org/doc/draft-ietf-opsawg-pcapng/
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ..analyzer.capture.pcapng_writer import ENHANCED_PACKET, Blocks
from ..analyzer.wire.packets import I64, U32
from ..kernels.kernel import FromNumba, Int, allocating, inlined
from .ring import (
    AT_END,
    BEING_WRITTEN,
    RECORD_BYTES,
    U64,
    acquire_fence,
    length_of,
    next_record,
    room_of,
)

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
