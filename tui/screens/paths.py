"""Screen 4: the load of each flow on each path, as share over fair share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from os.path import commonprefix
from textwrap import wrap
from typing import TYPE_CHECKING

import numpy as np
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.widgets import Static

from ...analyzer.measures.spraying import coefficient_of_variation, fim
from ...analyzer.statistics.shares import jain, width
from ...report import human
from ...report.verdicts import SPRAYS_FROM_WIDTH
from ..grid import Cell, Grid, GridColumn
from ..host import FlowSelected
from ..session import words
from ..session.matrix import (
    LEGEND,
    MEASURES,
    ROWS,
    SMALL_CELL,
    Matrix,
    cell_width,
    heat,
    heat_cell,
    path_matrix,
)
from ..session.snapshot import TRACED, Snapshot
from .base import RoceScreen, own_bindings
from .mrc import plane_line
from .qps import compare_marked

if TYPE_CHECKING:
    from ..session.placed import Placed

_BY = {
    "entropy": "port", "tap": "tap", "srv6": "segments", "plane": "plane", "fabric": "replay",
}  # fmt: skip
"""The path keys in words."""
_BESIDE = 20
"""Terminal columns beside the name and the map: load and width."""
ONLY = "■"
"""The only path of a flow, where most traffic is not sprayed."""
NUMBERED = "p0"
"""Heads the first of many paths: the legend names them."""
_ALIKE = 0.05
"""Percent: fair shares that differ by less are shown as one value."""


class PathsScreen(RoceScreen):
    """The heat map."""

    name_ = "paths"
    spare_of = "#heat"
    of_record = False
    BINDINGS = own_bindings("paths")

    def __init__(self) -> None:
        super().__init__()
        self._rows = ROWS[0]
        self._measure = MEASURES[0]
        self._matrix: Matrix | None = None
        self._sprayed = False
        """Whether most bytes shown are sprayed."""
        self._cell = SMALL_CELL
        self._drawn: Placed | None = None
        self._lines = 0
        """Of the legend, but one."""

    def body(self) -> ComposeResult:
        grid = Grid((), id="heat")
        yield grid
        yield Static(id="legend")

    def on_mount(self) -> None:
        self.set_interval(0.25, self._while_tracing)

    def _while_tracing(self) -> None:
        """Show traced links as soon as they are there, and whenever switches move flows."""
        view = self.view
        if self.is_current and view.path_key == "fabric" and view.placed() is not self._drawn:
            self.redraw()

    def draw(self, snapshot: Snapshot) -> str:
        shown = self.view
        if shown.traced_on is not None:
            shown.replays  # noqa: B018 - its first use begins to trace
        self._drawn = shown.placed()
        paths = shown.paths()
        wide = self.size.width
        name = 42 if wide >= 110 else 34 if wide >= 90 else 30
        room = max(4 * SMALL_CELL, wide - name - _BESIDE - 4)
        flows, most = shown.shown_flows(), room // SMALL_CELL
        matrix = path_matrix(snapshot, paths, flows, self._rows, self._measure, most)
        self._matrix = matrix
        sprays = paths.width[flows] >= SPRAYS_FROM_WIDTH
        sizes = snapshot.flows.wire_bytes[flows]
        self._sprayed = bool(2 * sizes[sprays].sum() > sizes.sum())
        names = _stems(matrix.labels)
        self._cell = cell_width(len(names), room, max(map(len, names), default=0))
        heads = matrix.labels if matrix.by_place else _heads(names, self._cell - 1)
        grid = self.query_one("#heat", Grid)
        grid.set_columns(
            (
                GridColumn(
                    "name", f"{self._rows.upper()} ({len(matrix.first_flow)})", name, ends=True
                ),
                GridColumn("map", _header(heads, self._cell), len(heads) * self._cell),
                GridColumn("load", self._measure.upper(), 9, True),
                GridColumn("width", "WIDTH", 9, True, 1),
            )
        )
        grid.empty = self.what_next(snapshot)
        grid.show(len(matrix.first_flow), lambda row: self._cells(matrix, row))
        at = snapshot.find(shown.session.selected)
        where = np.flatnonzero(matrix.first_flow == (-1 if at is None else at))
        if len(where):
            grid.put_cursor(int(where[0]))
        totals, fair = matrix.loads.sum(axis=0), matrix.fair.sum(axis=0)
        legend = self._legend(matrix, paths.trust, paths.by)
        if snapshot.mrc is not None:
            legend.append("\n").append_text(plane_line(snapshot.mrc, snapshot.start_ns))
        if heads[:1] == [NUMBERED]:
            named = " ".join(f"{head}={name}" for head, name in zip(heads, names, strict=True))
            for line in wrap(named, wide - 2, break_on_hyphens=False):
                legend.append(f"\n {line}")
        lines = legend.plain.count("\n")
        self.query_one("#legend", Static).update(legend, layout=lines != self._lines)
        self._lines = lines
        if not len(matrix.first_flow):
            return words.queue_pairs(snapshot, paths)
        if not totals.any():
            return f"No packet is {'late' if self._measure == 'late' else 'marked CE'}."
        if paths.by == "entropy" and not sprays.any():
            data = snapshot.carries_data()
            if over := words.over_taps(snapshot, paths, data):
                spray = human.counted(over, "flow sprays", "flows spray")
                return f"{spray} over several taps (p); source ports only hint at paths."
            return "No flow sprays: the columns are source ports, which only hint at paths."
        if matrix.by_place:
            return words.own_paths(paths, flows)
        top = words.busiest(totals, fair)
        heaviest = int(np.argmax(matrix.loads[:, top]))
        part = float(matrix.loads[heaviest, top]), float(matrix.fair[heaviest, top])
        labels = [label.split(".pcap")[0] for label in matrix.labels]
        return words.busiest_path(labels, totals, fair, (matrix.name(heaviest), *part))

    def _cells(self, matrix: Matrix, row: int) -> Sequence[Cell]:
        loads, fair = matrix.loads[row], matrix.fair[row]
        total = loads.sum()
        nothing = f"{'·':>{self._cell - 1}} ", "dim"
        cells = [
            heat_cell(load / even, self._cell) if even else nothing
            for load, even in zip(loads, fair, strict=True)
        ]
        if not self._sprayed and np.count_nonzero(loads) == 1:
            # A flow on one path is no fault where most traffic is not sprayed.
            only = f"{ONLY:>{self._cell - 1}} ", "accent"
            cells = [only if load else nothing for load in loads]
        spread = width(loads) if total else 0.0
        of = int(np.count_nonzero(fair)) if total else len(loads)
        if matrix.by_place and self._rows == "QP":
            flow, paths = int(matrix.first_flow[row]), self.view.paths()
            spread, of = float(paths.width[flow]), int(paths.seen()[flow])
        return (
            matrix.name(row),
            cells,
            human.size(total) if self._measure == "bytes" else human.count(int(total)),
            f"{spread:.1f}/{of}",
        )

    def _legend(self, matrix: Matrix, trust: str, by: str) -> Text:
        text = Text(no_wrap=True, overflow="ellipsis")
        totals = matrix.loads.sum(axis=0)
        if len(totals) and totals.sum():
            name = self.query_one("#heat", Grid).columns[0].width
            text.append(f"  {f'all, % of {self._measure}':<{name}} ", "bold")
            for load in totals:
                share = f"{100 * load / totals.sum():.{0 if self._cell < 6 else 1}f}"
                text.append(f"{share:>{self._cell - 1}} ")
            possible = matrix.fair.any(axis=0)
            totals, fair = totals[possible], matrix.fair.sum(axis=0)[possible]
            low, high = 100 * fair.min() / fair.sum(), 100 * fair.max() / fair.sum()
            even = f"{high:.3g}" if high - low < _ALIKE else f"{low:.3g} to {high:.3g}"
            text.append(f" fair {even} %\n", "dim")
            over = totals / fair
            text.append(f"  busiest {totals.max() / fair.max():.2f} (fair 1.00)")
            text.append(f"   CV {coefficient_of_variation(over):.2f} (0)")
            text.append(f"   FIM {fim(totals, fair) or 0:.1f} % (0)   Jain {jain(over):.2f} (1)\n")
        else:
            text.append("\n\n")
        text.append(" x fair: ", "dim")
        for ratio, word in LEGEND:
            glyph, _ = heat(ratio)
            text.append(f"{glyph.strip()} ", "bold")
            text.append(f"{word} ", "dim")
        if not self._sprayed:
            text.append(f"{ONLY} ", "bold").append("only path ", "dim")
        text.append(f" {trust}" if trust == TRACED else f" {trust} by {_BY[by]}", "dim")
        return text

    @on(Grid.Moved, "#heat")
    def _moved(self, event: Grid.Moved) -> None:
        if self._matrix is not None and event.row < len(self._matrix.first_flow):
            flow = int(self._matrix.first_flow[event.row])
            self.post_message(FlowSelected(self.view.snapshot.key(flow)))

    def action_deeper(self) -> None:
        self.host.go("reorder")

    def action_measure(self) -> None:
        self._measure = MEASURES[(MEASURES.index(self._measure) + 1) % len(MEASURES)]
        self.redraw()

    def action_rows(self) -> None:
        self._rows = ROWS[(ROWS.index(self._rows) + 1) % len(ROWS)]
        self.redraw()

    def action_compare(self) -> None:
        compare_marked(self.host)


def _header(heads: Sequence[str], cell: int) -> str:
    return "".join(f"{head[1 - cell :]:>{cell - 1}} " for head in heads)


def _heads(names: list[str], width: int) -> list[str]:
    """The names of the paths if they fit, else short forms that still differ, else numbers."""
    initials = [re.sub(r"([a-z])[a-z-]*(\d+)", r"\1\2", name) for name in names]  # l1>s3
    for heads in (names, initials):
        if max(map(len, heads), default=0) <= width and len(set(heads)) == len(heads):
            return heads
    stems = {name.rstrip("0123456789") for name in names}
    numbers = [re.sub(r".*?(\d*)$", r"\1", name)[-width:] for name in names]
    if len(stems) == 1 and len(set(numbers)) == len(numbers):
        return numbers
    return [NUMBERED, *(f"p{i}" if i < 10 else str(i) for i in range(1, len(names)))]


def _stems(labels: list[str]) -> list[str]:
    """The names without their common prefix and suffix, cut at word boundaries."""
    if len(labels) < 2 or any(label.isdigit() for label in labels):
        return labels
    stems = [label.split(".pcap")[0] for label in labels]
    if len(set(stems)) < len(stems):
        return labels
    common = re.match(r".*[-/_>]", commonprefix(stems))
    return [stem[common.end() :] for stem in stems] if common else stems
