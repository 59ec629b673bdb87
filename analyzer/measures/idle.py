"""Gaps between consecutive packets of a flow: where flowlet switching could act."""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np

from ...kernels.kernel import subkernel
from ...kernels.named import NamedTuple
from ..results.flow import IdleGaps
from ..statistics.per_flow import PerFlow
from ..statistics.per_flow import Rows as FlowRows
from ..track.batch import Rows, TrackedBatch
from ..wire.record import Records

LIMITS_NS: Final = (10_000, 50_000, 100_000, 500_000)

STATE = np.dtype(
    [
        ("started", np.int64),
        ("last", np.int64),  # ns, capture time of the latest packet
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
            s.last = time
        gap = time - s.last
        s.last = time
        if gap > s.max:
            s.max = gap
        if gap > LIMITS_NS[0]:
            for k in range(len(LIMITS_NS)):
                s.over[k] += gap > LIMITS_NS[k]


class IdleArrays(NamedTuple):
    """Arrays of the measure."""

    state: Records
    """STATE[flows]."""


class Idle(PerFlow[IdleArrays]):
    """Idle gaps of all flows, over all rows of each; a backward clock step is not a gap."""

    layout: ClassVar = {"state": FlowRows()}

    def __init__(self) -> None:
        super().__init__(IdleArrays(np.zeros(0, STATE)))

    def update(self, batch: TrackedBatch) -> None:
        """Count a batch; batches must come in capture order."""
        self.grow(batch.n_flows)
        _update(self.arrays.state, batch.rows)

    def gaps(self, flow: int) -> IdleGaps:
        """One flow's gaps longer than 10, 50, 100 and 500 us, and the longest one."""
        if flow >= self.known_flows:
            return IdleGaps(0, 0, 0, 0, 0)
        s = self.arrays.state[flow]
        over = s["over"].tolist()
        return IdleGaps(over[0], over[1], over[2], over[3], int(s["max"]))
