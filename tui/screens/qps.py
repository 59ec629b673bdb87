"""Screen 2: every flow with its rate, spraying and losses; marked flows side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from rich.table import Table
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.widgets import Static

from ...analyzer.results.base import Fact
from ...analyzer.wire.bth import TRANSPORT_NAMES
from ...kernels.kernel import Array, Ints
from ...report import human
from ...report.human import UNICODE
from ...report.terminal.ranks import ranks_of_owner
from ..grid import Cell, Grid, GridColumn
from ..host import FlowSelected, Host
from ..session import words
from ..session.snapshot import MRC_FACTS, UNKNOWN, MrcColumns, MrcFact, PathColumns, Snapshot
from ..settings import (
    COLUMNS,
    DECLARED,
    FEW_BARS,
    LONG_LINE,
    MANY_BARS,
    MAX_BARS,
    MRC_COLUMNS,
    RANKS,
)
from ..strips import Axis, flow_lines, late_line
from .base import RoceScreen, own_bindings
from .prompts import Asking

# The cells of one flow, and the line of its paths.


def count(value: int) -> str:
    """A count; `?` if it is unknown."""
    return human.UNKNOWN if value == UNKNOWN else human.count(value)


def path_line(paths: PathColumns, f: int) -> Text:
    """The flow's busiest paths, and its fair share: an equal part for each path."""
    rows = paths.of(f)
    loads = paths.wire_bytes[rows]
    text = Text(f"{'its paths':>16} ", "dim", no_wrap=True, overflow="ellipsis")
    if paths.counts is not None:
        return text.append("results have no paths")
    if not len(loads) or not loads.sum():
        return text.append("none")
    for row in np.argsort(-loads, kind="stable")[:6]:
        text.append(f"{paths.name(int(paths.key[rows][row]))} ", "bold not dim")
        text.append(f"{human.percent(loads[row] / loads.sum())}  ", "not dim")
    if len(loads) > 6:
        text.append(f"and {len(loads) - 6} more  ")
    return text.append(f"fair {human.percent(1 / len(loads))}, {paths.trust}")


def flow_cells(
    snapshot: Snapshot, paths: PathColumns, f: int, bars: int = MAX_BARS, line: int = MAX_BARS
) -> Sequence[Cell]:
    """One row, in the order of COLUMNS; `bars`, `line`: widths of the spray bars and sparkline."""
    flows = snapshot.flows
    rows = paths.of(f)
    seen = rows.stop - rows.start if paths.counts is None else int(paths.counts[f])
    late, arrivals = int(flows.late[f]), int(flows.arrivals[f])
    naks = int(flows.naks[f] + flows.rnr_naks[f])
    ce = int(flows.ecn_marked[f])
    width = float(paths.width[f]) if f < len(paths.width) else 0.0
    activity: Cell = ""
    if f < snapshot.activity.shape[1] if snapshot.activity.ndim == 2 else False:
        activity = (UNICODE.sparkline(snapshot.activity[:, f].tolist(), line), "accent")
    return (
        snapshot.addresses[flows.src[f]],
        snapshot.addresses[flows.dst[f]],
        human.queue_pair(int(flows.qp[f])),
        state(snapshot, f),
        TRANSPORT_NAMES[flows.transport[f]],
        human.rate(float(flows.rate[f])).removesuffix("b/s").rstrip() or "0",
        human.count(int(flows.packets[f])),
        human.size(int(flows.wire_bytes[f])).removesuffix("B").rstrip(),
        str(int(np.count_nonzero(paths.packets[rows])) if paths.counts is None else seen),
        f"{width:.1f}/{seen}",
        (spray(paths, f, bars), "accent"),
        share(late, arrivals),
        bad(int(flows.max_extent[f]) if late > 0 else late),
        *(declared(fact, int(flows.counts_of(fact)[f])) for fact in DECLARED),
        bad(naks),
        bad(int(flows.cnps[f])),
        share(ce, int(flows.packets[f])),
        activity,
    )


