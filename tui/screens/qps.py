"""Screen 1: every flow, its rate, how it sprays and what went wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.widgets import Static

from ...analyzer.wire.opcodes import TRANSPORT_NAMES
from ...report.words import human
from ...report.words.human import UNICODE
from ..messages import FlowSelected
from ..session import sentences
from ..session.snapshot import UNKNOWN, PathColumns, Snapshot
from ..widgets.flow_lines import flow_lines, late_line
from ..widgets.grid import Grid
from ..widgets.grid_columns import Cell, GridColumn
from .base import RoceScreen, own_bindings
from .mrc_columns import MRC_COLUMNS, MRC_VALUES, OTHERS, mrc_cells

FEW_BARS, MAX_BARS, MANY_BARS = 8, 16, 64
"""Bars of a flow's paths where there is little room, some and much."""
LONG_LINE = 60
"""Most columns of a sparkline."""
WIDE, TALL = 100, 36
"""From this width on there is room for more bars, from this height on for more of the flow."""

COLUMNS = (
    GridColumn("src", "SOURCE", 10, grows=True, ends=True),
    GridColumn("dst", "DESTINATION", 11, grows=True, ends=True),
    GridColumn("qp", "QP", 8),
    GridColumn("transport", "TYPE", 4, priority=9),
    GridColumn("rate", "b/s", 7, True),
    GridColumn("packets", "PACKETS", 8, True, 5),
    GridColumn("bytes", "BYTES", 7, True, 7),
    GridColumn("paths", "PATHS", 5, True, 6),
    GridColumn("width", "WIDTH", 7, True),
    GridColumn("spray", "SPRAY (bar=path)", MAX_BARS, priority=2, grows=True),
    GridColumn("late", "LATE %", 6, True),
    GridColumn("extent", "EXT", 5, True, 4),
    GridColumn("resent", "RESENT", 6, True, 1),
    GridColumn("lost", "LOST", 5, True, 6),
    GridColumn("missing", "MISSING", 7, True, 7),
    GridColumn("naks", "NAK", 4, True, 3),
    GridColumn("cnps", "CNP", 5, True, 4),
    GridColumn("ce", "CE %", 6, True, 8),
    GridColumn("activity", "BYTES OVER TIME", 16, priority=10, grows=True, most=LONG_LINE),
)

Values = Callable[[Snapshot, PathColumns], NDArray[Any]]
_SORTS: dict[str, Values] = {
    "src": lambda s, p: s.flows.src,
    "dst": lambda s, p: s.flows.dst,
    "qp": lambda s, p: s.flows.qp,
    "transport": lambda s, p: s.flows.transport,
    "rate": lambda s, p: s.flows.rate,
    "packets": lambda s, p: s.flows.packets,
    "bytes": lambda s, p: s.flows.wire_bytes,
    "paths": lambda s, p: p.seen(),
    "width": lambda s, p: p.width,
    "late": lambda s, p: s.flows.late / np.maximum(s.flows.arrivals, 1),
    "extent": lambda s, p: s.flows.max_extent,
    "resent": lambda s, p: s.flows.retransmitted,
    "lost": lambda s, p: s.flows.recovered,
    "missing": lambda s, p: s.flows.missing,
    "naks": lambda s, p: s.flows.naks + s.flows.rnr_naks,
    "cnps": lambda s, p: s.flows.cnps,
    "ce": lambda s, p: s.flows.ecn_marked / np.maximum(s.flows.packets, 1),
}


_KEYS = [column.key for column in COLUMNS]


def _sorted_by(key: str, snapshot: Snapshot, paths: PathColumns) -> NDArray[Any]:
    """The values of a column; those of MRC are all the same where there is none."""
    if key in _SORTS:
        return _SORTS[key](snapshot, paths)
    return np.zeros(len(snapshot.flows)) if snapshot.mrc is None else MRC_VALUES[key](snapshot.mrc)


