"""Evidence of one finding: its interval on the time axis, its victims, its packets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Static

from ...analyzer.results.diagnosis import Affected, Evidence, Finding
from ...report.words import human
from ...report.words.hops import short_taps
from ..session.packets.packets import Point
from ..session.snapshots.snapshot import FlowKey, Snapshot
from ..widgets.flow_lines import SIGNALS, Axis, signal_lines, strip_line
from ..widgets.grid import Grid
from ..widgets.grid_columns import Cell, GridColumn
from .base import RoceScreen, own_bindings
from .diagnosis import about

_VICTIMS = (
    GridColumn("src", "SOURCE", 10, grows=True, ends=True),
    GridColumn("dst", "DESTINATION", 11, grows=True, ends=True),
    GridColumn("qp", "QP", 8),
    GridColumn("packets", "PACKETS", 7, True),
    GridColumn("cost", "COST", 8, True),
    GridColumn("owner", "PROCESS", 14, priority=1, grows=True),
)
_FRAMES = (
    GridColumn("tap", "TAP", 12, grows=True, ends=True),
    GridColumn("frame", "FRAME", 9, True),
    GridColumn("time", "TIME s", 11, True, 1),
)
OF_A_FLOW = ("reorder", "recovery", "packets")
"""Screens of the selected flow."""
NARROW = 110
NOTHING = "Choose a finding on screen 1."


class EvidenceScreen(RoceScreen):
    """What a finding is made of."""

    name_ = "evidence"
    of_record = False
    BINDINGS = own_bindings("evidence")

    def __init__(self) -> None:
        super().__init__()
        self._finding: Finding | None = None

    def body(self) -> ComposeResult:
        yield Static(id="times")
        yield Static(id="about")
        with Horizontal(id="panes"):
            yield Grid(_VICTIMS, id="victims")
            yield Grid(_FRAMES, id="frames")

    def draw(self, snapshot: Snapshot) -> str:
        self._finding = finding = self.view.finding
        victims, frames = self.query_one("#victims", Grid), self.query_one("#frames", Grid)
        chart, text = self.query_one("#times", Static), self.query_one("#about", Static)
        if finding is None:
            chart.update("")
            text.update("")
            victims.show(0, lambda row: ())
            frames.show(0, lambda row: ())
            return NOTHING
        self.set_class(self.size.width < NARROW, "narrow")
        start = self.start_ns(snapshot)
        chart.update(self._chart(snapshot, finding, start))
        text.update(about(finding))
        affected, evidence = finding.affected, finding.evidence
        victims.empty = "no queue pair suffers"
        victims.show(len(affected), lambda row: victim_cells(affected[row]))
        frames.empty = "no frame is named"
        taps = short_taps([*snapshot.source.tap_names, *(frame.tap for frame in evidence)])
        frames.show(len(evidence), lambda row: frame_cells(evidence[row], taps, start))
        shown = f"{human.counted(finding.queue_pairs, 'queue pair')} affected"
        more = len(finding.flows) - len(affected)
        listed = f", the worst {len(affected)} are listed" if affected and more > 0 else ""
        return f"{finding.kind}: {shown}{listed}; enter opens packets."

    def _chart(self, snapshot: Snapshot, finding: Finding, start_ns: int) -> Text:
        """Strips of all flows and of the affected flows, the interval, and the time axis."""
        width = self.size.width - 1
        axis, signals = Axis.of(snapshot, width), (("all, bytes", "wire_bytes"), *SIGNALS)
        lines = signal_lines(snapshot, axis, signals, False)
        known = snapshot.activity.shape[1] if snapshot.activity.ndim == 2 else 0
        hit = [flow for flow in finding.flows if flow < known]
        if hit:
            sums = snapshot.activity[:, np.asarray(hit)].sum(axis=1).tolist()
            spread = axis.spread(sums, snapshot.activity_start_ns, snapshot.activity_bin_ns)
            lines.insert(1, strip_line("affected, bytes", spread, human.size(sum(sums)), "cyan"))
        lines.append(axis.interval(finding.kind, finding.from_ns, finding.until_ns))
        lines.append(axis.numbers(start_ns))
        return Text("\n").join(lines)

    def _victim(self) -> FlowKey | None:
        at = self.query_one("#victims", Grid).cursor
        if self._finding is None or at >= len(self._finding.affected):
            return None
        victim = self._finding.affected[at]
        return FlowKey(victim.src, victim.dst, victim.dest_qp)

    def action_deeper(self) -> None:
        """To the packets of the flow under the cursor, at the onset or at the frame under it."""
        if self._finding is None:
            return
        if not self._point():
            self.notify("This finding names no flow")
            return
        self.host.go("packets")

    def before_leaving(self, name: str) -> None:
        if name in OF_A_FLOW:
            self._point()

    def _point(self) -> bool:
        """Select the flow under the cursor, and the packet to show of it; False without one."""
        finding = self._finding
        if finding is None:
            return False
        frames, snapshot = self.query_one("#frames", Grid), self.view.snapshot
        pointed = frames.has_focus and frames.cursor < len(finding.evidence)
        row = finding.evidence[frames.cursor] if pointed else None
        key = self._victim()
        flows = [] if row is None or row.flow is None else [row.flow]
        if not flows and key is None:
            flows = finding.flows
        if flows and flows[0] < len(snapshot.flows):
            key = snapshot.key(flows[0])
        if key is None:
            return False
        self.view.wanted_packet = (
            Point(finding.from_ns) if row is None else Point(row.time_ns, row.tap, row.frame_number)
        )
        self.view.select(key, by_user=True)
        return True


def victim_cells(victim: Affected) -> Sequence[Cell]:
    """One affected flow."""
    return (
        victim.src,
        victim.dst,
        human.queue_pair(victim.dest_qp),
        human.count(victim.packets),
        human.duration(victim.cost_ns),
        "" if victim.owner is None else human.owner(victim.owner),
    )


def frame_cells(frame: Evidence, taps: dict[str, str], start_ns: int) -> Sequence[Cell]:
    """One frame that shows the fault."""
    time = f"{(frame.time_ns - start_ns) / 1e9:.6f}"
    return taps[frame.tap], f"{frame.frame_number:,}", time
