"""Screen 4: losses, NAKs, timeouts, rewinds and congestion signals of one flow, over time."""

from __future__ import annotations

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Static

from ...analyzer.results import Flow, Quantiles
from .. import human, sentences
from ..snapshot import Snapshot
from ..widgets.bars import Bar, bar_lines
from ..widgets.flow_lines import Axis, flow_lines, strip_line
from ..widgets.grid import Grid
from .base import RoceScreen, own_bindings
from .events import EVENT_COLUMNS, event_cells

_LINES = (
    ("sent again", "retransmitted_packets"),
    ("late", "reordered_packets"),
    ("NAKs", "naks"),
    ("CE marks", "ecn_marked_packets"),
    ("CNPs", "cnps"),
    ("bytes", "wire_bytes"),
)


class RecoveryScreen(RoceScreen):
    """What was lost and what it cost."""

    name_ = "recovery"
    BINDINGS = own_bindings("recovery")

    def body(self) -> ComposeResult:
        yield Static(id="times")
        with Horizontal(classes="columns"):
            yield Static(id="left")
            yield Static(id="right")
        grid = Grid(EVENT_COLUMNS, id="events")
        grid.empty = "no event of this flow"
        yield grid

    def draw(self, snapshot: Snapshot) -> str:
        flow = self.roce.record
        self.query_one("#times", Static).update(self._times(snapshot))
        left, right = self.query_one("#left", Static), self.query_one("#right", Static)
        grid = self.query_one("#events", Grid)
        width = max(20, self.size.width // 2 - 2)
        if flow is None:
            left.update("")
            right.update("")
        else:
            left.update(
                bar_lines(
                    "sent again because of",
                    [Bar(k, n) for k, n in flow.recovery.retransmitted_by.items()],
                    width,
                    6,
                )
            )
            right.update(_numbers(flow))
        at = snapshot.find(self.roce.session.selected)
        peer = int(snapshot.flows.peer[at]) if at is not None else -1
        mine = [e for e in snapshot.events if e.flow is not None and e.flow in (at, peer)]
        start = snapshot.start_ns
        grid.show(len(mine), lambda row: event_cells(mine[row], start, True))
        return f"{self.flow_title()}: {sentences.recovery(flow)}"

    def _times(self, snapshot: Snapshot) -> Text:
        """One strip per signal over the same time: of all flows, then of this one."""
        line, axis = snapshot.timeline, Axis.of(snapshot, self.size.width - 1)
        span, column = axis.length_ns, axis.length_ns / axis.columns
        about = f"all flows over {human.duration(span)}, a column is {human.duration(column)}"
        lines = [Text(f" {about}", "dim")]
        small = self.size.height < 36
        for name, key in _LINES:
            values = line[key].tolist()
            total = sum(values)
            if small and not total:
                continue
            spread = axis.spread(values, line.start_ns, line.window_ns)
            bytes_ = key == "wire_bytes"
            text = human.size(total) if bytes_ else human.count(total)
            lines.append(strip_line(name, spread, text, "cyan" if bytes_ else "bold yellow"))
        lines += flow_lines(snapshot, self.roce.session.selected, self.size.width - 1, True)
        return Text("\n").join(lines)

    def action_deeper(self) -> None:
        self.roce.go_deeper("packets")

    def action_mark(self) -> None:
        self.roce.toggle_mark()

    def action_comment(self) -> None:
        self.roce.comment_flow()


def _numbers(flow: Flow) -> Text:
    """Counts that should be 0, and how long recovery took."""
    text = Text("this flow\n", "bold", no_wrap=True, overflow="ellipsis")
    again = flow.retransmitted_packets
    share = again / flow.packets if again is not None and flow.packets else None
    rows = [
        ("sent again", f"{human.count(again)} ({human.percent(share)})"),
        ("lost before the tap", human.count(flow.recovered_packets)),
        ("never seen", human.count(flow.missing_packets)),
        ("rewinds", f"{flow.recovery.rewinds}, {human.size(flow.recovery.rewound_bytes)} again"),
        ("NAKs", ", ".join(f"{k} {n}" for k, n in flow.recovery.naks.items()) or "0"),
        ("RNR NAKs", human.count(flow.recovery.rnr_naks)),
        ("gap to NAK", _times(flow.recovery.gap_to_nak_ns)),
        ("NAK to resend", _times(flow.recovery.nak_to_resend_ns)),
        ("timeouts", _times(flow.recovery.timeout_ns)),
        ("CE marked", human.count(flow.ecn_marked_packets)),
    ]
    for name, value in rows:
        text.append(f" {name:>20} ", "dim")
        text.append(f"{value}\n")
    return text


def _times(record: Quantiles | None) -> str:
    if record is None or not record.count:
        return "-"
    return f"{record.count} x, p50 {human.duration(record.p50)}, max {human.duration(record.max)}"