def mrc_cells(mrc: MrcColumns, f: int) -> list[Cell]:
    """Cells of one flow, in the order of MRC_COLUMNS; empty without MRC data."""
    if mrc.values[f] == UNKNOWN:
        return [("·", "dim")] * len(MRC_FACTS)
    return [_mrc_cell(fact, int(getattr(mrc, fact.name)[f])) for fact in MRC_FACTS]


def _mrc_cell(fact: MrcFact, value: int) -> Cell:
    if value == UNKNOWN:
        return (human.UNKNOWN, "dim")
    return bad(value) if fact.is_trouble else human.count(value)


def state(snapshot: Snapshot, f: int) -> Cell:
    """The worst finding that hit the flow."""
    rank, name = snapshot.judged.states.get(f, (0, ""))
    return name, "" if rank <= 1 else "warn" if rank == 2 else "bad"


def bad(value: int) -> Cell:
    """A count that should be 0."""
    return (count(value), "bad") if value > 0 else (count(value), "dim")


def declared(fact: Fact, value: int) -> Cell:
    """A count of a declared column."""
    return bad(value) if fact.is_trouble else count(value)


def share(part: int, of: int) -> Cell:
    """A share in percent that should be 0."""
    if part == UNKNOWN:
        return (human.UNKNOWN, "dim")
    if part == 0:
        return ("0", "dim")
    percent = 100 * part / max(of, 1)
    return (f"{percent:.2f}" if percent >= 0.01 else "<0.01", "bad" if percent >= 1 else "warn")


def spray(paths: PathColumns, f: int, bars: int = MAX_BARS) -> str:
    """One bar per path in the order of their keys, height relative to the busiest."""
    rows = paths.of(f)
    loads = paths.wire_bytes[rows]
    if len(loads) > bars:  # sums of neighbours
        edges = np.arange(bars) * len(loads) // bars
        loads = np.add.reduceat(loads, edges)
    if not len(loads):
        return ""
    return UNICODE.columns(loads.tolist()).replace(" ", "·")


# The marked flows side by side, one per column.

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


WIDE, TALL = 100, 36
"""From this width on rows have more bars; from this height on the flow has more details."""

Values = Callable[[Snapshot, PathColumns], Array]


def _by(fact: Fact) -> Values:
    return lambda s, p: s.flows.counts_of(fact)


_SORTS: dict[str, Values] = {
    "src": lambda s, p: s.flows.src,
    "dst": lambda s, p: s.flows.dst,
    "qp": lambda s, p: s.flows.qp,
    "state": lambda s, p: s.trouble(),
    "transport": lambda s, p: s.flows.transport,
    "rate": lambda s, p: s.flows.rate,
    "packets": lambda s, p: s.flows.packets,
    "bytes": lambda s, p: s.flows.wire_bytes,
    "paths": lambda s, p: p.used(),
    "width": lambda s, p: p.width,
    "late": lambda s, p: s.flows.late / np.maximum(s.flows.arrivals, 1),
    "extent": lambda s, p: s.flows.max_extent,
    **{fact.key: _by(fact) for fact in DECLARED},
    "naks": lambda s, p: s.flows.naks + s.flows.rnr_naks,
    "cnps": lambda s, p: s.flows.cnps,
    "ce": lambda s, p: s.flows.ecn_marked / np.maximum(s.flows.packets, 1),
    "ranks": lambda s, p: _senders(s),
}


def _senders(snapshot: Snapshot) -> Array:
    """The sending rank of each flow; -1 where it is not known."""
    senders = np.full(len(snapshot.flows), -1, np.int64)
    for flow, owner in snapshot.owners.items():
        sender, _ = owner.ranks
        senders[flow] = -1 if sender is None else sender
    return senders


_KEYS = [column.key for column in COLUMNS]
_MRC_NAMES = {fact.key: fact.name for fact in MRC_FACTS}
_WITHOUT_MRC = ("resent", "naks", "cnps")
"""Columns of other transports: hidden when all data is MRC."""


def _sorted_by(key: str, snapshot: Snapshot, paths: PathColumns) -> Array:
    """The values of a column; those of MRC are all the same where there is none."""
    if key in _SORTS:
        return _SORTS[key](snapshot, paths)
    if snapshot.mrc is None:
        return np.zeros(len(snapshot.flows))
    values: Array = getattr(snapshot.mrc, _MRC_NAMES[key])
    return values


