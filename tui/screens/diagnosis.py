"""Screen 1: what is wrong, where, since when and who suffers."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static

from ...analyzer.results.diagnosis import SEVERITIES, Finding
from ...analyzer.words import printable
from ...report.words import diagnosis as words
from ...report.words import human
from ...report.words.hops import short_taps
from ...report.words.human import UNICODE
from ..session.snapshots.snapshot import Snapshot
from ..session.words.findings import summary
from ..widgets.grid import Grid
from ..widgets.grid_columns import Cell, GridColumn
from .base import RoceScreen, own_bindings

COLUMNS = (
    GridColumn("kind", "FINDING", 18),
    GridColumn("place", "WHERE", 22, grows=True, ends=True),
    GridColumn("from", "FROM s", 9, True),
    GridColumn("until", "UNTIL s", 9, True, 3),
    GridColumn("qps", "QPs", 5, True),
    GridColumn("packets", "PACKETS", 8, True, 2),
    GridColumn("share", "SHARE", 8, True),
    GridColumn("cost", "COST", 8, True, 1),
    GridColumn("sure", "SURE", 8, priority=4),
)
STYLES = {"critical": "bad", "warning": "warn", "note": ""}


class DiagnosisScreen(RoceScreen):
    """The findings, worst first."""

    name_ = "diagnosis"
    of_record = False
    BINDINGS = own_bindings("diagnosis")

    def __init__(self) -> None:
        super().__init__()
        self._findings: Sequence[Finding] = ()

    def body(self) -> ComposeResult:
        yield Grid(COLUMNS, id="findings")
        with VerticalScroll(id="about", can_focus=False):
            yield Static(id="finding")

    def draw(self, snapshot: Snapshot) -> str:
        self._findings = findings = snapshot.judged.findings
        start = self.start_ns(snapshot)
        digits = 3 if snapshot.end_ns - start >= 10**9 else 6
        grid = self.query_one("#findings", Grid)
        grid.empty = "" if len(snapshot.flows) else self.what_next(snapshot)
        short = short_taps(snapshot.source.tap_names)
        grid.show(len(findings), lambda row: finding_cells(findings[row], short, start, digits))
        chosen = self.view.finding
        if chosen is not None:
            sought = chosen.kind, chosen.place
            at = [i for i, f in enumerate(findings) if (f.kind, f.place) == sought]
            if at:
                grid.put_cursor(at[0])
        self._about(snapshot, grid.cursor)
        return summary(snapshot)

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
        self.query_one("#finding", Static).update(text)

    @on(Grid.Moved, "#findings")
    def _moved(self, event: Grid.Moved) -> None:
        self._about(self.view.snapshot, event.row)

    def action_deeper(self) -> None:
        if self.view.finding is not None:
            self.host.go("evidence")


def finding_cells(
    finding: Finding, taps: dict[str, str], start_ns: int, digits: int
) -> Sequence[Cell]:
    """One row, in the order of COLUMNS. digits: of the times in seconds."""
    mark = UNICODE.severities[SEVERITIES.index(finding.severity)]
    until = finding.until_ns
    return (
        (f"{mark} {finding.kind}", STYLES[finding.severity]),
        words.place(finding.place, taps),
        f"{(finding.from_ns - start_ns) / 1e9:.{digits}f}",
        "end" if until is None else f"{(until - start_ns) / 1e9:.{digits}f}",
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
    text = Text(f"{mark} {printable(finding.sentence)}\n", style)
    if finding.next_step:
        text.append("next: ", "dim").append(f"{printable(finding.next_step)}\n", "bold")
    text.append(f"{finding.confidence}; {_share(finding)}\n", "dim")
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