class QpsScreen(RoceScreen):
    """The table of flows."""

    name_ = "qps"
    BINDINGS = own_bindings("qps")

    def __init__(self) -> None:
        super().__init__()
        self._columns: tuple[GridColumn, ...] = ()
        self._bars, self._line = MAX_BARS, LONG_LINE
        self._order: NDArray[np.int64] = np.zeros(0, np.int64)

    def body(self) -> ComposeResult:
        grid = Grid(COLUMNS, id="flows")
        grid.sorted_by = "rate"
        yield grid
        yield Static(id="detail")

    def draw(self, snapshot: Snapshot) -> str:
        app = self.roce
        grid = self.query_one("#flows", Grid)
        paths = app.paths()
        visible = app.shown_flows()
        self.set_class(self.size.height >= TALL, "tall")
        self._columns = self._wanted(snapshot)
        bars = FEW_BARS if self.size.width < WIDE else MAX_BARS
        grid.set_columns(shaped(self._columns, snapshot, paths, bars))
        self._bars = grid.width_of("spray") or MAX_BARS
        self._line = grid.width_of("activity") or LONG_LINE
        values = _sorted_by(grid.sorted_by, snapshot, paths)[visible]
        order = visible[np.argsort(values, kind="stable")]
        self._order = order[::-1] if grid.descending else order
        marks = app.session.marks.flows
        grid.empty = self.what_next(snapshot)
        grid.show(
            len(self._order),
            lambda row: self._cells(snapshot, paths, int(self._order[row])),
            lambda row: "*" if marks and snapshot.key(int(self._order[row])) in marks else " ",
        )
        at = snapshot.find(app.session.selected) if app.chosen else None
        where = np.flatnonzero(self._order == (-1 if at is None else at))
        if len(where):
            grid.put_cursor(int(where[0]))
        elif len(self._order):
            row = grid.cursor if app.chosen else 0
            grid.put_cursor(row)
            key = snapshot.key(int(self._order[row]))
            if key != app.session.selected:
                app.session.selected = key
                self.post_message(FlowSelected(key, False))
        self._detail(snapshot)
        text = sentences.queue_pairs(snapshot, paths, app.session.passing(snapshot))
        if app.session.filter_text:
            text = f"/ {app.session.filter_text} ({len(self._order)}): {text}"
        return text

    def _cells(self, snapshot: Snapshot, paths: PathColumns, flow: int) -> Sequence[Cell]:
        cells = flow_cells(snapshot, paths, flow, self._bars, self._line)
        known = dict(zip(_KEYS, cells, strict=True))
        if snapshot.mrc is not None:
            known |= zip(MRC_VALUES, mrc_cells(snapshot.mrc, flow), strict=True)
        return [known[column.key] for column in self._columns]

    def _wanted(self, snapshot: Snapshot) -> tuple[GridColumn, ...]:
        """The columns of the settings; those of MRC where it is, in the place of others' losses."""
        mrc = snapshot.mrc
        there: tuple[GridColumn, ...] = COLUMNS
        if mrc is not None:
            alone = bool((mrc.values[snapshot.carries_data()] != UNKNOWN).all())
            others = [c for c in COLUMNS if not (alone and c.key in OTHERS)]
            at = 1 + [c.key for c in others].index("extent")
            there = (*others[:at], *MRC_COLUMNS, *others[at:])
        names = self.roce.settings.columns.get("qps")
        return tuple(c for c in there if not names or c.key in names)

    def _detail(self, snapshot: Snapshot) -> None:
        app = self.roce
        at = snapshot.find(app.session.selected)
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
        small = self.size.height < TALL
        if small and snapshot.activity.shape[0] and at < snapshot.activity.shape[1]:
            bins = snapshot.activity[:, at].tolist()
            width = max(10, min(60, self.size.width - len(first.plain) - 24))
            first.append("  bytes ")
            first.append(UNICODE.sparkline(bins, width), "cyan")
            span = human.duration(snapshot.activity_bin_ns * len(bins))
            first.append(f" {span}", "dim")
        focus = app.record
        second = Text(" ")
        comment = app.session.marks.flows.get(snapshot.key(at))
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
        if not small:
            lines += [*self._over_time(snapshot, at), path_line(app.paths(), at)]
        panel.update(Text("\n").join(lines), layout=False)

    def _over_time(self, snapshot: Snapshot, at: int) -> list[Text]:
        """The flow's bytes and late packets on one time axis."""
        lines = flow_lines(snapshot, snapshot.key(at), self.size.width - 2)
        late = int(snapshot.flows.late[at])
        return [*lines, late_line(snapshot, at, self.size.width - 2)] if late > 0 else lines

    def draw_record(self) -> None:
        self._detail(self.roce.snapshot)

    @on(Grid.Moved, "#flows")
    def _moved(self, event: Grid.Moved) -> None:
        if event.row < len(self._order):
            key = self.roce.snapshot.key(int(self._order[event.row]))
            if key != self.roce.session.selected:
                self.roce.session.selected = key
            self.post_message(FlowSelected(key))
            self._detail(self.roce.snapshot)

    @on(Grid.HeaderClicked, "#flows")
    def _clicked(self, event: Grid.HeaderClicked) -> None:
        grid = event.grid
        if event.key in _SORTS or event.key in MRC_VALUES:
            if grid.sorted_by == event.key:
                grid.descending = not grid.descending
            grid.sorted_by = event.key
            self.redraw()

    def on_grid_chosen(self) -> None:
        self.action_deeper()

    def action_deeper(self) -> None:
        self.roce.go_deeper("packets")

    def action_sort(self, step: int = 1) -> None:
        grid = self.query_one("#flows", Grid)
        # Of those that fit: else nobody sees by what.
        names = [key for key in (*_SORTS, *MRC_VALUES) if grid.width_of(key)]
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

    def action_everything(self) -> None:
        self.roce.toggle_everything()

    def action_path_key(self) -> None:
        self.roce.next_path_key()

    def action_mark(self) -> None:
        self.roce.toggle_mark()

    def action_comment(self) -> None:
        self.roce.comment_flow()

    def action_compare(self) -> None:
        self.roce.compare()


