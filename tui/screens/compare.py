"""The marked flows side by side, one per column."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.widgets import Static

from ...report.words import human
from ..flow_columns import COLUMNS
from ..host import Host
from ..session.snapshots.snapshot import PathColumns, Snapshot
from .flow_row import flow_cells
from .prompts import Asking

MOST = 4
_WORDS = {
    "qp": "QP",
    "rate": "Rate, b/s",
    "spray": "Spray (bar=path)",
    "extent": "Extent",
    "resent": "Retransmitted",
    "naks": "NAKs",
    "cnps": "CNPs",
    "ce": "CE %",
}
"""Full names of abbreviated columns."""


class CompareScreen(Asking[None]):
    """Up to four flows."""

    BINDINGS = [Binding("escape,c,q", "dismiss", show=False)]

    def __init__(self, snapshot: Snapshot, paths: PathColumns, flows: list[int]) -> None:
        super().__init__()
        self._snapshot, self._paths, self._flows = snapshot, paths, flows[:MOST]

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="help"):
            yield Static(self._table())

    def _table(self) -> Table:
        table = Table(box=None, padding=(0, 2, 0, 0))
        table.add_column("")
        cells = [flow_cells(self._snapshot, self._paths, f) for f in self._flows]
        for f in self._flows:
            table.add_column(human.queue_pair(int(self._snapshot.flows.qp[f])), justify="right")
        for index, column in enumerate(COLUMNS):
            shown = [row_cells[index] for row_cells in cells]
            values = [cell if isinstance(cell, str) else str(cell[0]) for cell in shown]
            differ = len(set(values)) > 1
            row = [Text(value, "bold" if differ else "dim") for value in values]
            table.add_row(_WORDS.get(column.key, column.title.capitalize()), *row)
        return table


def compare_marked(host: Host) -> None:
    """Show the marked flows side by side."""
    view = host.view
    marked = [f for f in map(view.snapshot.find, view.session.marks.flows) if f is not None]
    if len(marked) < 2:
        host.notify("Mark two flows with m, then compare them with c")
        return
    host.push_screen(CompareScreen(view.snapshot, view.paths(), marked))
