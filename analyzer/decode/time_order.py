"""Sorts the rows of one capture by time when times are not those of the capture."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..wire.packets import PacketTable

HELD_NS = 10_000_000
"""Rows wait this long for older rows; mirrors differ by far less."""
HELD_ROWS = 1 << 18
"""Most rows waiting."""


@dataclass(slots=True)
class OrderCounts:
    """Rows that could not be sorted."""

    late_rows: int = 0
    """Rows older than rows passed on before they arrived."""


def in_time_order(tables: Iterator[PacketTable], counts: OrderCounts) -> Iterator[PacketTable]:
    """All rows, sorted by time within the waiting limit; equal times stay in order."""
    held = PacketTable.zeros(0)
    handed_on_ns = np.iinfo(np.int64).min
    for table in tables:
        rows = PacketTable.concatenate([held, table]) if len(held) else table
        if not len(rows):
            yield rows
            continue
        if bool(np.any(np.diff(rows.time_ns) < 0)):
            rows = rows.take(np.argsort(rows.time_ns, kind="stable"))
        counts.late_rows += int(np.searchsorted(rows.time_ns, handed_on_ns))
        ready = int(np.searchsorted(rows.time_ns, rows.time_ns[-1] - HELD_NS, "right"))
        ready = max(ready, len(rows) - HELD_ROWS)
        if ready:
            handed_on_ns = max(handed_on_ns, int(rows.time_ns[ready - 1]))
        held = rows.slice(ready, len(rows))
        yield rows.slice(0, ready)
    yield held
