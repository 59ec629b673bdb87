"""In-network aggregation: schemes on the same jobs, and the jobs and memory of one of them."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.widgets import Static

from ...analyzer.errors import RocescopeError
from ...analyzer.words import printable
from ...replay.results import ALL_REDUCES, AggregationResult, SchemeResult
from ...report import human
from ...report.terminal.aggregate import fastest, plain, title, unlike
from ..grid import Cell, Grid, GridColumn
from ..session.replays import STOPPING, AggregationView
from ..session.snapshot import Snapshot
from .base import RoceScreen, own_bindings
from .packets import RECORDING
from .prompts import TextPrompt
from .replay import fabric_of

COLUMNS = (
    GridColumn("name", "SCHEME", 14, grows=True, most=36),
    GridColumn("slots", "SLOTS", 7, True),
    GridColumn("mean", "MEAN JCT", 9, True),
    GridColumn("best", "X BEST", 7, True),
    GridColumn("bar", "", 10, priority=5, grows=True, most=24),
    GridColumn("whole", "AGGREGATED", 10, True),
    GridColumn("used", "USED", 7, True, 1),
    GridColumn("useful", "USEFUL", 7, True, 1),
    GridColumn("server", "TO SERVER", 9, True, 3),
    GridColumn("collisions", "COLLISIONS", 10, True, 3),
    GridColumn("preempt", "PREEMPT", 8, True, 4),
    GridColumn("retrans", "RETRANS", 8, True, 2),
    GridColumn("links", "ON LINKS", 8, True, 2),
)
NOTHING_YET = """r  sums the gradients of the all-reduces in this capture in switches:
   {fabric}
