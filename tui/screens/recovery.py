"""Screen 6: losses, NAKs, timeouts, rewinds and congestion signals of one flow, over time."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Static

from ...analyzer.results.base import Quantiles
from ...analyzer.results.flow import Flow
from ...report.words import human
from ..session.snapshots.snapshot import UNKNOWN, Snapshot
from ..session.words import sentences
from ..widgets.bars import Bar, bar_lines
from ..widgets.flow_lines import SIGNALS, Axis, flow_lines, signal_lines
from ..widgets.grid import Grid
from .base import RoceScreen, own_bindings
from .events import EVENT_COLUMNS, event_cells
from .mrc_recovery import lost_by_value, mrc_causes, mrc_counts, mrc_of, mrc_sentence

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
        start = self.start_ns(snapshot)
        grid.empty = "" if flow is None else "no NAK, rewind or restart of this flow"
        room = grid.width_of("text")
        grid.show(len(mine), lambda row: event_cells(mine[row], start, room, True))
        if flow is None:
            return self.no_flow(snapshot)
        marked = sentences.marks(flow, cnps)
        said = mrc_sentence(mrc, marked) if mrc else sentences.recovery(flow, cnps, between)
        return f"{self.flow_title()}: {sentences.after_colon(said)}"

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
        lines.append(axis.numbers(self.start_ns(snapshot)))
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
    return [
        ("triggers, %", human.UNKNOWN if triggers is None else shares),
        ("NAKs", ", ".join(f"{k} {n}" for k, n in flow.recovery.naks.items()) or "0"),
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
