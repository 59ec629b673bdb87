"""Measures that count one number per flow; the declarations of `Flow` name them."""

from __future__ import annotations

from importlib import import_module

import numpy as np

from ...kernels.kernel import Int32s, Ints
from ..results.flow import counted_facts
from ..statistics.keeping import Kept, roomier, rows_of
from ..track.batch import Rows, TrackedBatch


class FlowCounter:
    """One count per flow. A subclass adds the packets of a batch in `count`."""

    def __init__(self) -> None:
        self.counts: Ints = np.zeros(0, np.int64)

    def count(self, rows: Rows) -> None:
        """Add the packets of a batch to `counts`; batches come in capture order."""
        raise NotImplementedError

    def update(self, batch: TrackedBatch) -> None:
        """Count a batch."""
        self.counts = roomier(self.counts, batch.n_flows)
        self.count(batch.rows)

    def keep(self, kept: Kept) -> None:
        """Only these flows stay."""
        self.counts = rows_of(self.counts, kept)

    def merge(self, other: FlowCounter, flow_map: Int32s) -> None:
        """Add the other's flows; its flow i is our flow `flow_map[i]`."""
        theirs = other.counts[: len(flow_map)]
        if len(theirs):
            into = flow_map[: len(theirs)]
            self.counts = roomier(self.counts, int(into.max()) + 1)
            np.add.at(self.counts, into, theirs)


class Counters:
    """All counters that `Flow` declares, by the name of their field."""

    def __init__(self) -> None:
        self._counters: dict[str, FlowCounter] = {}
        for fact in counted_facts():
            module, _, name = fact.measure.partition(":")
            home = import_module(f".{module}", __package__)
            self._counters[fact.name] = getattr(home, name)()

    def update(self, batch: TrackedBatch) -> None:
        """Count a batch."""
        for counter in self._counters.values():
            counter.update(batch)

    def keep(self, kept: Kept) -> None:
        """Only these flows stay."""
        for counter in self._counters.values():
            counter.keep(kept)

    def merge(self, other: Counters, flow_map: Int32s) -> None:
        """Add the other's flows; its flow i is our flow `flow_map[i]`."""
        for name, counter in self._counters.items():
            counter.merge(other._counters[name], flow_map)

    def of(self, flow: int) -> dict[str, int]:
        """The counts of one flow."""
        return {
            name: int(counter.counts[flow]) if flow < len(counter.counts) else 0
            for name, counter in self._counters.items()
        }

    def columns(self, flows: int) -> Ints:
        """The counts of the first flows, a column per counter in the order of `counted_facts`."""
        columns = np.zeros((flows, len(self._counters)), np.int64)
        for column, counter in enumerate(self._counters.values()):
            known = counter.counts[:flows]
            columns[: len(known), column] = known
        return columns
