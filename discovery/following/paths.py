"""Traced paths of which only those through changed switches are walked again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...kernels.kernel import Array, Bools, Int32s, Ints
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

    def again(self, switches: Sequence[str]) -> tuple[TracedPaths, Ints]:
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
        before = _longer(self.paths, n)
        part = trace_paths(self.traffic.take(rows), self._state.fabric)
        self.paths = _with(before, rows, part)
        return before, rows

    @property
    def complete(self) -> Bools:
        """bool[units]: whether the path is known to the destination."""
        return ~self.paths.placement.dropped

    def fim_percent(self) -> float | None:
        """FIM of flows of the least even layer, over complete paths."""
        whole = self.complete
        if not whole.any():
            return None
        placement = Placement(self.paths.placement.links[whole], ~whole[whole])
        placed = Outcome(self.traffic.take(whole), placement, {})
        return result_of("now", placed, self._state.fabric, known=NO_CHANCES).fim_percent


def _with(before: TracedPaths, rows: Ints, part: TracedPaths) -> TracedPaths:
    """The paths with other ones in some rows."""
    hops = max(before.placement.links.shape[1], part.placement.links.shape[1])
    columns: list[Array] = []
    for old, new, empty in (
        (before.placement.links, part.placement.links, -1),
        (before.evidence, part.evidence, 0),
    ):
        column = np.full((len(old), hops), empty, old.dtype)
        column[:, : old.shape[1]] = old
        column[rows] = empty
        column[rows, : new.shape[1]] = new
        columns.append(column)
    links, evidence = columns
    single: list[Array] = []
    flat: tuple[tuple[Array, Array], ...] = (
        (before.placement.dropped, part.placement.dropped),
        (before.reason, part.reason),
        (before.switch, part.switch),
        (before.contradicted, part.contradicted),
    )
    for old, new in flat:
        column = old.copy()
        column[rows] = new
        single.append(column)
    dropped, *rest = single
    return TracedPaths(Placement(links, dropped), evidence, *rest)


def _longer(paths: TracedPaths, n: int) -> TracedPaths:
    """The paths with more rows, without links."""

    def more(column: Array, empty: int) -> Array:
        rows = np.full((n - len(column), *column.shape[1:]), empty, column.dtype)
        return np.concatenate([column, rows])

    placement = Placement(more(paths.placement.links, -1), more(paths.placement.dropped, 1))
    return TracedPaths(
        placement,
        more(paths.evidence, 0),
        more(paths.reason, 0),
        more(paths.switch, -1),
        more(paths.contradicted, 0),
    )


def _differ(before: TracedPaths, after: TracedPaths, rows: Ints) -> Bools:
    """bool[n]: whether these rows have another path, or end for another reason."""
    old, new = (_wide(paths.placement.links[rows], after) for paths in (before, after))
    found: Bools = (old != new).any(1) | (before.reason[rows] != after.reason[rows])
    return found


def _wide(links: Int32s, like: TracedPaths) -> Int32s:
    wide = np.full((len(links), like.placement.links.shape[1]), -1, np.int32)
    wide[:, : links.shape[1]] = links
    return wide
