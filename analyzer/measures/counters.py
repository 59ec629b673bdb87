"""Measures that count one number per flow; the declarations of `Flow` name their kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module

import numpy as np

from ...kernels.kernel import Int32s, Ints
from ..results.flow import counted_facts
from ..statistics.per_flow import Kept, front_of, roomier
from ..track.batch import Rows, TrackedBatch


@cache
def kernels() -> dict[str, Callable[[Ints, Rows], None]]:
    """The functions that add the packets of a batch to the counts of flows, by field of `Flow`."""
    by_field = {}
    for fact in counted_facts():
        module, _, name = fact.measure.partition(":")
        by_field[fact.name] = getattr(import_module(f".{module}", __package__), name)
    return by_field


class Counters:
    """All counters that `Flow` declares."""

    def __init__(self) -> None:
        self._counts: dict[str, Ints] = {name: np.zeros(0, np.int64) for name in kernels()}

    def update(self, batch: TrackedBatch) -> None:
        """Count a batch; batches come in capture order."""
        for name, count in kernels().items():
            self._counts[name] = roomier(self._counts[name], batch.n_flows)
            count(self._counts[name], batch.rows)

    def keep(self, kept: Kept) -> None:
        """Only these flows stay."""
        for name, counts in self._counts.items():
            self._counts[name] = front_of(counts, kept.of(len(counts)))

    def merge(self, other: Counters, flow_map: Int32s) -> None:
        """Add the other's flows; its flow i is our flow `flow_map[i]`."""
        for name, counts in other._counts.items():
            theirs = counts[: len(flow_map)]
            if len(theirs):
                into = flow_map[: len(theirs)]
                self._counts[name] = roomier(self._counts[name], int(into.max()) + 1)
                np.add.at(self._counts[name], into, theirs)

    def of(self, flow: int) -> dict[str, int]:
        """The counts of one flow."""
        return {
            name: int(counts[flow]) if flow < len(counts) else 0
            for name, counts in self._counts.items()
        }

    def columns(self, flows: int) -> Ints:
        """The counts of the first flows, a column per counter in the order of `counted_facts`."""
        columns = np.zeros((flows, len(self._counts)), np.int64)
        for column, counts in enumerate(self._counts.values()):
            known = counts[:flows]
            columns[: len(known), column] = known
        return columns
