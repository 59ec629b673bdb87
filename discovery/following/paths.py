"""Traced paths of which only those through changed switches are walked again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...kernels.kernel import Array, Bools, Ints
from ...replay.compare.flows import NO_CHANCES, result_of
from ...replay.fabrics.devices.reread import Reread
from ...replay.flows.loads import Placement
from ...replay.strategies.placed import Outcome
from ...replay.traffic.traffic import Traffic
from ..tracing.changes import through
from ..tracing.paths import TracedPaths, trace_paths


class CurrentPaths:
    """The paths of flows under the tables as of now.

    Taps are no evidence here: packets were captured before a change.
    """

    def __init__(self, traffic: Traffic, state: Reread) -> None:
        self.traffic = replace(traffic, windows=None, messages=None, seen=None)
        self._state = state
        self.paths = trace_paths(self.traffic, state.fabric)

    def retrace(self, switches: Sequence[str]) -> tuple[TracedPaths, Ints]:
        """Walk the flows through these switches: (the paths before, rows with another path)."""
        before, fabric = self.paths, self._state.fabric
        numbers = np.array([fabric.nodes.names.index(name) for name in switches], np.int64)
        rows = np.flatnonzero(
            through(before, fabric, switches)
            | self._state.begins_at(numbers, self.traffic.src_host)
        )
        if not len(rows):
            return before, rows
        part = np.zeros(len(self.traffic), np.bool_)
        part[rows] = True
        self.paths = _with(before, rows, trace_paths(self.traffic.take(part), fabric))
        return before, rows[_differ(before, self.paths, rows)]

    def grow(self, traffic: Traffic) -> tuple[TracedPaths, Ints]:
        """Take over the traffic of now, whose first rows are those of before, and walk the new
        rows: (the paths before, without links in these rows; the new rows)."""
        old, n = len(self.traffic), len(traffic)
        self.traffic = replace(traffic, windows=None, messages=None, seen=None)
        rows = np.arange(old, n)
        if not len(rows):
            return self.paths, rows
        before = _fitted(self.paths, n, self.paths.placement.links.shape[1])
        part = trace_paths(self.traffic.take(rows), self._state.fabric)
        self.paths = _with(before, rows, part)
        return before, rows

    @property
    def complete(self) -> Bools:
        """bool[units]: whether the path is known to the destination."""
        return ~self.paths.placement.dropped

    def fim_percent(self) -> float | None:
        """FIM of flows of the least even layer, over complete paths."""
        complete = self.complete
        if not complete.any():
            return None
        placement = Placement(self.paths.placement.links[complete], ~complete[complete])
        placed = Outcome(self.traffic.take(complete), placement, {})
        return result_of("now", placed, self._state.fabric, known=NO_CHANCES).fim_percent


_EMPTY = -1, True, 0, 0, -1, False
"""In each column of paths, where there are none."""


def _columns(paths: TracedPaths) -> tuple[Array, ...]:
    return *paths.placement, *paths[1:]


def _fitted(paths: TracedPaths, units: int, hops: int) -> TracedPaths:
    """A copy of the paths with so many rows and hops."""
    fitted: list[Array] = []
    for column, empty in zip(_columns(paths), _EMPTY, strict=True):
        wide = np.full((units, hops)[: column.ndim], empty, column.dtype)
        wide[tuple(map(slice, column.shape))] = column
        fitted.append(wide)
    links, dropped, *rest = fitted
    return TracedPaths(Placement(links, dropped), *rest)


def _with(before: TracedPaths, rows: Ints, part: TracedPaths) -> TracedPaths:
    """The paths with other ones in some rows."""
    hops = max(before.placement.links.shape[1], part.placement.links.shape[1])
    after = _fitted(before, len(before.reason), hops)
    for column, new in zip(_columns(after), _columns(_fitted(part, len(rows), hops)), strict=True):
        column[rows] = new
    return after


def _differ(before: TracedPaths, after: TracedPaths, rows: Ints) -> Bools:
    """bool[n]: whether these rows have another path, or end for another reason."""
    new = after.placement.links
    old = _fitted(before, *new.shape).placement.links
    differing: Bools = (old[rows] != new[rows]).any(1) | (before.reason[rows] != after.reason[rows])
    return differing
