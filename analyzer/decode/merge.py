"""Merges the decoded tables of several taps by time, in bounded memory.

The merge follows decoding because a batch of frames is one buffer, while parallel taps interleave
packet by packet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from ...kernels.record import dataclass
from ..wire.packets import PacketTable, joined_mrc


@dataclass
class MergeCounts:
    """Disorder of the sources of a merge."""

    sorted_rows: int = 0
    """Rows with a time below that of the previous row in their table: sorted in place."""
    late_rows: int = 0
    """Rows older than rows already passed on, which therefore stay out of order."""


class _Source:
    """The pending rows of one source: at most one table."""

    def __init__(self, index: int, tables: Iterator[PacketTable]) -> None:
        self.index = index
        self._tables = tables
        self.rows = PacketTable.zeros(0)

    def refill(self, handed_on_ns: int, counts: MergeCounts) -> bool:
        """Have at least one row; False when the source has ended."""
        while not len(self.rows):
            table = next(self._tables, None)
            if table is None:
                return False
            backwards = int(np.count_nonzero(np.diff(table.time_ns) < 0))
            if backwards:
                counts.sorted_rows += backwards
                table = table.take(np.argsort(table.time_ns, kind="stable"))
            counts.late_rows += int(np.searchsorted(table.time_ns, handed_on_ns))
            self.rows = table
        return True

    def pop(self, time_ns: int, inclusive: bool) -> PacketTable:
        """Remove and return the rows before `time_ns`, or up to and including it."""
        cut = int(np.searchsorted(self.rows.time_ns, time_ns, "right" if inclusive else "left"))
        front = self.rows.slice(0, cut)
        self.rows = self.rows.slice(cut, len(self.rows))
        return front


def merge_tables(
    sources: Sequence[Iterator[PacketTable]], counts: MergeCounts | None = None
) -> Iterator[PacketTable]:
    """The rows of all sources by time; rows of equal time in the order of their sources.

    A single source is passed on unchanged, in capture order. Otherwise each source's tables should
    follow each other in time: an unsorted table is sorted, and rows older than rows already passed
    on follow at once and are counted in `counts`. One table per source is held, so a source without
    data yet (a followed file) delays the others.
    """
    if len(sources) == 1:
        yield from sources[0]
        return
    counts = MergeCounts() if counts is None else counts
    waiting = [_Source(index, tables) for index, tables in enumerate(sources)]
    handed_on_ns = np.iinfo(np.int64).min
    while True:
        waiting = [source for source in waiting if source.refill(handed_on_ns, counts)]
        if not waiting:
            return
        # All later rows of any source sort after this last row of one source.
        limit_ns, limit_index = min((int(s.rows.time_ns[-1]), s.index) for s in waiting)
        fronts = [s.pop(limit_ns, inclusive=s.index <= limit_index) for s in waiting]
        fronts = [front for front in fronts if len(front)]
        handed_on_ns = max(handed_on_ns, *(int(front.time_ns[-1]) for front in fronts))
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
