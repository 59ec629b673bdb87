"""Flows that are captured on interfaces, while they appear."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from ..analyzer.errors import RocescopeError, UnreadableInput
from ..analyzer.logs.job import Job
from ..analyzer.wire.packets import PacketTable
from ..probes.live import LiveSource
from ..replay.fabrics.fabric import Fabric
from ..replay.traffic.observed import Counting
from ..replay.traffic.traffic import Traffic

TELL_SECONDS = 1.0
"""New flows are told together, so often at most."""


class LiveTraffic:
    """The flows that a source captures, mapped to the hosts of a fabric."""

    def __init__(
        self, source: LiveSource, fabric: Fabric, mapping: str = "exact", job: Job | None = None
    ) -> None:
        """job: logs that name the ranks of queue pairs."""
        self.source = source
        self._job = job
        self._fabric, self._mapping = fabric, mapping
        self._counting = Counting()
        self._counting.update(PacketTable.zeros(2))  # its machine code, before packets arrive
        self._counting = Counting()
        self._full = ""

    def run(
        self, check: Callable[[], None], tell: Callable[[Traffic], object] | None = None
    ) -> None:
        """Capture until the source stops. `check` is called many times a second, `tell` with the
        traffic so far whenever there are new flows.

        RocescopeError with more flows than fit in memory, without `tell`; with it, flows beyond are
        left out, which a warning of the traffic says.
        """
        known, due = 0, 0.0
        for table in self.source.tables():
            check()
            try:
                if not self._full:
                    self._counting.update(table)
            except RocescopeError as error:
                if tell is None:
                    raise
                self._full = f"further flows are not followed: {error}"
            now = time.monotonic()
            units = len(self._counting.counter.units) + bool(self._full)
            if tell is not None and units > known and now >= due:
                known, due = units, now + TELL_SECONDS
                tell(self.traffic())

    def traffic(self) -> Traffic:
        """The flows so far; what was not captured is in its warnings.

        UnreadableInput without a RoCE packet.
        """
        names = ", ".join(interface.label for interface in self.source.interfaces)
        if not len(self._counting.counter.units):
            raise UnreadableInput(f"no RoCE packet on {names}")
        traffic = self._counting.traffic(
            self.source.registry.endpoints, self._fabric, self._mapping, job=self._job
        )
        return replace(traffic, warnings=(*traffic.warnings, *self.missing()))

    def missing(self) -> list[str]:
        """What was not captured so far."""
        loss = self.source.loss()
        texts = [self._full] if self._full else []
        for number, what in (
            (loss.ring_full, "packets were lost because the ring was full: flows may be missing"),
            (loss.merged, "frames had been merged by the kernel (GRO or GSO) and are counted once"),
        ):
            if number:
                texts.append(f"{number:,} {what}")
        return texts
