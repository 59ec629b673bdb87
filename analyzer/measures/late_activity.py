"""Late packets of each flow over time."""

from __future__ import annotations

import numpy as np

from ..track.batch import OVERTAKEN, REORDERED, TrackedBatch
from .series import Activity


class LateActivity(Activity):
    """Late packets (RFC 4737) of each flow in equal bins, like the bytes of `Activity`.

    The bins span the first to the last late packet; no memory without late packets.
    """

    def update(self, batch: TrackedBatch) -> None:
        """Count the late packets of one batch."""
        late = np.flatnonzero((batch.verdict == REORDERED) | (batch.verdict == OVERTAKEN))
        if not len(late):
            return
        self._count(
            batch.n_flows,
            batch.table.time_ns[late],
            batch.verdict[late],
            batch.flow[late],
            np.ones(len(late), np.uint32),
        )
