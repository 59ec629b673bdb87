"""The rules at every tap: each tap is judged by its own packets."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...track.batch import TrackedBatch
from ...track.tracker import FlowTracker
from ...wire.packets import PacketTable
from .options import ConformanceOptions
from .rules.cnp import CnpPacing
from .state import BookKeeper
from .walk import walk


class TapConformance:
    """The rules at one tap."""

    def __init__(self, options: ConformanceOptions) -> None:
        self.tracker: FlowTracker | None = None
        """A separate tracker when the analysis merges several taps."""
        self.keeper = BookKeeper(options.reaction_ns)
        self.cnp = CnpPacing(
            options.cnp_interval_ns, options.cnp_for_nak, options.same_port, options.address_of
        )

    def update(self, batch: TrackedBatch, flows: NDArray[np.void]) -> None:
        """Judge the rows of a batch; `flows` are the FLOW records of its tracker."""
        if not len(batch):
            return
        self.keeper.grow(batch.n_flows)
        walk(self.keeper.book, batch.rows)
        self.cnp.update(batch, flows, self.keeper.book)


class Conformance:
    """The rules at all taps of an analysis."""

    def __init__(self, options: ConformanceOptions, many_taps: bool) -> None:
        self.options = options
        self._many_taps = many_taps
        self.taps: dict[int, TapConformance] = {}

    def update(self, batch: TrackedBatch, flows: NDArray[np.void]) -> None:
        """Judge a batch of the analysis.

        In an analysis of several taps the tracker's verdicts refer to the merged packets, so each
        tap's rows are also tracked separately, both directions of an interface together. Taps that
        appear while reading (mirror sessions) are added to the first one.
        """
        several = bool(batch.table.tap.any())
        if not self.taps:
            self._many_taps = self._many_taps or several
        if not (self._many_taps or several):
            self._tap(0).update(batch, flows)
            return
        of_interface: dict[int, list[int]] = {}
        for tap in np.unique(batch.table.tap).tolist():
            of_interface.setdefault(self.options.interface_of(tap), []).append(tap)
        for tap, both in of_interface.items():
            one = self._tap(tap)
            if tap == 0 and not self._many_taps:
                one.update(batch.take(batch.table.tap == 0), flows)
                continue
            if one.tracker is None:
                one.tracker = FlowTracker()
            own = one.tracker.update(_rows_of(batch.table, both))
            one.update(own, one.tracker.flows)

    def _tap(self, tap: int) -> TapConformance:
        if tap not in self.taps:
            self.taps[tap] = TapConformance(self.options)
        return self.taps[tap]


def _rows_of(table: PacketTable, taps: list[int]) -> PacketTable:
    """The rows of one tap, as if it were the only tap."""
    rows = table.take(np.isin(table.tap, taps))
    rows.tap[:] = 0
    return rows
