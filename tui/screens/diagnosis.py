"""Screen 1: what is wrong, where, since when and who suffers; the fabric and the axis of time.

Below: the evidence of a finding.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import Static

from ...analyzer.results.diagnosis import SEVERITIES, Affected, Evidence, Finding
from ...analyzer.words import printable
from ...report import human
from ...report import notes as words
from ...report.hops import short_taps
from ...report.human import UNICODE
from ...report.overview import MEASURES, Fabric
from ..clock import Clock
from ..fabric_map import FabricMap, legend, link_lines, link_strips
from ..grid import Cell, Grid, GridColumn
from ..session.packets import Point
from ..session.snapshot import FlowKey, Snapshot
from ..session.words import summary
from ..strips import (
    LABEL,
    MOST_BARS,
    SIGNALS,
    Axis,
    area_lines,
    overview_lines,
    signal_lines,
    time_line,
)
from .base import RoceScreen, go_to_hops, own_bindings, timed

COLUMNS = (
    GridColumn("kind", "FINDING", 18),
    GridColumn("place", "WHERE", 22, grows=True, ends=True),
    GridColumn("from", "FROM", 9, True),
    GridColumn("until", "UNTIL", 9, True, 3),
    GridColumn("qps", "QPs", 5, True),
    GridColumn("packets", "PACKETS", 8, True, 2),
    GridColumn("share", "SHARE", 8, True),
    GridColumn("cost", "COST", 8, True, 1),
    GridColumn("sure", "SURE", 8, priority=4),
)
STYLES = {"critical": "bad", "warning": "warn", "note": ""}
WIDE = 100
"""From here on the fabric and charts have panes of their own; below, a line each."""
_AROUND = 6
"""Lines of the other parts of a screen."""
_LEAST_CHARTS = 4


class DiagnosisScreen(RoceScreen):
    """The findings, worst first; where they are on the fabric, and when."""

    name_ = "diagnosis"
    of_record = False
    BINDINGS = own_bindings("diagnosis")

    def __init__(self) -> None:
        super().__init__()
        self._findings: Sequence[Finding] = ()
        self._words = Text()

    def body(self) -> ComposeResult:
        yield Grid(COLUMNS, id="findings")
        with Horizontal(id="middle"):
            with VerticalScroll(id="about", can_focus=False):
                yield Static(id="finding")
            with Vertical(id="where"):
                yield FabricMap("fabric-map")
                yield Static(id="legend")
                yield Static(id="link")
        yield Static(id="where-line")
        yield Static(id="when")

    def draw(self, snapshot: Snapshot) -> str:
        self._findings = findings = snapshot.judged.findings
        clock = self.clock(snapshot)
        digits = 3 if snapshot.end_ns - clock.origin_ns >= 10**9 else 6
        grid = self.query_one("#findings", Grid)
        grid.set_columns(timed(COLUMNS, clock, digits, "from", "until"))
        grid.empty = "" if len(snapshot.flows) else self.what_next(snapshot)
        short = short_taps(snapshot.source.tap_names)
        grid.show(
            len(findings),
            lambda row: finding_cells(findings[row], short, clock, digits),
            lambda row: str(row + 1) if row < MOST_BARS else " ",
        )
        chosen = self.view.finding
        if chosen is not None:
            sought = chosen.kind, chosen.place
            at = [i for i, f in enumerate(findings) if (f.kind, f.place) == sought]
            if at:
                grid.put_cursor(at[0])
        self._about(snapshot, grid.cursor)
        self._where_and_when(snapshot, clock)
        return summary(snapshot)

    def _where_and_when(self, snapshot: Snapshot, clock: Clock) -> None:
        """The fabric and the axis of time, in the lines that findings and their words leave."""
        overview = snapshot.judged.overview
        fabric = None if overview is None else overview.fabric
        time = None if overview is None else overview.time
        wide, some = self.size.width >= WIDE, bool(len(snapshot.flows))
        self.set_class(wide, "wide")
        self.set_class(wide and fabric is not None, "with-fabric")
        self.without_effect = frozenset() if wide and fabric is not None else frozenset({"measure"})
        line, when = self.query_one("#where-line", Static), self.query_one("#when", Static)
        line.display, when.display = some and not wide and fabric is not None, some
        width = self.size.width - 1
        if fabric is not None:
            text = Text(f"{'fabric':>{LABEL}} ", "dim", no_wrap=True, overflow="ellipsis")
            line.update(text.append(fabric.sentence(), "not dim"))
        if not wide:
            when.update(time_line(snapshot, time, width))
            return
        body = self.size.height - _AROUND
        findings = min(len(self._findings) + 1, max(4, body // 4)) if some else body
        need = self._text_lines(width // 2 if fabric is not None else width)
        if fabric is not None:
            shown = self.query_one("#fabric-map", FabricMap)
            shown.show_fabric(fabric, MEASURES[self.view.fabric_measure])
            self._show_link(fabric)
            need = max(need, shown.lines_needed + 6)
        middle = min(need + 1, max(body // 3, body - findings - 2 * _LEAST_CHARTS))
        self.query_one("#findings").styles.height = findings
        self.query_one("#middle").styles.height = middle
        room = max(_LEAST_CHARTS, body - findings - middle - 1)
        taps = snapshot.source.tap_names
        strips = link_strips(fabric, taps, snapshot.timeline.tap_bytes)
        lines = overview_lines(snapshot, time, strips, clock, width, room)
        when.update(Text("\n").join(lines))

    def _text_lines(self, width: int) -> int:
        """Lines of the words about the finding, in this many columns."""
        text = self._words.wrap(self.app.console, max(20, width - 3))
        return len(text)

    def _show_link(self, fabric: Fabric) -> None:
        """What the signs mean, and the numbers of the link under the cursor."""
        measure = MEASURES[self.view.fabric_measure]
        self.query_one("#legend", Static).update(legend(fabric, measure))
        shown = self.query_one("#fabric-map", FabricMap)
        self.query_one("#link", Static).update(link_lines(fabric, shown.link))

    @on(Grid.Moved, "#fabric-map")
    def _other_link(self) -> None:
        overview = self.view.snapshot.judged.overview
        if overview is not None and overview.fabric is not None:
            self._show_link(overview.fabric)

    def action_measure(self) -> None:
        """The next measure of the cells."""
        self.view.fabric_measure = (self.view.fabric_measure + 1) % len(MEASURES)
        self.redraw()

    def _about(self, snapshot: Snapshot, row: int) -> None:
        """The finding under the cursor; then what is healthy, and what cannot be told."""
        self.view.finding = self._findings[row] if row < len(self._findings) else None
        text = Text()
        if self.view.finding is not None:
            text.append_text(about(self.view.finding))
        diagnosis = snapshot.judged.diagnosis
        if diagnosis is not None:
            mark = (UNICODE.good, "green") if diagnosis.complete else (human.UNKNOWN, "dim")
            so_far = "" if diagnosis.complete else "so far: "
            for line in diagnosis.healthy:
                text.append(f"{mark[0]} ", mark[1]).append(f"{so_far}{printable(line)}\n")
            for line in diagnosis.limits:
                text.append(f"{human.UNKNOWN} {printable(line)}\n", "dim")
        text.rstrip()
        self._words = text
        self.query_one("#finding", Static).update(text)

    @on(Grid.Moved, "#findings")
    def _moved(self, event: Grid.Moved) -> None:
        self._about(self.view.snapshot, event.row)

    def action_deeper(self) -> None:
        """The evidence of the finding, or the hops of the link under the cursor."""
        shown = self.query_one("#fabric-map", FabricMap)
        if shown.has_focus:
            go_to_hops(self, shown)
        elif self.view.finding is not None:
            self.host.go("evidence")


def finding_cells(
    finding: Finding, taps: dict[str, str], clock: Clock, digits: int
) -> Sequence[Cell]:
    """One row, in the order of COLUMNS. digits: of the fraction of a second."""
    mark = UNICODE.severities[SEVERITIES.index(finding.severity)]
    until = finding.until_ns
    return (
        (f"{mark} {finding.kind}", STYLES[finding.severity]),
        words.place(finding.place, taps),
        clock.text(finding.from_ns, digits),
        "end" if until is None else clock.text(until, digits),
        human.count(finding.queue_pairs),
        human.count(finding.packets),
        human.percent(finding.share_percent / 100),
        human.duration(finding.cost_ns),
        finding.confidence,
    )


def about(finding: Finding) -> Text:
    """The finding in words: sentence, next step, and how sure it is."""
    style = {"critical": "bold red", "warning": "yellow", "note": "bold"}[finding.severity]
    mark = UNICODE.severities[SEVERITIES.index(finding.severity)]
    text = Text().append(f"{mark} {printable(finding.sentence)}\n", style)
    if finding.next_step:
        text.append("next: ", "dim").append(f"{printable(finding.next_step)}\n", "bold")
    parts = [finding.confidence, _share(finding)] if finding.of_packets else [finding.confidence]
    text.append(f"{'; '.join(parts)}\n", "dim")
    return text


def _share(finding: Finding) -> str:
    """`71 of 7,904 packets, 0.90 % (95 %: 0.70 to 1.1 %); onset known to 40.0 ms`"""
    of = human.counted(finding.of_packets, "packet")
    text = f"{human.count(finding.packets)} of {of}, {human.percent(finding.share_percent / 100)}"
    if finding.share_low_percent is not None and finding.share_high_percent is not None:
        low, high = finding.share_low_percent / 100, finding.share_high_percent / 100
        text += f" (95 %: {human.percent(low)} to {human.percent(high)})"
    if finding.onset_uncertainty_ns:
        text += f"; onset at most {human.duration(finding.onset_uncertainty_ns)} earlier"
    return text


# Evidence of one finding: its interval on the time axis, its victims, its packets.

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
    GridColumn("time", "TIME", 11, True, 1),
)
_EVIDENCE_LINES = 26
"""Lines of the evidence besides charts and affected queue pairs, most frames included."""
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
        clock = self.clock(snapshot)
        chart.update(self._chart(snapshot, finding, clock))
        text.update(about(finding))
        affected, evidence = finding.affected, finding.evidence
        victims.empty = "no queue pair suffers"
        victims.show(len(affected), lambda row: victim_cells(affected[row]))
        frames.empty = "no frame is named"
        taps = short_taps([*snapshot.source.tap_names, *(frame.tap for frame in evidence)])
        frames.set_columns(timed(_FRAMES, clock, 6, "time"))
        frames.show(len(evidence), lambda row: frame_cells(evidence[row], taps, clock))
        shown = f"{human.counted(finding.queue_pairs, 'queue pair')} affected"
        more = len(finding.flows) - len(affected)
        listed = f", the worst {len(affected)} are listed" if affected and more > 0 else ""
        return f"{finding.kind}: {shown}{listed}; enter opens packets."

    def _chart(self, snapshot: Snapshot, finding: Finding, clock: Clock) -> Text:
        """Strips of all flows and of the affected flows, the interval, and the time axis."""
        width = self.size.width - 1
        axis, signals = Axis.of(snapshot, width), (("all, bytes", "wire_bytes"), *SIGNALS)
        spare = self.size.height - _EVIDENCE_LINES - min(20, len(finding.affected))
        height = max(1, min(6, spare // (len(signals) + 1)))
        lines = signal_lines(snapshot, axis, signals, False, height)
        known = snapshot.activity.shape[1] if snapshot.activity.ndim == 2 else 0
        hit = [flow for flow in finding.flows if flow < known]
        if hit:
            sums = snapshot.activity[:, np.asarray(hit)].sum(axis=1).tolist()
            spread = axis.spread(sums, snapshot.activity_start_ns, snapshot.activity_bin_ns)
            total, most = human.size(sum(sums)), ""
            hit_lines = area_lines("affected, bytes", spread, height, total, most, "cyan")
            lines[height:height] = hit_lines
        lines.append(axis.interval(finding.kind, finding.from_ns, finding.until_ns))
        lines.append(axis.numbers(clock))
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


def frame_cells(frame: Evidence, taps: dict[str, str], clock: Clock) -> Sequence[Cell]:
    """One frame that shows the fault."""
    return taps[frame.tap], f"{frame.frame_number:,}", clock.text(frame.time_ns, 6)
