"""Merges the decoded tables of several taps by time, in bounded memory.

The merge follows decoding because a batch of frames is one buffer, while parallel taps interleave
packet by packet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..wire.packets import PacketTable, joined_mrc
from .cuts import Limit, Marked, cuts, marks_of, rows_up_to

BATCH_ROWS = 1 << 15
"""Of the tables passed on: all of their columns fit into the caches."""


@dataclass(slots=True)
class MergeCounts:
    """Disorder of the sources of a merge."""

    sorted_rows: int = 0
    """Rows with a time below that of the previous row in their table: sorted in place."""
    late_rows: int = 0
    """Rows older than rows already passed on, which therefore stay out of order."""


class _Source:
    """The pending rows of one source: at most one table."""

    def __init__(self, index: int, tables: Iterator[PacketTable], rows: int) -> None:
        self._index = index
        self._tables = tables
        self._rows = rows
        self._table = PacketTable.zeros(0)
        self._at = 0
        self._time_ns = self._table.time_ns
        """Of the pending rows."""
        self.marked: Marked
        """The table of the pending rows, after `refill`."""

    def refill(self, handed_on_ns: int, counts: MergeCounts) -> bool:
        """Have at least one row; False when the source has ended."""
        while not len(self._time_ns):
            table = next(self._tables, None)
            if table is None:
                return False
            backwards = int(np.count_nonzero(np.diff(table.time_ns) < 0))
            if backwards:
                counts.sorted_rows += backwards
                table = table.take(np.argsort(table.time_ns, kind="stable"))
            counts.late_rows += int(np.searchsorted(table.time_ns, handed_on_ns))
            self._table, self._at, self._time_ns = table, 0, table.time_ns
            if len(table):
                marks = marks_of(table.time_ns, self._rows)
                self.marked = Marked(self._index, len(table), marks, self._rows)
        return True

    def pop(self, limit: Limit) -> PacketTable:
        """Remove and return the rows that sort up to this time and source."""
        start = self._at
        self._at += rows_up_to(limit, self._time_ns, self._index)
        self._time_ns = self._table.time_ns[self._at :]
        return self._table.slice(start, self._at)


def merge_tables(
    sources: Sequence[Iterator[PacketTable]],
    counts: MergeCounts | None = None,
    rows: int = BATCH_ROWS,
    apart: Callable[[], bool] = lambda: False,
) -> Iterator[PacketTable]:
    """The rows of all sources by time; rows of equal time in the order of their sources.

    A single source is passed on unchanged, in capture order. Otherwise each source's tables should
    follow each other in time: an unsorted table is sorted, and rows older than rows already passed
    on follow at once and are counted in `counts`. One table per source is held, so a source without
    data yet (a followed file) delays the others. Tables have about `rows` rows, less where `apart`,
    asked whenever sources may have read on, keeps the rows so far from those to come.
    """
    if len(sources) == 1:
        yield from sources[0]
        return
    counts = MergeCounts() if counts is None else counts
    waiting = [_Source(index, tables, rows) for index, tables in enumerate(sources)]
    handed_on_ns = np.iinfo(np.int64).min
    fronts: list[PacketTable] = []

    def read() -> tuple[list[Marked], bool]:
        late = counts.late_rows
        waiting[:] = [source for source in waiting if source.refill(handed_on_ns, counts)]
        return [source.marked for source in waiting], apart() or counts.late_rows > late

    for limit, begins in cuts(read, rows):
        if begins and fronts:
            yield fronts[0] if len(fronts) == 1 else _interleaved(fronts)
            fronts = []
        fronts += [front for source in waiting if len(front := source.pop(limit))]
        handed_on_ns = max(handed_on_ns, limit[0])
    if fronts:
        yield fronts[0] if len(fronts) == 1 else _interleaved(fronts)


def _interleaved(tables: list[PacketTable]) -> PacketTable:
    """All rows sorted by time, stable."""
    order = np.argsort(np.concatenate([t.time_ns for t in tables]), kind="stable")
    merged = PacketTable.empty(len(order))
    for name, column in merged.columns():
        joined = np.concatenate([getattr(table, name) for table in tables])
        # Every index is in range; "clip" only spares numpy the check and a buffer.
        np.take(joined, order, out=column, mode="clip")
    mrc = joined_mrc(tables)
    if mrc is not None:
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        mrc["row"] = place[mrc["row"]]
        mrc.sort(order="row")
        merged = replace(merged, mrc=mrc)
    return merged
