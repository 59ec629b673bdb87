"""Reads all rings of a capture together, so that their frames are in order of time."""

from __future__ import annotations

import numpy as np

from ...analyzer.decode.decoder import Decoder
from ...analyzer.wire.frames import LINKTYPE_ETHERNET, FrameBatch
from ...analyzer.wire.packets import I64, U16
from ...kernels.kernel import kernel
from ..clock import WallClock, kernel_ns
from ..files.pcapng_writer import Blocks
from .packet_blocks import PacketBlocks
from .ring import Ring, scan

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
