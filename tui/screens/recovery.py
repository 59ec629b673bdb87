"""Screens 6 and 8: losses and recovery of one flow, and the events of all."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Static

from ...analyzer.results.base import Event, Quantiles
from ...analyzer.results.flow import Flow
from ...report import human
from ...report.notes import event_text, kind_name
from ...report.terminal.ranks import ranks_of_owner
from ..clock import Clock
from ..grid import Cell, Grid, GridColumn
from ..host import FlowSelected
from ..session import words
from ..session.packets import Point
from ..session.snapshot import UNKNOWN, Snapshot
from ..session.words import sentence, shown_events
from ..settings import RANKS
from ..strips import SIGNALS, Axis, Bar, bar_lines, flow_lines, signal_lines
from .base import RoceScreen, own_bindings, timed
from .mrc import lost_by_value, mrc_causes, mrc_counts, mrc_of, mrc_sentence

# Screen 8: events in order of time.

EVENT_COLUMNS = (
    GridColumn("time", "TIME", 10, True),
    GridColumn("kind", "KIND", 11),
    GridColumn("text", "WHAT", 30, grows=True),
    GridColumn("frame", "FRAME", 9, True, 3),
    GridColumn("tap", "TAP", 22, priority=4, ends=True),
)
NOTHING = """No NAK, rewind or restart of a queue pair.

Losses without a NAK are on screen 6, late packets on screen 5."""
_WITH_RANKS = 100
"""Terminal columns from which ranks fit beside what happened."""
_ALIKE = 50
"""If the addresses of one of the first N events do not fit, all events omit them."""
_STYLES = {
    "nak": "bad",
    "rnr_nak": "bad",
    "rewind": "warn",
    "sequence_restart": "bad",
    "mrc_nack": "warn",
    "ev_retired": "warn",
    "plane_down": "bad",
}


class EventsScreen(RoceScreen):
    """The list of events."""

    name_ = "events"
    of_record = False
    BINDINGS = own_bindings("events")

    def __init__(self) -> None:
        super().__init__()
        self._events: tuple[Event, ...] = ()

    def body(self) -> ComposeResult:
        yield Grid(EVENT_COLUMNS, id="list")

    def draw(self, snapshot: Snapshot) -> str:
        session = self.view.session
        self._events = shown_events(snapshot, session.passing(snapshot))
        clock = self.clock(snapshot)
        grid = self.query_one("#list", Grid)
        one_tap = len(snapshot.source.tap_names) < 2
        columns = timed(EVENT_COLUMNS[:-1] if one_tap else EVENT_COLUMNS, clock, 6, "time")
        ranked = self.size.width >= _WITH_RANKS and any(
            owner.ranks != (None, None) for owner in snapshot.owners.values()
        )
        grid.set_columns((*columns[:2], RANKS, *columns[2:]) if ranked else columns)
        hidden = len(snapshot.events) > len(self._events)
        quiet = len(snapshot.flows) and not hidden
        grid.empty = NOTHING if quiet else self.what_next(snapshot)
        room = grid.width_of("text")
        first = self._events[:_ALIKE]
        short = any(len(event_text(event)) > room for event in first)

        def cells(row: int) -> Sequence[Cell]:
            event = self._events[row]
            known = event_cells(event, clock, room, short)
            owner = None if event.flow is None else snapshot.owners.get(event.flow)
            return (*known[:2], ranks_of_owner(owner), *known[2:]) if ranked else known

        grid.show(len(self._events), cells)
        return sentence(snapshot, self._events, session.filter is not None)

    @on(Grid.Moved, "#list")
    def _moved(self, event: Grid.Moved) -> None:
        if event.row < len(self._events):
            flow = self._events[event.row].flow
            if flow is not None and flow < len(self.view.snapshot.flows):
                self.post_message(FlowSelected(self.view.snapshot.key(flow)))

    def action_deeper(self) -> None:
        grid = self.query_one("#list", Grid)
        if grid.cursor < len(self._events):
            event = self._events[grid.cursor]
            self.view.wanted_packet = Point(event.time_ns, event.tap, event.frame_number)
        self.host.go("packets")


def event_cells(event: Event, clock: Clock, room: int, short: bool) -> Sequence[Cell]:
    """One row, in the order of EVENT_COLUMNS; room, short: as those of `event_text`."""
    return (
        clock.text(event.time_ns, 6),
        (kind_name(event.kind), _STYLES.get(event.kind, "accent")),
        event_text(event, short, room),
        human.UNKNOWN if event.frame_number is None else f"{event.frame_number:,}",
        event.tap or "",
    )


TALL = 36
"""From this height on triggers are drawn as bars."""


class RecoveryScreen(RoceScreen):
    """Losses and their recovery."""

    name_ = "recovery"
    BINDINGS = own_bindings("recovery")

    def body(self) -> ComposeResult:
        yield Static(id="times")
        with Horizontal(classes="columns"):
            yield Static(id="left")
            yield Static(id="right")
        grid = Grid(EVENT_COLUMNS[:-1], id="events")
        yield grid

    def draw(self, snapshot: Snapshot) -> str:
        flow = self.view.record
        self.query_one("#times", Static).update(self._times(snapshot))
        left, right = self.query_one("#left", Static), self.query_one("#right", Static)
        grid = self.query_one("#events", Grid)
        small, mrc = self.size.height < TALL, mrc_of(flow)
        self.set_class(small, "small")
        at = snapshot.find(self.view.session.selected)
        cnps = int(snapshot.flows.cnps[at]) if at is not None else UNKNOWN
        between = 0 if at is None else snapshot.judged.lost.get(at, 0)
        if flow is not None and at is not None:  # with marks after the first tap
            marked_packets = max(flow.ecn_marked_packets, int(snapshot.flows.ecn_marked[at]))
            flow = replace(flow, ecn_marked_packets=marked_packets)
        if flow is None:
            left.update("")
            right.update("")
        elif small:
            left.update(_lines(mrc_counts(mrc) if mrc else _counts(flow, cnps)))
            right.update(_lines(mrc_causes(mrc, snapshot.start_ns) if mrc else _causes(flow)))
        else:
            causes = [Bar(k, n) for k, n in (flow.recovery.retransmitted_by or {}).items()]
            bars, title = (causes, "retransmissions by trigger")
            rows = _counts(flow, cnps) + _causes(flow)[1:]
            if mrc is not None:
                bars, title = lost_by_value(mrc), "packets lost by entropy value"
                rows = mrc_counts(mrc) + mrc_causes(mrc, snapshot.start_ns)
            width = max(20, self.size.width // 2 - 2)
            left.update(bar_lines(title, bars, width, 6))
            right.update(Text("this flow\n", "bold").append_text(_lines(rows)))
        peer = int(snapshot.flows.peer[at]) if at is not None else -1
        mine = [e for e in snapshot.events if e.flow is not None and e.flow in (at, peer)]
        clock = self.clock(snapshot)
        grid.set_columns(timed(EVENT_COLUMNS[:-1], clock, 6, "time"))
        grid.empty = "" if flow is None else "no NAK, rewind or restart of this flow"
        room = grid.width_of("text")
        grid.show(len(mine), lambda row: event_cells(mine[row], clock, room, True))
        if flow is None:
            return self.no_flow(snapshot)
        marked = words.marks(flow, cnps)
        said = mrc_sentence(mrc, marked) if mrc else words.recovery(flow, cnps, between)
        return f"{self.flow_title()}: {words.after_colon(said)}"

    def _times(self, snapshot: Snapshot) -> Text:
        """One strip per signal on a shared time axis: all flows, then this flow."""
        if not len(snapshot.flows):
            return Text()
        line, axis = snapshot.timeline, Axis.of(snapshot, self.size.width - 1)
        span, column = axis.length_ns, axis.length_ns / axis.columns
        about = f"all flows, {human.duration(span)}; a column is {human.duration(column)}"
        if line.window_ns > column:
            about += f", totals by {human.duration(line.window_ns)}"
        lines = [Text(f" {about}", "dim")]
        small = self.size.height < TALL
        signals = SIGNALS if small else (*SIGNALS, ("bytes", "wire_bytes"))
        lines += signal_lines(snapshot, axis, signals, not small)
        lines += flow_lines(snapshot, self.view.session.selected, self.size.width - 1, True)
        lines.append(axis.numbers(self.clock(snapshot)))
        return Text("\n").join(lines)

    def action_deeper(self) -> None:
        self.host.go("packets")


def _counts(flow: Flow, cnps: int) -> list[tuple[str, str]]:
    """Counts that should be 0; cnps: CNPs that this flow's sender received."""
    repeats = flow.retransmitted_packets
    share = repeats / flow.packets if repeats is not None and flow.packets else None
    marked = flow.ecn_marked_packets
    return [
        ("retransmitted", f"{human.count(repeats)} ({human.percent(share)})"),
        ("lost before tap", human.count(flow.recovered_packets)),
        ("never seen", human.count(flow.missing_packets)),
        (
            "rewinds",
            f"{human.count(flow.recovery.rewinds)}, {human.size(flow.recovery.rewound_bytes)}",
        ),
        ("marked CE", f"{human.count(marked)} ({human.percent(marked / max(1, flow.packets))})"),
        ("CNPs", human.UNKNOWN if cnps == UNKNOWN else human.count(cnps)),
    ]


