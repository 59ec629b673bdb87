"""Screen 3: what happens between taps: losses, marks, delay on every hop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import NamedTuple

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.widgets import Static

from ...analyzer.measures.hops.vantage import direction, parts_of
from ...analyzer.results.analysis import Hop
from ...analyzer.words import printable
from ...report import hops as words
from ...report import human
from ...report.human import UNICODE
from ..grid import Cell, Grid, GridColumn
from ..host import FlowSelected
from ..session import words as sentences
from ..session.snapshot import Snapshot
from .base import RoceScreen, own_bindings

COLUMNS = (
    GridColumn("from", "FROM", 12, grows=True, ends=True, most=24),
    GridColumn("to", "TO", 12, grows=True, ends=True, most=24),
    GridColumn("device", "DEVICE", 7, priority=2),
    GridColumn("packets", "PACKETS", 8, True),
    GridColumn("lost", "LOST", 6, True),
    GridColumn("share", "LOST %", 7, True),
    GridColumn("marks", "CE", 6, True, 4),
    GridColumn("late", "LATE", 6, True, 5),
    GridColumn("copies", "DUP", 5, True, 6),
    GridColumn("trims", "TRIM", 5, True, 2),
    GridColumn("delay", "DELAY p50", 9, True, 3),
    GridColumn("delay99", "p99", 8, True, 7),
    GridColumn("queueing", "QUEUE p99", 9, True, 1),
)
NOTHING = """No hop: hops need captures of two or more taps that the same packets pass.