class QpsScreen(RoceScreen):
    """The table of flows."""

    name_ = "qps"
    BINDINGS = own_bindings("qps")

    def __init__(self) -> None:
        super().__init__()
        self._columns: tuple[GridColumn, ...] = ()
        self._bars, self._line = MAX_BARS, LONG_LINE
        self._order: Ints = np.zeros(0, np.int64)

    def body(self) -> ComposeResult:
        grid = Grid(COLUMNS, id="flows")
        grid.sorted_by = "state"
        yield grid
        yield Static(id="detail")

    def draw(self, snapshot: Snapshot) -> str:
        shown = self.view
        grid = self.query_one("#flows", Grid)
        paths = shown.paths()
        visible = shown.shown_flows()
        self.set_class(self.size.height >= TALL, "tall")
        self._columns = self._wanted(snapshot)
        bars = FEW_BARS if self.size.width < WIDE else MAX_BARS
        grid.set_columns(shaped(self._columns, snapshot, paths, bars))
        self._bars = grid.width_of("spray") or MAX_BARS
        self._line = grid.width_of("activity") or LONG_LINE
        values = _sorted_by(grid.sorted_by, snapshot, paths)[visible]
        order = visible[np.argsort(values, kind="stable")]
        self._order = order[::-1] if grid.descending else order
        marks = shown.session.marks.flows
        grid.empty = self.what_next(snapshot)
        grid.show(
            len(self._order),
            lambda row: self._cells(snapshot, paths, int(self._order[row])),
            lambda row: "*" if marks and snapshot.key(int(self._order[row])) in marks else " ",
        )
        at = snapshot.find(shown.session.selected) if shown.chosen else None
        where = np.flatnonzero(self._order == (-1 if at is None else at))
        if len(where):
            grid.put_cursor(int(where[0]))
        elif len(self._order):
            row = grid.cursor if shown.chosen else 0
            grid.put_cursor(row)
            key = snapshot.key(int(self._order[row]))
            if shown.select(key):
                self.post_message(FlowSelected(key, False))
        self._detail(snapshot)
        text = words.queue_pairs(snapshot, paths, shown.session.passing(snapshot))
        if shown.session.filter_text:
            text = f"/ {shown.session.filter_text} ({len(self._order)}): {text}"
        return text

    def _cells(self, snapshot: Snapshot, paths: PathColumns, flow: int) -> Sequence[Cell]:
        cells = flow_cells(snapshot, paths, flow, self._bars, self._line)
        known = dict(zip(_KEYS, cells, strict=True))
        known["ranks"] = ranks_of_owner(snapshot.owners.get(flow))
        if snapshot.mrc is not None:
            known |= zip(_MRC_NAMES, mrc_cells(snapshot.mrc, flow), strict=True)
        return [known[column.key] for column in self._columns]

    def _wanted(self, snapshot: Snapshot) -> tuple[GridColumn, ...]:
        """The columns of the settings; those of MRC where it is, in the place of others' losses."""
        mrc = snapshot.mrc
        there: tuple[GridColumn, ...] = COLUMNS
        if mrc is not None:
            alone = bool((mrc.values[snapshot.carries_data()] != UNKNOWN).all())
            others = [c for c in COLUMNS if not (alone and c.key in _WITHOUT_MRC)]
            at = 1 + [c.key for c in others].index("extent")
            there = (*others[:at], *MRC_COLUMNS, *others[at:])
        if any(owner.ranks != (None, None) for owner in snapshot.owners.values()):
            at = 1 + [c.key for c in there].index("qp")
            there = (*there[:at], RANKS, *there[at:])
            # Where not all fit, the rate gives way to the ranks, not what was retransmitted.
            there = tuple(c._replace(priority=2) if c.key == "rate" else c for c in there)
        names = self.view.columns
        return tuple(c for c in there if not names or c.key in names)

    def _detail(self, snapshot: Snapshot) -> None:
        shown = self.view
        at = snapshot.find(shown.session.selected)
        panel = self.query_one("#detail", Static)
        if at is None:
            panel.update("")
            return
        flows = snapshot.flows
        first = Text(f" {human.queue_pair(int(flows.qp[at]))}", "bold")
        mtu = int(flows.path_mtu[at])
        first.append(f"  {TRANSPORT_NAMES[flows.transport[at]]}", "")
        first.append(f", path MTU {mtu}" if mtu else ", path MTU unknown")
        peer = int(flows.peer[at])
        first.append(
            f", peer {human.queue_pair(int(flows.qp[peer]))}" if peer >= 0 else ", unpaired"
        )
        focus = shown.record
        second = Text(" ")
        comment = shown.session.marks.flows.get(snapshot.key(at))
        if comment:
            second.append(f"; {comment}  ", "yellow")
        if at in snapshot.owners:
            second.append(f"{human.owner(snapshot.owners[at])}  ", "cyan")
        if focus is not None and focus.dest_qp == int(flows.qp[at]):
            done = focus.message_statistics.completion_ns
            second.append(f"{human.counted(focus.messages, 'message')}")
            second.append(self.record_span(), "dim")
            if done and done.count:
                second.append(
                    f" completed in {human.duration(done.p50)}, p99 {human.duration(done.p99)}"
                )
            if focus.notes:
                second.append(f"  {focus.notes[0]}", "dim")
        lines = [first, second]
        tall = self.size.height >= TALL
        lines += self._over_time(snapshot, at, tall)
        if tall:
            lines.append(path_line(shown.paths(), at))
        panel.update(Text("\n").join(lines), layout=False)

    def _over_time(self, snapshot: Snapshot, at: int, tall: bool) -> list[Text]:
        """The flow's bytes, and late packets where there is room, on one time axis."""
        lines = flow_lines(snapshot, snapshot.key(at), self.size.width - 2)
        if tall and int(snapshot.flows.late[at]) > 0:
            lines.append(late_line(snapshot, at, self.size.width - 2))
        if lines:
            axis = Axis.of(snapshot, self.size.width - 2)
            lines.append(axis.numbers(self.clock(snapshot)))
        return lines

    def draw_record(self) -> None:
        self._detail(self.view.snapshot)

    @on(Grid.Moved, "#flows")
    def _moved(self, event: Grid.Moved) -> None:
        if event.row < len(self._order):
            key = self.view.snapshot.key(int(self._order[event.row]))
            self.view.select(key)
            self.post_message(FlowSelected(key))
            self._detail(self.view.snapshot)

    @on(Grid.HeaderClicked, "#flows")
    def _clicked(self, event: Grid.HeaderClicked) -> None:
        grid = event.grid
        if event.key in _SORTS or event.key in _MRC_NAMES:
            if grid.sorted_by == event.key:
                grid.descending = not grid.descending
            grid.sorted_by = event.key
            self.redraw()

    def action_deeper(self) -> None:
        self.host.go("packets")

    def action_sort(self, step: int = 1) -> None:
        grid = self.query_one("#flows", Grid)
        # Only by visible columns: the sort key must be seen.
        names = [key for key in (*_SORTS, *_MRC_NAMES) if grid.width_of(key)]
        if grid.sorted_by not in names:
            names.append(grid.sorted_by)
        grid.sorted_by = names[(names.index(grid.sorted_by) + step) % len(names)]
        self.redraw()

    def action_sort_back(self) -> None:
        self.action_sort(-1)

    def action_reverse(self) -> None:
        grid = self.query_one("#flows", Grid)
        grid.descending = not grid.descending
        self.redraw()

    def action_compare(self) -> None:
        compare_marked(self.host)


def shaped(
    columns: Sequence[GridColumn], snapshot: Snapshot, paths: PathColumns, least: int
) -> list[GridColumn]:
    """The columns, as wide as addresses and paths need; at least `least` bars, if paths suffice."""
    address = max(map(len, snapshot.addresses), default=10)
    most = int(paths.seen().max(initial=0))
    bars = max(5, min(least, most))
    fitted = []
    for column in columns:
        if column.key in ("src", "dst"):
            column = column._replace(most=max(column.width, address))
        elif column.key == "spray":
            column = column._replace(width=bars, most=max(bars, min(MANY_BARS, most)))
        fitted.append(column)
    return fitted
