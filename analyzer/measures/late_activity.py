"""Late packets of each flow over time."""

from __future__ import annotations

import numpy as np

from ..track.batch import OVERTAKEN, REORDERED, TrackedBatch
from .series import Activity, _count_activity


class LateActivity(Activity):
    """Late packets (RFC 4737) of each flow in equal bins, like the bytes of `Activity`.

    The bins span the first to the last late packet; no memory without late packets.
    """

    def update(self, batch: TrackedBatch) -> None:
        """Count the late packets of one batch."""
        late = np.flatnonzero((batch.verdict == REORDERED) | (batch.verdict == OVERTAKEN))
        if not len(late):
            return
        self._grow(batch.n_flows)
        time_ns, verdict = batch.table.time_ns[late], batch.verdict[late]
        flow, one = batch.flow[late], np.ones(len(late), np.uint32)
        row = 0
        while True:
            row = _count_activity(
                row,
                self._windows.state,
                self._windows.slots,
                self._windows.windows,
                self._windows.sums,
                time_ns,
                verdict,
                flow,
                one,
            )
            if row == len(late):
                return
            self._windows.cover(int(time_ns[row]))
