"""Turns batches of encapsulated frames into batches of their inner frames."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...wire.frames import FrameBatch, FrameColumns
from ...wire.packets import U8
from ...wire.taps import Taps
from ..counters import DecodeCounters
from ..sessions import Sessions
from .encapsulation import Inner, part_of, room_for, unwrap_frames
from .learning import Patterns

_ROWS = 1 << 16
"""Room for the inner frames of one pass; an sFlow datagram may hold several."""


class Unwrapper:
    """Decapsulates mirrors and tunnels for one decoder, and registers their taps."""

    def __init__(self, taps: Taps, roce_ports: U8) -> None:
        self._taps = taps
        self._roce_ports = roce_ports
        self.sessions = Sessions(taps)
        self.patterns = Patterns()
        self._room = room_for(0)

    def batches(
        self, frames: FrameBatch, first: int, counters: DecodeCounters
    ) -> Iterator[tuple[FrameBatch, Inner, int]]:
        """Frames from `first` on in order, encapsulated frames replaced by their inner frames.

        Yields (batch, Inner, fields of `Inner` in use, see patterns.py). `first_frame_number` of a
        batch is 0: its rows are positions in `Inner`, whose `source` is the position of the outer
        frame in `frames`. A batch is valid until the next one is requested.
        """
        done = first
        while done < len(frames):
            if len(self._room.offset) < max(_ROWS, len(frames)):
                self._room = room_for(max(_ROWS, len(frames)))
            room = self._room
            filled = used = 0
            while done < len(frames):
                done, filled, more = self.unwrap(frames, done, room, filled, counters)
                used |= more
                if done == len(frames):
                    break
                if self.sessions.pending:
                    self.sessions.add_pending()
                elif self.patterns.due:
                    begin, link_type = int(frames.offset[done]), int(frames.link_type[done])
                    self.patterns.learn(frames.data, begin, link_type)
                else:
                    break
            counters.make_room(len(self._taps))
            inner = part_of(room, 0, filled)
            yield (
                replace(
                    frames,
                    first_frame_number=0,
                    **{name: getattr(inner, name) for name in FrameColumns._fields},
                ),
                inner,
                used,
            )

    def unwrap(
        self, frames: FrameBatch, first: int, room: Inner, filled: int, counters: DecodeCounters
    ) -> tuple[int, int, int]:
        """One pass of the kernel; returns the result of `unwrap_frames`."""
        counters.make_room(len(self._taps))
        done, rows, used = unwrap_frames(
            frames.data,
            frames.columns,
            first,
            self._roce_ports,
            self.sessions.arrays,
            counters.arrays,
            self.patterns.rows,
            self.patterns.state,
            self.patterns.trail,
            room,
            filled,
        )
        return int(done), int(rows), int(used)
