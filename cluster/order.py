"""The order in which one process would measure the rows of several captures.

`decode.merge` takes the rows of all captures in cuts and passes them on in chunks of a few cuts. A
few times of each table tell all cuts and chunks (`decode.cuts`). Chunks matter: flows found to be
one connection are so for all rows of a chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..analyzer.decode.cuts import Limit, Marked, cuts, marks_in
from ..analyzer.wire.packets import I64

KEY = np.dtype([("chunk", np.int64), ("time", np.int64), ("front", np.int64), ("row", np.int64)])
"""Place of a row in the order of one process: lexicographic. A front are the rows of one capture in
one cut of the merge."""


def in_order(keys: Any) -> Any:
    """int64[rows]: the order of one process."""
    return np.lexsort((keys["row"], keys["front"], keys["time"], keys["chunk"]))


@dataclass(slots=True)
class Outline:
    """What stage merge needs of all partitions at once."""

    flow_keys: Any = field(default_factory=lambda: np.zeros(0, KEY))
    """KEY[flows]: place of the first row of each flow."""
    event_keys: Any = field(default_factory=lambda: np.zeros(0, KEY))
    """KEY[events]: place of the row of each event of the tracker."""
    flows: Any = None
    """FLOW[flows]."""
    events: Any = None
    """EVENT[events]."""
    used: Any = None
    """Counts of the tracker, see `track.state`."""
    packets: int = 0
    late_rows: int = 0


@dataclass(frozen=True, slots=True)
class MarkedTables:
    """The tables of one capture as far as the order depends on them."""

    rows: I64
    """int64[tables]"""
    marks: I64
    """`decode.cuts.marks_of` all tables with rows, one after the other."""
    apart: frozenset[int]
    """Tables whose rows follow in another chunk than those before they were decoded."""

    def marked(self, source: int, batch_rows: int) -> list[Marked | None]:
        """Each table; None for an empty one."""
        tables: list[Marked | None] = []
        start = 0
        for rows in self.rows.tolist():
            if not rows:
                tables.append(None)
                continue
            end = start + marks_in(rows, batch_rows)
            tables.append(Marked(source, rows, self.marks[start:end], batch_rows))
            start = end
        return tables


@dataclass(frozen=True, slots=True)
class Chunks:
    """Which rows each chunk has."""

    count: int
    single: bool
    """One capture: its tables are the cuts and the chunks."""
    _decoded: list[I64]
    """Per capture, int64[tables]: the cut before which each table is decoded."""
    _ends: list[I64]
    """Per capture, int64[tables]: the cut that has the last row of each; -1 for an empty table."""
    _limits_ns: I64
    """int64[cuts]: the time of each limit."""
    _limited_by: I64
    """int64[cuts]: its capture."""
    _chunk: I64
    """int64[cuts]: the chunk of each."""

    def key_rows(self, keys: Any, source: int, table: int, time_ns: I64) -> None:
        """Set the places of rows of one table, sorted by time, but for their numbers in it."""
        if self.single:
            keys["chunk"] = table
            return
        first, end = int(self._decoded[source][table]), int(self._ends[source][table])
        # Of rows of equal time those of earlier captures are first.
        limits = self._limits_ns[first : end + 1] - (self._limited_by[first : end + 1] < source)
        cut = first + np.searchsorted(np.maximum.accumulate(limits), time_ns, "left")
        keys["chunk"], keys["time"] = self._chunk[cut], time_ns
        keys["front"] = cut * len(self._decoded) + source

    def late_rows(self, source: int, table: int, time_ns: I64) -> int:
        """How many of the rows of a table are older than rows passed on before it was decoded."""
        first = int(self._decoded[source][table])
        if self.single or not first:
            return 0
        return int(np.searchsorted(time_ns, self._limits_ns[:first].max()))

    def known_in(self, source: int, table: int) -> int:
        """The first chunk that is measured after a table was decoded: rows are passed on when the
        next ones are."""
        cut = int(self._decoded[source][table])
        return self._chunk_of(cut if self.single else max(cut - 1, 0))

    def goes_with(self, source: int, table: int) -> int:
        """The chunk that gets what the decoder found beside the rows of a table."""
        return self._chunk_of(int(self._decoded[source][table]))

    def _chunk_of(self, cut: int) -> int:
        return int(self._chunk[cut]) if cut < len(self._chunk) else self.count

    def decoding(self) -> list[tuple[int, int]]:
        """(capture, table) in the order in which one process decodes them."""
        cut = np.concatenate([*self._decoded, np.zeros(0, np.int64)])
        source = np.repeat(np.arange(len(self._decoded)), [len(d) for d in self._decoded])
        table = np.concatenate([np.arange(len(d)) for d in self._decoded])
        order = np.lexsort((table, source, cut))
        return list(zip(source[order].tolist(), table[order].tolist(), strict=True))


def chunks_of(captures: Sequence[MarkedTables], batch_rows: int) -> Chunks:
    """The chunks of captures; batch_rows: `rows` of `merge_tables`."""
    if len(captures) == 1:
        tables = np.arange(len(captures[0].rows))
        nothing = np.zeros(0, np.int64)
        return Chunks(len(tables), True, [tables], [tables], nothing, nothing, tables)
    tables_of = [c.marked(source, batch_rows) for source, c in enumerate(captures)]
    decoded = [np.zeros(len(tables), np.int64) for tables in tables_of]
    ends = [np.full(len(tables), -1, np.int64) for tables in tables_of]
    limits: list[Limit] = []
    chunk: list[int] = []
    at = [-1] * len(captures)
    """The table of each capture that waits."""
    waiting: list[Marked] = []
    handed_on_ns = np.iinfo(np.int64).min

    def read() -> tuple[list[Marked], bool]:
        apart = False
        left = {table.source: table for table in waiting if not limits or table.end > limits[-1]}
        for source, tables in enumerate(tables_of):
            while source not in left and at[source] + 1 < len(tables):
                at[source] += 1
                decoded[source][at[source]] = len(limits)
                apart |= at[source] in captures[source].apart
                if (table := tables[at[source]]) is not None:
                    left[source] = table
                    apart |= table.first_ns < handed_on_ns
        waiting[:] = [left[source] for source in sorted(left)]
        return waiting, apart

    for limit, begins in cuts(read, batch_rows):
        for table in waiting:
            if table.end <= limit:
                ends[table.source][at[table.source]] = len(limits)
        chunk.append(chunk[-1] + begins if chunk else 0)
        limits.append(limit)
        handed_on_ns = max(handed_on_ns, limit[0])
    times, sources = zip(*limits, strict=True) if limits else ((), ())
    return Chunks(
        chunk[-1] + 1 if chunk else 0,
        False,
        decoded,
        ends,
        np.array(times, np.int64),
        np.array(sources, np.int64),
        np.array(chunk, np.int64),
    )