f  sets the fabric and options: --jobs --memory --scheme --jitter --loss
   such as --jobs count=4,workers=8,model=comm --memory 1024 --memory 4096"""
_NONE: Cell = ("-", "dim")
_MOST_JOBS = 8


class AggregationScreen(RoceScreen):
    """Schemes, and below them the jobs, memory and links of the one under the cursor."""

    name_ = "aggregation"
    of_record = False
    BINDINGS = own_bindings("aggregation")

    def __init__(self) -> None:
        super().__init__()
        self._drawn: AggregationView | None = None

    def body(self) -> ComposeResult:
        yield Grid(COLUMNS, id="schemes")
        yield Static(id="scheme")

    def on_mount(self) -> None:
        self.set_interval(0.25, self._while_running)

    def _while_running(self) -> None:
        if self.is_current and self.view.aggregations.view is not self._drawn:
            self.redraw()

    def draw(self, snapshot: Snapshot) -> str:
        view = self._drawn = self.view.aggregations.view
        grid = self.query_one("#schemes", Grid)
        schemes = view.result.schemes if view.result is not None else []
        grid.empty = NOTHING_YET.format(fabric=self._words(snapshot))
        if not self.view.session.paths:
            grid.empty = f"{RECORDING}\nf  sets a fabric and --jobs"
        known = [scheme.mean_completion_ns for scheme in schemes if scheme.mean_completion_ns]
        least, most = min(known, default=0), max(known, default=0)
        grid.show(
            len(schemes),
            lambda row: scheme_cells(
                schemes[row], view.result, least, most, grid.width_of("bar") or 10
            ),
        )
        self.query_one("#scheme", Static).update(self._below(view))
        return sentence(view)

    def _words(self, snapshot: Snapshot) -> str:
        return self.view.aggregations.view.words or f"{fabric_of(snapshot, least=2)} order"

    def _below(self, view: AggregationView) -> Text:
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(f" {view.words or 'no fabric is set'}", "dim")
        if view.running:
            text.append(f"\n {human.UNICODE.bar(view.done, 20):<20} {view.running}", "bold")
        result, cursor = view.result, self.query_one("#schemes", Grid).cursor
        if result is None:
            return text
        scheme = result.schemes[min(cursor, len(result.schemes) - 1)]
        text.append_text(about(scheme, result, max(20, self.size.width - 30)))
        for line in result.warnings[:3]:
            wrapped = wrap(printable(line), max(20, self.size.width - 4))
            text.append("\n ▲ " + "\n   ".join(wrapped), "yellow")
        for line in _assumed(scheme, result):
            wrapped = wrap(f"assumed: {line}", max(20, self.size.width - 4))
            text.append("\n ▪ " + "\n   ".join(wrapped), "dim")
        return text

    @on(Grid.Moved, "#schemes")
    def _moved(self) -> None:
        self.query_one("#scheme", Static).update(self._below(self.view.aggregations.view))

    def action_run(self) -> None:
        """Run, on a fabric that fits the hosts if none is set."""
        aggregations = self.view.aggregations
        if not aggregations.view.words:
            if not self.view.session.paths or not len(self.view.snapshot.flows):
                self.notify("Nothing to run: f sets a fabric and --jobs")
                return
            if not self._set(self._words(self.view.snapshot)):
                return
        aggregations.run()
        self.redraw()

    def action_fabric(self) -> None:
        """Ask for fabric and options, then run."""

        def keep(text: str | None) -> None:
            if text and self._set(text):
                self.action_run()

        self.app.push_screen(
            TextPrompt(
                "fabric, map, options as of rocescope aggregate",
                self._words(self.view.snapshot),
            ),
            keep,
        )

    def _set(self, text: str) -> bool:
        try:
            self.view.aggregations.set_words(text)
        except RocescopeError as error:
            self.notify(printable(str(error)), severity="error", markup=False)
            return False
        return True

    def action_stop(self) -> None:
        """Stop the run."""
        self.view.aggregations.stop(wait=False)
        self.redraw()


def _assumed(chosen: SchemeResult, result: AggregationResult) -> list[str]:
    """What is assumed of all schemes, and of this one."""
    name = chosen.name.partition(":")[0]
    others = {scheme.name.partition(":")[0] for scheme in result.schemes} - {name}
    if name not in ALL_REDUCES:
        others.add(" and ".join(ALL_REDUCES))
    return [
        line
        for line in result.assumed
        if not any(line.startswith((f"{other}:", f"{other} over")) for other in others)
    ]


def sentence(view: AggregationView) -> str:
    """The fastest scheme beside the faster all-reduce, or what happens."""
    if view.error:
        return f"Stopped: {printable(view.error)}"
    if view.running:
        return "Stopping." if view.running == STOPPING else f"Running: {view.running}."
    if view.result is None:
        return "No scheme has run yet: r runs them all."
    best, other = fastest(view.result), plain(view.result)
    if best is None or not best.mean_completion_ns:
        return "No scheme with limited memory ended its jobs."
    text = f"{title(best)} completes jobs first, in {human.duration(best.mean_completion_ns)}"
    if other is not None and other.mean_completion_ns:
        ratio = other.mean_completion_ns / best.mean_completion_ns
        text += f"; a {other.name} all-reduce{unlike(best)} takes {ratio:.2f} times as long"
    return f"{text}."


def scheme_cells(
    given: SchemeResult, result: AggregationResult | None, least: float, most: float, width: int
) -> Sequence[Cell]:
    """One row, in the order of COLUMNS; least and most: of the mean completion times."""
    mean, plain = given.mean_completion_ns, given.name in ALL_REDUCES
    weights = [] if result is None else [job.fragments * job.iterations for job in result.jobs]
    shares = [job.aggregated_percent for job in given.jobs]
    ratio = sum(w * share for w, share in zip(weights, shares, strict=False)) / max(1, sum(weights))

    def total(name: str) -> Cell:
        return _NONE if plain else human.count(round(sum(getattr(job, name) for job in given.jobs)))

    def percent(value: float | None) -> Cell:
        return _NONE if value is None else f"{value:.1f} %"

    return (
        given.name,
        _NONE if given.slots is None else human.count(given.slots),
        ("not ended", "warn") if mean is None else human.duration(mean),
        _NONE if mean is None else (f"{mean / least:.2f}", "good" if mean == least else ""),
        "" if mean is None else human.UNICODE.bar(mean / most, width),
        _NONE if plain else f"{ratio:.1f} %",
        percent(given.used_percent),
        percent(given.useful_percent),
        total("server_packets"),
        total("collisions"),
        total("preemptions"),
        total("retransmitted"),
        human.size(given.wire_bytes),
    )


def about(scheme: SchemeResult, result: AggregationResult, width: int) -> Text:
    """Memory over time, busiest links and jobs of a scheme."""
    text = Text()
    text.append(f"\n {title(scheme)}", "bold")
    if scheme.occupancy is not None:
        for name, values in (
            ("slots used", scheme.occupancy.used_percent),
            ("useful", scheme.occupancy.useful_percent),
        ):
            line = human.UNICODE.sparkline([round(100 * value) for value in values], width)
            text.append(f"\n {name:<11}", "").append(line, "cyan")
            text.append(f" up to {max(values):.1f} %", "dim")
    if scheme.links:
        links = ", ".join(
            f"{printable(link.link)} {human.size(link.wire_bytes)}" for link in scheme.links[:3]
        )
        text.append(f"\n busiest    {links}", "")
    for job, summary in list(zip(scheme.jobs, result.jobs, strict=True))[:_MOST_JOBS]:
        captured = summary.captured_ns
        text.append(
            f"\n {job.name}: {human.counted(len(summary.workers), 'worker')}, "
            f"{human.duration(job.completion_ns)}",
            "",
        )
        if captured is not None:
            text.append(f", as captured {human.duration(captured)}", "dim")
    if len(result.jobs) > _MOST_JOBS:
        text.append(f"\n {human.counted(len(result.jobs) - _MOST_JOBS, 'further job')}", "dim")
    return text
