"""Merges the decoded tables of several taps by time, in bounded memory.

The merge follows decoding because a batch of frames is one buffer, while parallel taps interleave
packet by packet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..wire.packets import I64, PacketTable, joined

# Sorts the rows of one capture by time when times are not those of the capture.

HELD_NS = 10_000_000
"""Rows wait this long for older rows; mirrors differ by far less."""
HELD_ROWS = 1 << 18
"""Most rows waiting."""


@dataclass(slots=True)
class OrderCounts:
    """Rows that could not be sorted."""

    late_rows: int = 0
    """Rows older than rows passed on before they arrived."""


def steps_back(time_ns: I64) -> int:
    """Rows with a time below that of the row before. Compared: differences may exceed 64 bits."""
    return int(np.count_nonzero(time_ns[1:] < time_ns[:-1]))


def in_time_order(tables: Iterator[PacketTable], counts: OrderCounts) -> Iterator[PacketTable]:
    """All rows, sorted by time within the waiting limit; equal times stay in order."""
    held = PacketTable.zeros(0)
    handed_on_ns = np.iinfo(np.int64).min
    for table in tables:
        rows = PacketTable.concatenate([held, table]) if len(held) else table
        if not len(rows):
            yield rows
            continue
        if steps_back(rows.time_ns):
            rows = rows.take(np.argsort(rows.time_ns, kind="stable"))
        counts.late_rows += int(np.searchsorted(rows.time_ns, handed_on_ns))
        until = max(int(rows.time_ns[-1]) - HELD_NS, np.iinfo(np.int64).min)
        ready = int(np.searchsorted(rows.time_ns, until, "right"))
        ready = max(ready, len(rows) - HELD_ROWS)
        if ready:
            handed_on_ns = max(handed_on_ns, int(rows.time_ns[ready - 1]))
        held = rows.slice(ready, len(rows))
        yield rows.slice(0, ready)
    yield held


# Where a merge by time cuts the rows of its sources.
#
# A few times of each table decide it, so that somebody with these times and only some of the rows
# can cut them in the same places.

Limit = tuple[int, int]
"""A time and a source: rows up to this time sort up to it, of later sources only earlier ones."""
_MARKS = 64
"""Of a table with as many rows as those passed on."""


def rows_up_to(limit: Limit, time_ns: I64, source: int) -> int:
    """How many rows of a source, with these times, sort up to a limit."""
    return int(np.searchsorted(time_ns, limit[0], "right" if source <= limit[1] else "left"))


def marks_of(time_ns: I64, rows: int) -> I64:
    """The times of a sorted table that `cuts` needs: of its first row, of some, of its last."""
    step = _step(rows)
    return np.concatenate([time_ns[:1], time_ns[step // 2 :: step], time_ns[-1:]])


def marks_in(table_rows: int, rows: int) -> int:
    """How many times `marks_of` gives for a table with this many rows, one at least."""
    step = _step(rows)
    return 2 + len(range(step // 2, table_rows, step))


def _step(rows: int) -> int:
    return max(rows // _MARKS, 1)


class Marked:
    """A table that waits to be merged, as far as its marks tell."""

    __slots__ = ("_marks", "_passed", "_rows", "_step", "end", "first_ns", "source")

    def __init__(self, source: int, table_rows: int, marks: I64, rows: int) -> None:
        self.source = source
        self.first_ns = int(marks[0])
        self.end: Limit = (int(marks[-1]), source)
        """The limit up to which all its rows sort."""
        self._marks, self._step = marks[1:], _step(rows)
        self._rows = table_rows
        self._passed = 0

    def due(self, limit: Limit) -> int:
        """About how many more rows sort up to a limit."""
        if self.end <= limit:
            return self._rows - self._passed
        marks = rows_up_to(limit, self._marks[:-1], self.source)
        return max(min(marks * self._step, self._rows) - self._passed, 0)

    def limit_at(self, row: int) -> Limit:
        """The limit up to which about `row` more rows sort: one at least."""
        mark = min((self._passed + row) // self._step, len(self._marks) - 1)
        return int(self._marks[mark]), self.source

    def take(self, limit: Limit) -> int:
        """As `due`; these rows have gone."""
        count = self.due(limit)
        self._passed += count
        return count


def cuts(
    read: Callable[[], tuple[Sequence[Marked], bool]], rows: int
) -> Iterator[tuple[Limit, bool]]:
    """The limits up to which rows are taken from all sources, one after the other; with each,
    whether its rows begin a new table, of about `rows` rows.

    read: reads on where a source has no rows left; the tables that wait, and whether their rows
    stay apart from those before.
    """
    held = 0
    while True:
        waiting, apart = read()
        if not waiting:
            return
        # Taps with like traffic run out of rows together, each a few rows after the other.
        if begins := apart or held > rows // 2:
            held = 0
        # All later rows of any source sort after this last row of one source.
        limit = min(table.end for table in waiting)
        due = [table.due(limit) for table in waiting]
        if (total := sum(due)) > rows:
            most = max(due)
            limit = waiting[due.index(most)].limit_at(most * rows // total)
        held += sum(table.take(limit) for table in waiting)
        yield limit, begins


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
            if backwards := steps_back(table.time_ns):
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
        unsorted = np.concatenate([getattr(table, name) for table in tables])
        # Every index is in range; "clip" only spares numpy the check and a buffer.
        np.take(unsorted, order, out=column, mode="clip")
    return replace(
        merged,
        mrc=_placed(joined(tables, "mrc"), order),
        grants=_placed(joined(tables, "grants"), order),
    )


def _placed(records: NDArray[np.void] | None, order: I64) -> NDArray[np.void] | None:
    """Records of concatenated tables by their rows in this order of all rows."""
    if records is not None:
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        records["row"] = place[records["row"]]
        records.sort(order="row")
    return records