rocescope tui leaf1-spine*.pcap leaf2-spine*.pcap"""
_NAME, _CELL = 18, 11


def _lost(hops: Sequence[Hop]) -> float | None:
    entered = sum(hop.packets for hop in hops)
    return sum(hop.lost_packets for hop in hops) / entered if entered else None


def _worst(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


class Measure(NamedTuple):
    """What the cells of the drawn fabric show."""

    title: str
    value: Callable[[Sequence[Hop]], float | None]
    """Of the hops of a cell; None: unknown."""
    text: Callable[[float], str]
    is_bad: bool
    """Whether every value above 0 is a problem."""


MEASURES = (
    Measure("lost", _lost, human.percent, True),
    Measure(
        "CE marks",
        lambda hops: sum(hop.ce_marked_packets for hop in hops),
        lambda v: human.count(int(v)),
        True,
    ),
    Measure(
        "late",
        lambda hops: sum(hop.reordered_packets for hop in hops),
        lambda v: human.count(int(v)),
        True,
    ),
    Measure(
        "delay p50",
        lambda hops: _worst(hop.delay_ns.p50 if hop.delay_ns else None for hop in hops),
        words.duration_of,
        False,
    ),
    Measure(
        "queueing p99",
        lambda hops: _worst(hop.queueing_ns.p99 if hop.queueing_ns else None for hop in hops),
        human.duration,
        False,
    ),
)


class HopsScreen(RoceScreen):
    """The table of hops, the hop under the cursor, and the fabric as a map."""

    name_ = "hops"
    spare_of = "#hops"
    of_record = False
    BINDINGS = own_bindings("hops")

    def __init__(self) -> None:
        super().__init__()
        self._hops: list[Hop] = []
        self._measure = MEASURES[0]

    def body(self) -> ComposeResult:
        yield Grid(COLUMNS, id="hops")
        yield Static(id="about")
        yield Static(id="map")

    def draw(self, snapshot: Snapshot) -> str:
        judged = snapshot.judged
        self._hops = words.worst_first(sorted(judged.hops, key=lambda hop: hop.id))
        hops = self._hops
        short = words.short_taps(t for hop in hops for t in (hop.from_tap, hop.to_tap) if t)
        trims = any(hop.trimmed_packets for hop in hops)
        columns = [i for i, column in enumerate(COLUMNS) if trims or column.key != "trims"]
        grid = self.query_one("#hops", Grid)
        grid.set_columns([COLUMNS[i] for i in columns])
        grid.empty = NOTHING if judged.diagnosis is not None else printable(judged.why)
        room = max(8, min(map(grid.width_of, ("from", "to"))))
        cut = UNICODE.shortened(short.values(), room)
        fitting = {tap: cut[name] for tap, name in short.items()}
        grid.show(len(hops), lambda row: [hop_cells(hops[row], fitting)[i] for i in columns])
        if self.view.wanted_taps:
            ends = set(self.view.wanted_taps)
            at = [row for row, hop in enumerate(hops) if ends & {hop.from_tap, hop.to_tap}]
            if at:
                grid.put_cursor(at[0])
            self.view.wanted_taps = ()
        self._about(snapshot, grid.cursor)
        room = max(1, (self.size.width - _NAME - 4) // _CELL)
        drawn = drawn_fabric(hops, self._measure, room, self.size.height // 6)
        self.query_one("#map", Static).update(drawn)
        self.query_one("#map", Static).display = bool(drawn.plain)
        if why := sentences.nothing(snapshot):
            return why
        return sentence(hops) if judged.diagnosis is not None else printable(judged.why)

    def _about(self, snapshot: Snapshot, row: int) -> None:
        """The hop under the cursor; what captures missed; clocks."""
        judged, clock = snapshot.judged, self.clock(snapshot)
        short = words.short_taps(snapshot.source.tap_names)
        text = Text()
        if row < len(self._hops):
            hop = self._hops[row]
            way = f"{short.get(hop.from_tap, printable(hop.from_tap))} > "
            text.append(way + words.expected_tap(hop, short), "bold")
            text.append(f" through {printable(hop.device)}" if hop.device else "")
            text.append(f": {words.counts(hop)}\n")
            if hop.first_lost_ns is not None and hop.last_lost_ns is not None:
                first, last = map(clock.point, (hop.first_lost_ns, hop.last_lost_ns))
                text.append(f"lost from {first} to {last}")
                if hop.expected_by in words.EXPECTED_BY:
                    text.append(f"; next tap: {words.expected_by(hop)}", "dim")
                text.append("\n")
            if delay := words.delay(hop):
                text.append(f"{delay}\n")
        for loss in judged.capture_losses:
            text.append(f"{UNICODE.warning} {words.capture_loss(loss, short)}\n", "yellow")
        for tap_clock in judged.clocks:
            text.append(f"{words.clock(tap_clock, short)}\n", "dim")
        self.query_one("#about", Static).update(text)

    @on(Grid.Moved, "#hops")
    def _moved(self, event: Grid.Moved) -> None:
        self._about(self.view.snapshot, event.row)

    def action_deeper(self) -> None:
        """To the packets of the flow that lost most on the hop under the cursor."""
        row, snapshot = self.query_one("#hops", Grid).cursor, self.view.snapshot
        lost = self._hops[row].lost_by_flow if row < len(self._hops) else []
        if not lost or lost[0].flow >= len(snapshot.flows):
            self.notify("No flow lost a packet on this hop")
            return
        self.post_message(FlowSelected(snapshot.key(lost[0].flow)))
        self.host.go("packets")

    def action_measure(self) -> None:
        self._measure = MEASURES[(MEASURES.index(self._measure) + 1) % len(MEASURES)]
        self.redraw()


def sentence(hops: Sequence[Hop]) -> str:
    """How many packet hops had a loss, and the hop with the most."""
    if not hops:
        return "No packet was seen at two taps."
    passed = sum(hop.packets for hop in hops)
    lost = sum(hop.lost_packets for hop in hops)
    on = human.counted(len(hops), "hop")
    if not lost:
        return f"{human.counted(passed, 'packet hop')} over {on}, no loss."
    worst = max(hops, key=lambda hop: hop.lost_packets)
    short = words.short_taps(t for hop in hops for t in (hop.from_tap, hop.to_tap) if t)
    text = f"{human.count(lost)} of {human.counted(passed, 'packet hop')} over {on} lost"
    if worst.to_tap is None:
        after = f"most after {short[worst.from_tap]}, next tap unknown"
        return f"{text}; {after}: {human.count(worst.lost_packets)}."
    where = f"{short[worst.from_tap]} > {words.expected_tap(worst, short)}"
    most = f"{human.count(worst.lost_packets)} of {human.count(worst.packets)}"
    return f"{text}; most on {where}: {most}."


def hop_cells(hop: Hop, short: dict[str, str]) -> Sequence[Cell]:
    """One row, in the order of COLUMNS."""
    delay, queueing = hop.delay_ns, hop.queueing_ns
    return (
        short.get(hop.from_tap, printable(hop.from_tap)),
        words.expected_tap(hop, short),
        printable(hop.device or "-"),
        human.count(hop.packets),
        _bad(hop.lost_packets),
        (human.percent(hop.lost_percent / 100), "bad" if hop.lost_packets else "dim"),
        _bad(hop.ce_marked_packets),
        _bad(hop.reordered_packets),
        _bad(hop.duplicate_packets),
        _bad(hop.trimmed_packets),
        words.duration_of(delay.p50) if delay else "-",
        words.duration_of(delay.p99) if delay else "-",
        human.duration(queueing.p99) if queueing else "-",
    )


def _bad(number: int) -> Cell:
    return human.count(number), "bad" if number else "dim"


def drawn_fabric(hops: Sequence[Hop], measure: Measure, columns: int, rows: int = 99) -> Text:
    """Per tier a map: rows are ways through the tier and through the devices beside it, columns the
    devices of the tier; empty without names.

    columns: that fit. rows: above this many, the devices beside the tier are left out where the
    measure finds nothing bad.
    """
    text = Text(no_wrap=True, overflow="ellipsis")
    for tier in _tiers(hops):
        devices = sorted({device for row in tier.values() for device in row}, key=_natural)
        values = [v for row in tier.values() for cell in row.values() if (v := measure.value(cell))]
        # Every delay is above 0: those of a few microseconds are no fault.
        usual = words.QUEUE_FACTOR * median(values) if values else 0.0
        limit = 0.0 if measure.is_bad else max(words.LONG_QUEUE_NS, usual)
        text.append(f" {f'{measure.title} (v)':<{_NAME}}", "bold")
        shown = devices[:columns]
        text.append("".join(f"{printable(d)[: _CELL - 1]:>{_CELL}}" for d in shown), "dim")
        if len(devices) > columns:
            text.append(f" and {len(devices) - columns} more", "dim")
        text.append("\n")
        for (name, beside), row in tier.items():
            is_bad = measure.is_bad and any(measure.value(cell) for cell in row.values())
            if beside and len(tier) > rows and not is_bad:
                continue
            text.append(f" {UNICODE.shorten(name, _NAME):<{_NAME}}")
            for device in shown:
                text.append_text(_map_cell(row.get(device), measure, limit))
            text.append("\n")
    if text and measure is MEASURES[0]:
        short = words.short_taps(t for hop in hops for t in (hop.from_tap, hop.to_tap) if t)
        for hop in hops:  # of no column
            if hop.to_tap is None and hop.lost_packets:
                lost = f"{human.count(hop.lost_packets)} lost after {short[hop.from_tap]}"
                text.append(f" {UNICODE.bad} {lost}, next tap unknown\n", "bold red")
    return text


_Ways = dict[tuple[str, bool], dict[str, list[Hop]]]
"""By the name of a way, and whether it is through a device beside the tier: its hops, by device."""


def _tiers(hops: Sequence[Hop]) -> list[_Ways]:
    """The ways through every tier of parallel devices, in the order of their names."""
    short = words.short_taps(t for hop in hops for t in (hop.from_tap, hop.to_tap) if t)
    through: dict[str, _Ways] = {}
    for hop in sorted(hops, key=lambda hop: hop.id):
        way = direction(short[hop.from_tap], short[hop.to_tap]) if hop.to_tap else None
        if way is not None and hop.device is not None:
            rows = through.setdefault(words.tier(hop.device), {})
            rows.setdefault((way, False), {}).setdefault(hop.device, []).append(hop)
    tiers = [rows for rows in through.values() if any(len(row) > 1 for row in rows.values())]
    for rows in tiers:
        tier = {device for row in rows.values() for device in row}
        for hop in hops:
            if hop.device is None or hop.device in tier:
                continue
            taps = {"to": hop.to_tap, "from": hop.from_tap}
            for word, tap in taps.items():
                ends = tier & set(parts_of(short[tap])) if tap else set()
                if len(ends) == 1:
                    name = f"{printable(hop.device)} {word} {words.tier(next(iter(ends)))}"
                    rows.setdefault((name, True), {}).setdefault(ends.pop(), []).append(hop)
    return [dict(sorted(rows.items())) for rows in tiers]


def _map_cell(hops: Sequence[Hop] | None, measure: Measure, limit: float) -> Text:
    """limit: values above it stand out."""
    value = None if hops is None else measure.value(hops)
    if value is None:
        return Text(f"{'·':>{_CELL}}", "dim")
    bad = value > limit
    mark = f"{UNICODE.bad} " if bad else ""
    return Text(f"{mark + measure.text(value):>{_CELL}}", "bold red" if bad else "")


def _natural(name: str) -> tuple[str, int, str]:
    digits = "".join(c for c in name if c.isdigit())
    return words.tier(name), int(digits or 0), name
