"""Gaps between consecutive packets of a flow: where flowlet switching could act."""

from __future__ import annotations

from typing import Final

import numpy as np

from ...kernels.kernel import Int32s, subkernel
from ..results.flow import IdleGaps
from ..statistics.keeping import Kept, roomier, rows_of
from ..track.batch import Rows, TrackedBatch
from ..wire.record import Records

LIMITS_NS: Final = (10_000, 50_000, 100_000, 500_000)

STATE = np.dtype(
    [
        ("started", np.int64),
        ("first", np.int64),  # ns, capture time of the first and of
        ("last", np.int64),  # the latest packet
        ("max", np.int64),  # ns, longest gap
        ("over", np.int64, (len(LIMITS_NS),)),  # gaps longer than each limit
    ],
    align=True,
)


@subkernel
def _update(state: Records, rows: Rows) -> None:
    for i in range(len(rows.flow)):
        s = state[rows.flow[i]]
        time = rows.time_ns[i]
        if s.started == 0:
            s.started = 1
            s.first = time
            s.last = time
        gap = time - s.last
        s.last = time
        if gap > s.max:
            s.max = gap
        if gap > LIMITS_NS[0]:
            for k in range(len(LIMITS_NS)):
                s.over[k] += gap > LIMITS_NS[k]


class Idle:
    """Idle gaps of all flows, over all rows of each; a backward clock step is not a gap."""

    def __init__(self) -> None:
        self._state = np.zeros(0, STATE)

    def update(self, batch: TrackedBatch) -> None:
        """Count a batch; batches must come in capture order."""
        self._state = roomier(self._state, batch.n_flows)
        _update(self._state, batch.rows)

    def keep(self, kept: Kept) -> None:
        """Only these flows stay."""
        self._state = rows_of(self._state, kept)

    def merge(self, other: Idle, flow_map: Int32s) -> None:
        """Add the other's flows; its flow i is our flow `flow_map[i]`.

        The other's packets are later: for a flow of both parts the time between them is also a gap.
        """
        flow_map = flow_map[: len(other._state)]
        if not len(flow_map):
            return
        self._state = roomier(self._state, int(flow_map.max()) + 1)
        for theirs, into in zip(other._state, flow_map.tolist(), strict=False):
            mine = self._state[into]
            if not theirs["started"]:
                continue
            if mine["started"]:
                between = theirs["first"] - mine["last"]
                mine["max"] = max(mine["max"], theirs["max"], between)
                mine["over"] += theirs["over"] + (between > np.array(LIMITS_NS))
                mine["last"] = theirs["last"]
            else:
                self._state[into] = theirs

    def gaps(self, flow: int) -> IdleGaps:
        """One flow's gaps longer than 10, 50, 100 and 500 us, and the longest one."""
        if flow >= len(self._state):
            return IdleGaps(0, 0, 0, 0, 0)
        s = self._state[flow]
        over = s["over"].tolist()
        return IdleGaps(over[0], over[1], over[2], over[3], int(s["max"]))
