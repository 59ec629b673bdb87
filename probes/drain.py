"""All rings of a capture, emptied together so that their frames are in order of time."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from ..analyzer.decode.decoder import Decoder
from ..analyzer.frames import LINKTYPE_ETHERNET, FrameBatch
from ..analyzer.packets import I64, U16, U32
from .clock import WallClock
from .ring import Ring, scan

_ROWS = 1 << 18
"""Frames of one gathering, over all rings."""
_LEAST_ROWS = 1 << 12
_FOREVER = (1 << 63) - 1


@dataclass(slots=True)
class _Rows:
    """Where the frames of one ring are described."""

    offset: I64
    captured: U32
    wire: U32
    time_ns: I64
    tap: U16
    end: I64
    link_type: U16

    @classmethod
    def empty(cls, rows: int) -> _Rows:
        return cls(
            np.empty(rows, np.int64),
            np.empty(rows, np.uint32),
            np.empty(rows, np.uint32),
            np.empty(rows, np.int64),
            np.empty(rows, np.uint16),
            np.empty(rows, np.int64),
            np.full(rows, LINKTYPE_ETHERNET, np.uint16),
        )


class Drain:
    """Takes frames out of the rings: `gather`, use them, `release`."""

    def __init__(self, rings: list[Ring]) -> None:
        self.clock = WallClock()
        self.frames = 0
        """Frames gathered so far."""
        self.more = False
        """The last gathering left frames behind that could be had at once."""
        self._rings = rings
        rows = max(_ROWS // len(rings), _LEAST_ROWS)
        self._rows = [_Rows.empty(rows) for _ in rings]
        self._positions = [ring.consumer for ring in rings]

    def warm_up(self, decoder: Decoder) -> None:
        """Compile or load the machine code before frames arrive."""
        self.gather()
        decoder.decode(self._batch(self._rings[0], self._rows[0], 0))

    def gather(self, whole: bool = False) -> list[FrameBatch]:
        """One batch for each ring that has frames, in order of time within and between gatherings.

        A record gets its time after its place in the ring. So when the producer
        positions are read after the moment `horizon`, every record up to it is
        there, and later ones wait for the next gathering (`whole`: none waits).
        """
        self.clock.check()
        horizon = _FOREVER if whole else time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        counts = []
        cut = _FOREVER
        self.more = False
        for ring, rows in zip(self._rings, self._rows, strict=True):
            count, _busy = scan(
                ring.data,
                ring.words,
                ring.size - 1,
                ring.consumer,
                ring.producer,
                horizon,
                self.clock.offset_ns,
                rows.offset,
                rows.captured,
                rows.wire,
                rows.time_ns,
                rows.tap,
                rows.end,
            )
            counts.append(count)
            if count == len(rows.offset):
                # What this ring has behind its last row must not be overtaken by the others.
                cut = min(cut, int(rows.time_ns[-1]))
                self.more = True
        batches = []
        for index, (ring, rows) in enumerate(zip(self._rings, self._rows, strict=True)):
            count = counts[index]
            if self.more and count:
                count = int(np.searchsorted(rows.time_ns[:count], cut, "right"))
            if count:
                batches.append(self._batch(ring, rows, count))
                self._positions[index] = int(rows.end[count - 1])
                self.frames += count
        return batches

    def release(self) -> None:
        """Give the room of the gathered frames back to the kernel."""
        for ring, position in zip(self._rings, self._positions, strict=True):
            ring.release(position)

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