def count(value: int) -> str:
    """A count, `?` where this capture cannot tell."""
    return human.UNKNOWN if value == UNKNOWN else human.count(value)


def shaped(
    columns: Sequence[GridColumn], snapshot: Snapshot, paths: PathColumns, least: int
) -> list[GridColumn]:
    """The columns as wide as addresses and paths can use; `least` bars, if there are so many."""
    address = max(map(len, snapshot.addresses), default=10)
    most = int(paths.seen().max(initial=0))
    bars = max(5, min(least, most))
    found = []
    for column in columns:
        if column.key in ("src", "dst"):
            column = column._replace(most=max(column.width, address))
        elif column.key == "spray":
            column = column._replace(width=bars, most=max(bars, min(MANY_BARS, most)))
        found.append(column)
    return found


def path_line(paths: PathColumns, f: int) -> Text:
    """The flow's busiest paths, with what each of its paths would carry if all were used alike."""
    rows = paths.of(f)
    loads = paths.wire_bytes[rows]
    text = Text(f"{'its paths':>16} ", "dim", no_wrap=True, overflow="ellipsis")
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
    """One row, in the order of COLUMNS; `bars` and `line`: how wide spray and sparkline are."""
    flows = snapshot.flows
    rows = paths.of(f)
    seen = rows.stop - rows.start
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
        TRANSPORT_NAMES[flows.transport[f]],
        human.rate(float(flows.rate[f])).removesuffix("b/s").rstrip() or "0",
        human.count(int(flows.packets[f])),
        human.size(int(flows.wire_bytes[f])).removesuffix("B").rstrip(),
        str(seen),
        f"{width:.1f}/{seen}",
        (spray(paths, f, bars), "accent"),
        share(late, arrivals),
        bad(int(flows.max_extent[f]) if late > 0 else late),
        bad(int(flows.retransmitted[f])),
        bad(int(flows.recovered[f])),
        bad(int(flows.missing[f])),
        bad(naks),
        bad(int(flows.cnps[f])),
        share(ce, int(flows.packets[f])),
        activity,
    )


def bad(value: int) -> Cell:
    """A count that should be 0."""
    return (count(value), "bad") if value > 0 else (count(value), "dim")


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
    if len(loads) > bars:  # neighbours are added up
        edges = np.arange(bars) * len(loads) // bars
        loads = np.add.reduceat(loads, edges)
    if not len(loads):
        return ""
    return UNICODE.columns(loads.tolist()).replace(" ", "·")
