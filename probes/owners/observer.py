"""All sources of queue pairs, kept up to date: the work of the helper process."""

from __future__ import annotations

import time

from ...analyzer.errors import CaptureError
from .nldev import dump_queue_pairs
from .queue_pairs import QueuePairs
from .resources import rdma_tool, read_resources
from .uprobes import Uprobes

_LOOK_AROUND_EVERY_S = 5.0
_LISTEN_EVERY_S = 0.1


class Observer:
    """Watches queue pairs as far as this host allows."""

    def __init__(self) -> None:
        self.queue_pairs = QueuePairs()
        self.reasons: list[str] = []
        """Limits of the information on owners."""
        self._uprobes: Uprobes | None = None
        try:
            self._uprobes = Uprobes()
        except CaptureError as error:
            self.reasons.append(str(error))
        self._looked_around = self._heard = float("-inf")

    @property
    def lost(self) -> int:
        """Calls of libibverbs that were lost because the ring was full."""
        return self._uprobes.lost if self._uprobes is not None else 0

    def listen(self) -> None:
        """Process new calls; call it often, so that short-lived processes have a rank."""
        if time.monotonic() - self._heard >= _LISTEN_EVERY_S:
            self._hear()

    def _hear(self) -> None:
        self._heard = time.monotonic()
        if self._uprobes is not None:
            self.queue_pairs.note(self._uprobes.read())

    def update(self) -> None:
        """Process new events."""
        self._hear()
        now = time.monotonic()
        if now - self._looked_around < _LOOK_AROUND_EVERY_S:
            return
        first = self._looked_around < 0
        self._looked_around = now
        if self._uprobes is not None and not first:
            self._uprobes.refresh()
        rows, reason = read_resources() if rdma_tool() else dump_queue_pairs()
        if first and reason is not None:
            self.reasons.append(reason)
        self.queue_pairs.merge(rows, time.time_ns())
        self.queue_pairs.bury(time.time_ns())

    def close(self) -> None:
        """Detach the probes; known owners stay."""
        if self._uprobes is not None:
            self.queue_pairs.note(self._uprobes.read())
            self._uprobes.close()
            self._uprobes = None

    def __enter__(self) -> Observer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
