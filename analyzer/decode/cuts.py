"""Where a merge by time cuts the rows of its sources.

A few times of each table decide it, so that somebody with these times and only some of the rows
can cut them in the same places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ..wire.packets import I64

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
