"""What only a reading to the end tells: the gaps that were losses, the last sights, the ranks."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np

from ...analyzer.analysis.owners import merged, owners_in
from ...analyzer.decode.sources import Source
from ...analyzer.logs.files import named
from ...analyzer.logs.job import Job
from ...analyzer.logs.join import Join, Joined
from ...analyzer.measures.measuring import Measuring
from ...analyzer.measures.series import DEFAULT_WINDOW_NS
from ...analyzer.summary.summarize import Summary
from ...analyzer.track.batch import OVERTAKEN, REORDERED, TrackedBatch
from ...analyzer.track.references import References
from ...analyzer.wire.packets import PacketTable
from ...analyzer.wire.registry import Registry
from ...kernels.kernel import Ints, Records
from .merged import Slice, slices

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

    def __init__(
        self, sources: Sequence[Source], registry: Registry, keep: Callable[[Slice], Slice]
    ) -> None:
        self.sources, self.registry = sources, registry
        many_taps = len(registry.taps) > 1 or any(s.capture.format != "pcap" for s in sources)
        self.measuring = Measuring(DEFAULT_WINDOW_NS, many_taps)
        self.measuring.tracker.see_taps(len(registry.taps))
        self.sights = References()
        self._keep = keep

    def slices(self) -> Any:
        """(slice, tracked batch or None, REFERENCE) until the end; numbers count from 1."""
        begin = 1
        for part in map(self._keep, slices(self.sources)):
            self.measuring.date_taps(self.registry.taps)
            messages = [m for s in self.sources for m in s.decoder.take_cm_messages()]
            batch = self.measuring.update(part.table, messages)
            sights = None
            if batch is not None:
                sights = self.sights.update(self.measuring.tracker, batch, begin + part.place)
            yield part, batch, sights
            begin += part.length


def known_after(reading: Reading, logs: Sequence[str]) -> Known:
    """Read captures to their end."""
    late = LateOfGaps()
    job = Job(named(logs)) if logs else None
    for _, batch, sights in reading.slices():
        if batch is not None:
            late.add(reading.sights.gaps, sights, batch)
    measuring, registry = reading.measuring, reading.registry
    comments = (line for source in reading.sources for line in source.capture.owner_comments)
    probed = owners_in(comments, measuring.tracker, registry.endpoints)
    joined = Joined()
    if job is not None:
        joined = Join(job, measuring.tracker, registry.endpoints, measuring.cm).result()
    owners = merged(probed, joined.owners)
    known = Known(late, notes=list(joined.notes))
    if reading.sights.forgotten:
        known.late = None
        known.notes.append(
            "too many flows to know which packets of a gap arrived late: no comment says "
            "'lost before'"
        )
    summary = Summary(measuring, registry, "entropy", owners)
    lost = defaultdict[int, dict[int, int]](dict)
    for way in () if summary.ways is None else summary.ways.hops:
        frames = way.lost["frame"]
        lost[way.from_tap].update(dict.fromkeys(frames[frames > 0].tolist(), way.to_tap))
    for tap, next_taps in lost.items():
        if next_taps:
            by_frame = np.array(sorted(next_taps.items()), np.int64)
            known.never_seen[tap] = by_frame[:, 0].copy(), by_frame[:, 1].copy()
    texts, flows = registry.endpoints.texts(), measuring.tracker.flows
    ranks = {}
    for number, owner in owners.items():
        sender, receiver = owner.ranks
        if sender is not None or receiver is not None:
            flow = flows[number]
            key = texts[flow["src"]], texts[flow["dst"]], int(flow["dest_qp"])
            ranks[key] = sender, receiver, owner.comm
    known.ranks = ranks
    return known