def _causes(flow: Flow) -> list[tuple[str, str]]:
    """Triggers of retransmissions, and latencies of recovery."""
    triggers = flow.recovery.retransmitted_by
    causes = sorted((triggers or {}).items(), key=lambda item: -item[1])
    total = max(1, sum(n for _, n in causes))
    shares = ", ".join(f"{cause} {100 * n / total:.0f}" for cause, n in causes)
    naks = flow.recovery.naks
    codes = human.UNKNOWN if naks is None else ", ".join(f"{k} {n}" for k, n in naks.items())
    return [
        ("triggers, %", human.UNKNOWN if triggers is None else shares),
        ("NAKs", codes or "0"),
        ("RNR NAKs", human.count(flow.recovery.rnr_naks)),
        ("gap to NAK", _times(flow.recovery.gap_to_nak_ns)),
        ("NAK to resend", _times(flow.recovery.nak_to_resend_ns)),
        ("timeouts", _times(flow.recovery.timeout_ns)),
    ]


def _lines(rows: Sequence[tuple[str, str]]) -> Text:
    """One line per name and value."""
    text = Text(no_wrap=True, overflow="ellipsis")
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        text.append(f" {name:>{width}} ", "dim")
        text.append(f"{value or '-'}\n")
    return text


def _times(record: Quantiles | None) -> str:
    if record is None or not record.count:
        return "-"
    return f"{record.count}x, p50 {human.duration(record.p50)}, max {human.duration(record.max)}"
