"""The frames of captures by time, and what only a reading to the end tells."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, NamedTuple

import numpy as np

from ...analyzer.decode.decoder import Source
from ...analyzer.decode.merge import rows_up_to
from ...analyzer.pipeline.captures import CapturePipeline
from ...analyzer.summary.summarize import Summary
from ...analyzer.track.batch import OVERTAKEN, REORDERED, TrackedBatch
from ...analyzer.track.references import References
from ...analyzer.wire.packets import FrameBatch, PacketTable
from ...kernels.kernel import Ints, Records

# All frames of captures by time, with the packets that the decoder finds in them.


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
        limit = min((int(p.key[-1]), p.index) for p in waiting if p.key is not None)
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
            end = rows_up_to(limit, key, pending.index)
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


# What only a reading to the end tells: the gaps that were losses, the last sights, the ranks.

RankPair = tuple[int | None, int | None, str | None]
"""Rank that sends a flow, rank that receives it, communicator."""
_GAPS_AHEAD = 1 << 16


class LateOfGaps:
    """Packets of each gap that arrived late, uint16 per gap, in a file without a name."""

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile()
        self._counts: Any = None
        self._gaps = 0

    def add(self, gaps: int, sights: Records, batch: TrackedBatch) -> None:
        """Take in a batch; `gaps`: their number so far."""
        self._gaps = gaps
        if self._counts is None or gaps > len(self._counts):
            room = max(_GAPS_AHEAD, 2 * gaps)
            self._file.truncate(2 * room)
            self._counts = np.memmap(self._file, np.uint16, "r+", shape=(room,))
        late = (batch.verdict == REORDERED) | (batch.verdict == OVERTAKEN)
        of = sights["gap"][late & (sights["gap"] >= 0)]
        np.add.at(self._counts, of, 1)

    def get(self, gap: int) -> int | None:
        """The number of a gap; None for a gap of packets that a growing capture got later."""
        return int(self._counts[gap]) if gap < self._gaps else None


@dataclass(slots=True)
class Known:
    """Empty: nothing is known about the future."""

    late: LateOfGaps | None = None
    never_seen: dict[int, tuple[Ints, Ints]] = field(default_factory=dict)
    """By tap: frame numbers in its capture, ascending, and for each the tap that never saw the
    packet, -1 for any."""
    ranks: Mapping[tuple[str, str, int], RankPair] = field(default_factory=dict)
    """By source, destination and destination QPN."""
    notes: list[str] = field(default_factory=list)
    """What stays unknown, one line each."""

    def late_of_gap(self, gap: int) -> int | None:
        """Packets of a gap that arrived late; None if that is unknown."""
        return None if self.late is None else self.late.get(gap)

    def never_seen_rows(self, table: PacketTable) -> dict[int, int]:
        """Rows of packets that no later tap saw: the tap that should have."""
        found: dict[int, int] = {}
        for tap in np.unique(table.tap).tolist() if self.never_seen else ():
            if tap in self.never_seen:
                frames, next_taps = self.never_seen[tap]
                rows = np.flatnonzero(table.tap == tap)
                at = np.searchsorted(frames, table.frame_number[rows]).clip(max=len(frames) - 1)
                hit = frames[at] == table.frame_number[rows]
                found.update(zip(rows[hit].tolist(), next_taps[at[hit]].tolist(), strict=True))
        return found


class Reading:
    """The tracked packets of captures; a reading to the end and the one that writes are equal."""

    def __init__(self, pipeline: CapturePipeline, keep: Callable[[Slice], Slice]) -> None:
        self.pipeline = pipeline
        self.sources, self.registry = pipeline.sources, pipeline.registry
        self.sights = References()
        self._keep = keep

    def slices(self) -> Any:
        """(slice, tracked batch or None, REFERENCE) until the end; numbers count from 1."""
        begin = 1
        measuring = self.pipeline.measuring
        for part in map(self._keep, slices(self.sources)):
            measuring.date_taps(self.registry.taps)
            batch = self.pipeline.take(part.table, self.pipeline.take_cm_messages())
            sights = None
            if batch is not None:
                sights = self.sights.update(measuring.tracker, batch, begin + part.place)
            yield part, batch, sights
            begin += part.length


def known_after(reading: Reading) -> Known:
    """Read captures to their end."""
    late = LateOfGaps()
    for _, batch, sights in reading.slices():
        if batch is not None:
            late.add(reading.sights.gaps, sights, batch)
    ranks, notes = reading.pipeline.learn_ranks()
    known = Known(late, notes=list(notes))
    if reading.sights.forgotten:
        known.late = None
        known.notes.append(
            "too many flows to know which packets of a gap arrived late: no comment says "
            "'lost before'"
        )
    summary = Summary(reading.pipeline.measuring, reading.registry, "entropy")
    lost = defaultdict[int, dict[int, int]](dict)
    for way in () if summary.tap_hops is None else summary.tap_hops.hops:
        frames = way.lost["frame"]
        lost[way.from_tap].update(dict.fromkeys(frames[frames > 0].tolist(), way.to_tap))
    for tap, next_taps in lost.items():
        if next_taps:
            by_frame = np.array(sorted(next_taps.items()), np.int64)
            known.never_seen[tap] = by_frame[:, 0].copy(), by_frame[:, 1].copy()
    known.ranks = {
        name: (*owner.ranks, owner.comm)
        for name, owner in ranks.owners.items()
        if owner.ranks != (None, None)
    }
    return known
