"""All frames of captures by time, with the packets that the decoder finds in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...analyzer.decode.sources import Source
from ...analyzer.wire.frames import FrameBatch
from ...analyzer.wire.packets import PacketTable
from ...kernels.kernel import Ints


class Part(NamedTuple):
    """Frames of one capture."""

    source: int
    frames: FrameBatch
    rows: Ints
    """The frames of the batch, int64[n]."""
    place: Ints
    """Of each: its place among the frames of the slice, int64[n]; -1: left out."""


class Slice(NamedTuple):
    """Frames in order of time; valid until the next slice."""

    parts: list[Part]
    length: int
    """Number of frames."""
    table: PacketTable
    """The packets in the order of their frames."""
    place: Ints
    """Of each packet: the place of its frame, int64[rows]."""


@dataclass(slots=True)
class _Pending:
    """The frames of one capture that are not passed on yet: at most one batch."""

    index: int
    batches: Iterator[FrameBatch]
    source: Source
    frames: FrameBatch | None = None
    table: PacketTable | None = None
    order: Ints | None = None
    """The frames of the batch by time."""
    key: Ints | None = None
    """The times in this order; after an older batch never below it."""
    at: int = 0
    latest: int = np.iinfo(np.int64).min

    def refill(self, alone: bool) -> bool:
        """Have at least one frame; False at the end of the capture. alone: times do not matter."""
        while self.frames is None or self.at == len(self.frames):
            self.frames = self.table = self.key = None  # their buffers are used again
            self.frames = next(self.batches, None)
            if self.frames is None:
                return False
            self.table = self.source.decoder.decode(self.frames)
            times = np.full(len(self.frames), 0) if alone else self.frames.time_ns
            self.order = np.argsort(times, kind="stable")
            self.key = np.maximum(times[self.order], self.latest)
            self.latest, self.at = int(self.key[-1]) if len(self.key) else self.latest, 0
        return True


def slices(sources: Sequence[Source]) -> Iterator[Slice]:
    """The frames of all captures by time, of equal time in the order of the captures; to be read
    once. A single capture keeps its order."""
    waiting = [_Pending(i, s.capture.batches(), s) for i, s in enumerate(sources)]
    alone = len(waiting) == 1
    while True:
        waiting = [pending for pending in waiting if pending.refill(alone)]
        if not waiting:
            return
        limit, index = min((int(p.key[-1]), p.index) for p in waiting if p.key is not None)
        parts, keys, tables, rows_at = [], [], [], []
        for pending in waiting:
            frames, table, order, key = (
                pending.frames,
                pending.table,
                pending.order,
                pending.key,
            )
            assert frames is not None and table is not None
            assert order is not None and key is not None
            end = int(np.searchsorted(key, limit + (pending.index <= index)))
            begin, pending.at = pending.at, max(end, pending.at)
            if end <= begin:
                continue
            at = np.full(len(frames), -1, np.int64)
            at[order[begin:end]] = np.arange(end - begin)
            row_at = at[table.frame_number - frames.first_frame_number]
            mine = row_at >= 0
            tables.append(table if mine.all() else table.take(mine))
            rows_at.append(row_at[mine])
            keys.append(key[begin:end])
            parts.append(Part(pending.index, frames, order[begin:end], at))
        yield _slice(parts, keys, tables, rows_at)


def _slice(
    parts: list[Part], keys: list[Ints], tables: list[PacketTable], rows_at: list[Ints]
) -> Slice:
    order = np.argsort(np.concatenate(keys), kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    ends = np.cumsum([len(key) for key in keys])
    places = np.split(place, ends[:-1])
    parts = [part._replace(place=mine) for part, mine in zip(parts, places, strict=True)]
    row_place = np.concatenate([mine[at] for mine, at in zip(places, rows_at, strict=True)])
    table = tables[0] if len(tables) == 1 else PacketTable.concatenate(tables)
    if bool((np.diff(row_place) >= 0).all()):
        return Slice(parts, len(order), table, row_place)
    by_place = np.argsort(row_place, kind="stable")
    return Slice(parts, len(order), table.take(by_place), row_place[by_place])
