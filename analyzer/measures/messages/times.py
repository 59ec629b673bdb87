"""When the single messages of flows begin and end: SENDs and WRITEs, first copies only."""

from __future__ import annotations

from typing import Final

import numpy as np

from ....kernels.kernel import Records
from ...statistics.per_flow import Kept
from ...track import batch as verdicts
from ...track.batch import TrackedBatch
from ...wire import opcodes
from ...wire.psn import unwrapped

MOST_ENDS = 1 << 21
"""First and last packets that are kept, 24 bytes each."""

_NEW: Final = (
    verdicts.IN_ORDER,
    verdicts.AHEAD,
    verdicts.REORDERED,
    verdicts.RECOVERED,
    verdicts.RESTARTED,
)
_EDGES: Final = opcodes.BEGINS | opcodes.ENDS
_END = np.dtype(
    [("time_ns", "i8"), ("flow", "i4"), ("psn", "u4"), ("begins", "u1"), ("ends", "u1")]
)
MESSAGE = np.dtype([("flow", "i4"), ("begun_ns", "i8"), ("ended_ns", "i8")])
"""One message. A message whose last packet was not seen ends with its first one."""


class MessageTimes:
    """Times at the first tap that sees a packet; off unless ranks are asked for."""

    def __init__(self, most: int = MOST_ENDS, newest: bool = False) -> None:
        """newest: beyond `most`, the oldest leave in place of the newest."""
        self._most, self._newest = most, newest
        self._parts: list[Records] = []
        self._count = 0
        self.full = False
        """Later messages are not known."""

    def update(self, batch: TrackedBatch) -> None:
        """Take the first and last packets of messages of a batch."""
        bits = opcodes.OPCODE_CLASS[batch.table.opcode]
        edge = (bits & opcodes.REQUEST != 0) & (bits & _EDGES != 0)
        rows = np.flatnonzero(edge & np.isin(batch.verdict, _NEW))
        if self._newest:
            rows = rows[-self._most :]
        while self._newest and self._parts and self._count + len(rows) > self._most:
            self._count -= len(self._parts.pop(0))
        if self._count + len(rows) > self._most:
            self.full = True
        if self.full or not len(rows):
            return
        part = np.zeros(len(rows), _END)
        part["time_ns"], part["flow"] = batch.table.time_ns[rows], batch.flow[rows]
        part["psn"] = batch.table.psn[rows]
        part["begins"] = bits[rows] & opcodes.BEGINS != 0
        part["ends"] = bits[rows] & opcodes.ENDS != 0
        self._parts.append(part)
        self._count += len(rows)

    def keep(self, kept: Kept) -> None:
        """Only these flows stay."""
        parts = []
        for part in self._parts:
            part = part[kept.holds(part["flow"])]
            part["flow"] = kept.number[part["flow"]]
            parts.append(part)
        self._parts = parts
        self._count = sum(map(len, parts))

    def messages(self) -> Records:
        """MESSAGE records, by flow, then in the order of PSNs."""
        ends = np.concatenate([np.zeros(0, _END), *self._parts])
        by_flow = np.argsort(ends["flow"], kind="stable")
        ends = ends[by_flow]
        ends = ends[np.lexsort((unwrapped(ends["psn"]), ends["flow"]))]
        first = np.flatnonzero(ends["begins"])
        found = np.zeros(len(first), MESSAGE)
        found["flow"] = ends["flow"][first]
        found["begun_ns"] = found["ended_ns"] = ends["time_ns"][first]
        after = first + 1  # of several packets: the last one follows the first one by PSN
        follows = after < len(ends)
        near = ends[np.minimum(after, max(0, len(ends) - 1))] if len(ends) else ends
        closed = follows & (near["begins"] == 0) & (near["flow"] == found["flow"])
        closed &= ends["ends"][first] == 0
        found["ended_ns"][closed] = np.maximum(near["time_ns"], found["begun_ns"])[closed]
        return found
