"""Screen 5: how late the packets of one flow arrive, and the buffer that restores their order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Static

from ...analyzer.results.base import HistogramBin, PathShare, Quantiles
from ...analyzer.results.flow import Flow, Reordering
from ...analyzer.words import printable
from ...report import human
from ...report.human import UNICODE
from ..grid import Cell, Grid, GridColumn
from ..session import words as sentences
from ..session.packets import Late
from ..session.snapshot import Snapshot
from ..strips import Axis, Bar, bar_lines, flow_lines, late_line, signal_lines
from .base import RoceScreen, own_bindings

VIEWS = ("RFC 4737", "RFC 5236", "recovery")
TALL = 44
"""From this height on there is room for the histograms above another view."""


class ReorderScreen(RoceScreen):
    """Histograms of one flow."""

    name_ = "reorder"
    spare_of = "#buckets"
    BINDINGS = own_bindings("reorder")

    def __init__(self) -> None:
        super().__init__()
        self._view = VIEWS[0]
        self._with_buckets = True
        self._buckets: dict[str, list[Bar]] = {"extents": [], "lateness": []}

    def body(self) -> ComposeResult:
        with Horizontal(classes="columns", id="buckets"):
            yield Grid((), id="extents")
            yield Grid((), id="lateness")
        with Horizontal(classes="columns", id="bars"):
            yield Static(id="left")
            yield Static(id="right")
        yield Static(id="below")

    def draw(self, snapshot: Snapshot) -> str:
        flow = self.view.record
        left, right = self.query_one("#left", Static), self.query_one("#right", Static)
        below = self.query_one("#below", Static)
        record = flow.reordering if flow is not None else None
        at = snapshot.find(self.view.session.selected)
        between = 0 if at is None else snapshot.judged.late.get(at, 0)
        first = "no late packet"
        if between:
            first += f" at the first tap; {human.count(between)} late between taps (3)"
        if flow is None or record is None:
            left.update("")
            right.update("")
            below.update("")
            self._show_buckets([], [], "" if flow is None else first)
            if flow is None:
                return self.no_flow(snapshot)
            return (
                f"{self.flow_title()}: {sentences.after_colon(sentences.reordering(flow, between))}"
            )
        tall = self.size.height >= TALL
        self._with_buckets = tall or self._view == "RFC 4737"
        self.query_one("#buckets").display = self._with_buckets
        self.query_one("#bars").display = tall or self._view != "RFC 4737"
        width, height = max(20, self.size.width // 2 - 2), max(4, self.size.height - 15)
        height = height // 2 if tall else height
        if self._with_buckets:
            self._show_buckets(
                log2_bars(record.extent_histogram, record.extent_packets, str),
                log2_bars(record.late_time_histogram, record.late_time_ns, human.duration),
                first,
            )
        if self._view == "RFC 5236" or (tall and self._view == "RFC 4737"):
            left.update(
                bar_lines(
                    "displacement, early < 0 < late (RD)",
                    _density(record.density),
                    width,
                    height,
                    f"threshold {record.displacement_threshold}",
                )
            )
            right.update(
                bar_lines(
                    "receive buffer in use (RBD)",
                    _density(record.buffer_density),
                    width,
                    height,
                )
            )
        elif self._view == "recovery":
            words = "n-reordering: the n packets before it have higher PSNs"
            left.update(
                bar_lines(
                    words if len(words) <= width else "n-reordering (RFC 4737)",
                    _n_reordered(record),
                    width,
                    height,
                )
            )
            right.update(what_if(record, width))
        below.update(self._below(flow, snapshot))
        return f"{self.flow_title()}: {sentences.after_colon(sentences.reordering(flow, between))}"

    def _show_buckets(self, extents: list[Bar], lateness: list[Bar], empty: str) -> None:
        """Histograms with selectable rows."""
        self._buckets = {"extents": extents, "lateness": lateness}
        pane = self.size.width // 2 - 1
        for name, title, unit in (
            ("extents", "EXTENT", "packets, log2"),
            ("lateness", "LATE BY", "log2"),
        ):
            bars, grid = self._buckets[name], self.query_one(f"#{name}", Grid)
            label = max([len(title), *(len(bar.label) for bar in bars)])
            note = max((len(bar.note) for bar in bars), default=0)
            room = max(3, pane - label - note - 13)
            grid.empty = empty
            grid.set_columns(
                (
                    GridColumn("label", title, label, True),
                    GridColumn("bar", unit if room > len(unit) else "", room),
                    GridColumn("share", "SHARE", 7, True),
                    GridColumn("note", "", note),
                )
            )
            grid.show(len(bars), partial(bucket_cells, bars, room))

    def _below(self, flow: Flow, snapshot: Snapshot) -> Text:
        late = [path for path in paths_of(flow) if path.reordered_packets]
        total = sum(path.reordered_packets for path in late)
        text = Text(no_wrap=True, overflow="ellipsis")
        where = " at the first tap" if flow.tap_copies else ""
        text.append(f"view {self._view} (o)   late packets{where} by path: ", "dim")
        for path in sorted(late, key=lambda p: -p.reordered_packets)[:4]:
            share = path.reordered_packets / total
            text.append(f"{printable(path.path.split('.pcap')[0])} ", "bold")
            text.append(f"{human.percent(share)} (carries {human.percent(path.share)})  ")
        if not late:
            text.append("none")
        text.append("\n")
        axis = Axis.of(snapshot, self.size.width - 2)
        lines = flow_lines(snapshot, self.view.session.selected, self.size.width - 2)
        at = snapshot.find(self.view.session.selected)
        if at is not None:
            lines.append(late_line(snapshot, at, self.size.width - 2))
        lines += signal_lines(snapshot, axis, [("late, all flows", "reordered_packets")], True)
        lines.append(axis.numbers(self.clock(snapshot)))
        text.append_text(Text("\n").join(lines))
        record = flow.reordering
        if record is not None:
            text.append(
                f"\nreordered {human.count(flow.reordered_packets)},"
                f" {human.percent(record.ratio)} (0)"
                f"  max extent {record.max_extent}"
                f"  max n-reordering {record.max_n_reordering}"
                f"  in-order runs {human.count(record.runs)}"
            )
        return text

    def action_view(self) -> None:
        self._view = VIEWS[(VIEWS.index(self._view) + 1) % len(VIEWS)]
        self.redraw()

    def action_deeper(self) -> None:
        """Open the packets of the bucket under the cursor, or of the flow."""
        for name, measure, word in (
            ("extents", "extent", "extent"),
            ("lateness", "late_ns", "lateness"),
        ):
            grid, bars = self.query_one(f"#{name}", Grid), self._buckets[name]
            if grid.has_focus and self._with_buckets and grid.cursor < len(bars):
                bar = bars[grid.cursor]
                self.view.wanted_late = Late(measure, *bar.span), f"{word} {bar.label}"
        self.host.go("packets")


def paths_of(flow: Flow) -> Sequence[PathShare]:
    """The taps or links that saw the packets first, where several did; else the paths by port."""
    by_tap = [each.paths for each in flow.spraying if each.path_by == "tap"]
    return by_tap[0] if by_tap and len(flow.taps) > 1 else flow.paths


def bucket_cells(bars: Sequence[Bar], room: int, row: int) -> Sequence[Cell]:
    """One line of a histogram."""
    bar = bars[row]
    most = max(each.value for each in bars)
    total = sum(each.value for each in bars)
    return (
        (bar.label, "dim"),
        (UNICODE.bar(bar.value / most if most else 0, room), "accent"),
        human.percent(bar.value / total if total else 0),
        (bar.note, "mark"),
    )


def log2_bars(bins: Iterable[HistogramBin], quantiles: Quantiles | None, form: object) -> list[Bar]:
    """Histogram bins added up to powers of two, with marks at p99 and the maximum."""
    sums: dict[int, int] = {}
    for bucket in bins:
        sums[bucket.low.bit_length()] = sums.get(bucket.low.bit_length(), 0) + bucket.count
    if not sums:
        return []
    show = form if callable(form) else str
    bars = []
    for power in range(min(sums), max(sums) + 1):
        low, high = (0 if power == 0 else 1 << (power - 1)), (1 << power) - 1
        if power == 0:
            high = 0
        notes = []
        if quantiles is not None:
            if low <= quantiles.max < high + 1:
                most = show(quantiles.max if form is not str else int(quantiles.max))
                notes.append(f"◂ max {most}")
            elif low <= quantiles.p99 < high + 1:
                notes.append("◂ p99")
        label = (
            show(low)
            if low == high
            else f"{show(low)}-{show(high)}"
            if form is str
            else (f"≥ {show(low)}")
        )
        bars.append(Bar(label, sums.get(power, 0), " ".join(notes), (low, high)))
    return bars


def _density(density: dict[int, int]) -> list[Bar]:
    everything = sorted(density.items())
    if len(everything) <= 12:
        return [Bar(str(k), n) for k, n in everything]
    bars: dict[str, float] = {}
    for k, n in everything:
        size = abs(k).bit_length()
        low = 0 if k == 0 else 1 << (size - 1)
        name = "0" if k == 0 else f"{'-' if k < 0 else ''}{low}..{(1 << size) - 1}"
        bars[name] = bars.get(name, 0) + n
    return [Bar(name, n) for name, n in bars.items()]


def _n_reordered(record: Reordering) -> list[Bar]:
    values = record.n_reordering
    names = {3: "◂ duplicate threshold of TCP"}
    return [Bar(f"n={n}", value, names.get(n, "")) for n, value in enumerate(values, 1)]


def what_if(record: Reordering, width: int) -> Text:
    """The receive buffer that restores the order, by share of the late packets."""
    text = Text("receive buffer that restores the order\n", "bold", no_wrap=True)
    held, size = record.held_packets, record.byte_offset
    if held is None:
        text.append("  no late packet", "dim")
        return text
    for name, word in (
        ("p50", "50 %"),
        ("p90", "90 %"),
        ("p99", "99 %"),
        ("p999", "99.9 %"),
        ("max", "all"),
    ):
        of = "of late packets: " if width > 50 else "of late: "
        text.append(f" {word:>7} {of}", "dim")
        text.append(human.counted(round(getattr(held, name)), "packet"), "bold")
        if size is not None:
            text.append(f"  {human.size(getattr(size, name))}")
        text.append("\n")
    return text
