"""The order in which one process would measure the rows of several captures.

`decode.merge` merges the rows of all captures in chunks. Chunk k ends with the last row of one
table; that table, and so the whole order, follows from the last times of all tables alone. How many
rows the merge passes on at once changes nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..analyzer.wire.packets import I64

_NEVER = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class Chunks:
    """Which rows each chunk has."""

    count: int
    decoded: list[I64]
    """Per capture, int64[tables]: the chunk before which each table is decoded."""
    single: bool
    _ends: list[I64]
    """Per capture, int64[tables]: the chunk that a table ends; -1 for an empty table."""
    _limits_ns: I64
    """int64[chunks]: time of the last row of each."""
    _limited_by: I64
    """int64[chunks]: the capture of the table that each ends."""

    def of_rows(self, source: int, table: int, time_ns: I64) -> I64:
        """int64[rows]: the chunk of rows of one table, sorted by time."""
        end = int(self._ends[source][table])
        if self.single:
            return np.full(len(time_ns), end, np.int64)
        first = int(self.decoded[source][table])
        # Of rows of equal time those of earlier captures are first.
        limits = self._limits_ns[first : end + 1] - (self._limited_by[first : end + 1] < source)
        found: I64 = first + np.searchsorted(np.maximum.accumulate(limits), time_ns, "left")
        return found

    def late_rows(self, source: int, table: int, time_ns: I64) -> int:
        """How many of the rows of a table are older than rows passed on before it was decoded."""
        first = int(self.decoded[source][table])
        if self.single or not first:
            return 0
        return int(np.searchsorted(time_ns, self._limits_ns[:first].max()))

    def decoding(self) -> list[tuple[int, int]]:
        """(capture, table) in the order in which one process decodes them."""
        chunk = np.concatenate([*self.decoded, np.zeros(0, np.int64)])
        source = np.repeat(np.arange(len(self.decoded)), [len(d) for d in self.decoded])
        table = np.concatenate([np.arange(len(d)) for d in self.decoded])
        order = np.lexsort((table, source, chunk))
        return list(zip(source[order].tolist(), table[order].tolist(), strict=True))


def chunks_of(rows: Sequence[I64], last_ns: Sequence[I64]) -> Chunks:
    """The chunks of captures. Per capture, int64[tables]: rows, and the latest time of each."""
    if len(rows) == 1:
        tables = np.arange(len(rows[0]))
        nothing = np.zeros(0, np.int64)
        return Chunks(len(tables), [tables], True, [tables], nothing, nothing)
    decoded = [np.zeros(len(r), np.int64) for r in rows]
    ends = [np.full(len(r), -1, np.int64) for r in rows]
    limits: list[int] = []
    limited_by: list[int] = []
    waiting: list[tuple[int, int, int]] = []

    def refill(source: int, table: int) -> None:
        while table < len(rows[source]):
            decoded[source][table] = len(limits)
            if rows[source][table]:
                heapq.heappush(waiting, (int(last_ns[source][table]), source, table))
                return
            table += 1

    for source in range(len(rows)):
        refill(source, 0)
    while waiting:
        last, source, table = heapq.heappop(waiting)
        ends[source][table] = len(limits)
        limits.append(last)
        limited_by.append(source)
        refill(source, table + 1)
    return Chunks(
        len(limits),
        decoded,
        False,
        ends,
        np.array(limits, np.int64),
        np.array(limited_by, np.int64),
    )
