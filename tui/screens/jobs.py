"""Training jobs: their steps, and what each rank does in the step under the cursor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.widgets import Static

from ...analyzer.results.diagnosis import SEVERITIES
from ...analyzer.results.jobs import JobStep, StepRank, TrainingJob
from ...analyzer.words import printable
from ...report import human
from ...report.human import UNICODE
from ...report.jobs import (
    STATES,
    Said,
    State,
    begin_of,
    in_order,
    intervals,
    is_training,
    overview,
    rank_names,
    said,
    slots,
    sources,
)
from ..clock import Clock
from ..grid import Cell, Grid, GridColumn
from ..session import words
from ..session.snapshot import FlowKey, Snapshot
from ..strips import LABEL, Axis
from .base import RoceScreen, own_bindings, timed

_WEIGHTS: Final[dict[State, float]] = {
    "computing": 1.0,
    "waiting": 1.5,
    "sends within": 1.5,
    "waited for": 2.0,
    "sending": 2.5,
}
"""Of the states of one column: short bursts of data stay visible."""


def listed(jobs: Sequence[TrainingJob]) -> list[TrainingJob]:
    """Jobs with steps, ranks or a hang first; then traffic without iterations."""
    return sorted(jobs, key=lambda job: not is_training(job))


def steps_of(job: TrainingJob | None) -> Sequence[JobStep]:
    """The steps of a job; none of an absent one."""
    return [] if job is None or job.iterations is None else job.iterations.steps


def columns_of(step: JobStep, rank: StepRank, columns: int) -> list[State | None]:
    """The state of a rank in each of `columns` equal parts of a step; None: unknown."""
    begin = begin_of(step)
    width = max(1, step.last_message_ns - begin) / columns
    states: list[dict[State, float]] = [{} for _ in range(columns)]
    for part in intervals(step, rank):
        first = max(0, int((part.from_ns - begin) / width))
        last = min(columns - 1, int((part.until_ns - begin) / width))
        for column in range(first, last + 1):
            low = max(part.from_ns, begin + column * width)
            high = min(part.until_ns, begin + (column + 1) * width)
            if high > low:
                spent = states[column].get(part.state, 0.0) + (high - low) * _WEIGHTS[part.state]
                states[column][part.state] = spent
    return [_most(spent) for spent in states]


def _most(spent: dict[State, float]) -> State | None:
    return max(spent, key=lambda state: spent[state], default=None)


def ranks_shown(job: TrainingJob, step: JobStep, most: int) -> list[StepRank]:
    """At most `most` neighbours by rank, with the one that is waited for among them."""
    ranks = in_order(job, step)
    at = next((i for i, one in enumerate(ranks) if one.address == step.waited_for_address), 0)
    first = max(0, min(at - most // 2, len(ranks) - most))
    return ranks[first : first + most]


def span_of(step: JobStep) -> tuple[int, int]:
    """From the end of the step before to the last packet of the step."""
    ends = [one.last_data_ns for one in step.ranks if one.last_data_ns is not None]
    return begin_of(step), max([step.last_message_ns, *ends])


def sender_of(step: JobStep) -> str | None:
    """The rank that is waited for, else the one whose data ends last."""
    if step.waited_for_address is not None:
        return step.waited_for_address
    ends = {one.address: one.last_data_ns for one in step.ranks if one.last_data_ns is not None}
    return max(ends, key=lambda address: ends[address], default=None)


COLUMNS = (
    GridColumn("step", "STEP", 6, True),
    GridColumn("end", "END", 9, True),
    GridColumn("duration", "DURATION", 9, True),
    GridColumn("change", "CHANGE", 7, True),
    GridColumn("waited", "WAITED", 8, True, 1),
    GridColumn("for", "WAITED FOR", 18, grows=True, ends=True, most=32),
    GridColumn("network", "NETWORK", 14, True, 2),
    GridColumn("bytes", "BYTES", 8, True, 3),
    GridColumn("bar", "", 8, priority=4, grows=True),
)
NOTHING = """No training job: no flow carries the messages of one.

1  tells what was checked"""
GLYPHS: dict[State | None, tuple[str, str]] = {
    "computing": ("·", "dim"),
    "sending": ("█", "cyan"),
    "waiting": ("░", "yellow"),
    "waited for": ("▲", "bold red"),
    "sends within": ("▒", "cyan"),
    None: (" ", ""),
}
"""Character and style of each state: they differ without colours, too."""
SLOW = 0.05
"""A step that lasts longer than the median by this share stands out."""
_WAITS, _AROUND = 10, 4
"""Terminal columns of the wait of a rank; lines of the chart besides its ranks."""
_TALL = 30
"""Lines from which everything is said below the chart."""
_STYLES = {"critical": "bold red", "warning": "yellow", "note": ""}


class JobsScreen(RoceScreen):
    """The steps of one job, its ranks in the step under the cursor, and what stands out."""

    name_ = "jobs"
    of_record = False
    BINDINGS = own_bindings("jobs")

    def __init__(self) -> None:
        super().__init__()
        self._jobs: Sequence[TrainingJob] = ()
        self._at = 0
        self._followed: tuple[int, int] | None = None
        """Job and number of steps for which the cursor was placed."""

    def body(self) -> ComposeResult:
        yield Grid(COLUMNS, id="steps")
        yield Static(id="gantt")
        yield Static(id="about")

    @property
    def job(self) -> TrainingJob | None:
        """The job that is shown."""
        return self._jobs[self._at] if self._at < len(self._jobs) else None

    def draw(self, snapshot: Snapshot) -> str:
        self.set_class(self.size.height < _TALL, "small")
        judged = snapshot.judged
        self._jobs = listed(judged.jobs)
        self._at = min(self._at, max(0, len(self._jobs) - 1))
        job, steps = self.job, steps_of(self.job)
        self.without_effect = frozenset(
            name
            for name, works in (
                ("deeper", bool(steps)),
                ("next_job", len(self._jobs) > 1),
                ("previous_job", len(self._jobs) > 1),
            )
            if not works
        )
        grid = self.query_one("#steps", Grid)
        grid.empty = NOTHING if judged.diagnosis is not None else printable(judged.why)
        if job is not None:
            grid.empty = f"No iterations: {printable(job.iterations_reason or 'unknown why')}."
            if len(self._jobs) > 1:
                grid.empty += "\n\nn N  show the other jobs"
        clock = self.clock(snapshot)
        grid.set_columns(timed(COLUMNS, clock, 4, "end"))
        grid.show(len(steps), lambda row: step_cells(job, steps[row], clock) if job else ())
        if job is not None and (job.id, len(steps)) != self._followed:
            self._followed = job.id, len(steps)
            grid.put_cursor(first_of_interest(job))
        self._chart(grid.cursor)
        self._about(snapshot)
        if job is None:
            if why := words.nothing(snapshot):
                return why
            return "No training job." if judged.diagnosis is not None else printable(judged.why)
        of = f" ({self._at + 1} of {len(self._jobs)})" if len(self._jobs) > 1 else ""
        if not is_training(job):
            return f"No training job{of}: {overview(job)}."
        return f"Job {printable(job.name)}{of}: {overview(job)}."

    def _chart(self, row: int) -> None:
        drawn, steps = self.query_one("#gantt", Static), steps_of(self.job)
        step = steps[row] if row < len(steps) else None
        drawn.display = step is not None and self.job is not None
        if step is not None and self.job is not None:
            most = max(2, self.size.height // 2 - _AROUND)
            clock = self.clock(self.view.snapshot)
            drawn.update(gantt(self.job, step, self.size.width - 2, most, clock))

    def _about(self, snapshot: Snapshot) -> None:
        """What stands out, and where the ranks are from."""
        about, job = self.query_one("#about", Static), self.job
        about.display = job is not None and is_training(job)
        if job is None:
            return
        text = Text()
        if job.iterations is not None or job.hang is not None:
            for line in said(job, snapshot.judged.findings, self.start_ns(snapshot)):
                style = _STYLES[line.severity or "note"]
                text.append(f"{mark(line)} {printable(line.text)}\n", style)
        known = [*filter(None, [slots(job)]), sources([job])]
        text.append("; ".join(known), "dim")
        about.update(text)

    @on(Grid.Moved, "#steps")
    def _moved(self, event: Grid.Moved) -> None:
        self._chart(event.row)

    def action_next_job(self) -> None:
        self._show_job(1)

    def action_previous_job(self) -> None:
        self._show_job(-1)

    def _show_job(self, way: int) -> None:
        if len(self._jobs) > 1:
            self._at = (self._at + way) % len(self._jobs)
            self.redraw()

    def action_deeper(self) -> None:
        """To the packets of the step under the cursor: of the rank that is waited for, else of the
        one whose data ends last."""
        row, steps, job = self.query_one("#steps", Grid).cursor, steps_of(self.job), self.job
        if job is None or row >= len(steps):
            return
        key = self._flow_of(job, sender_of(steps[row]))
        if key is None:
            self.notify("The flows of this job are not listed here")
            return
        self.view.wanted_span = (
            span_of(steps[row]),
            f"step {steps[row].index} of job {printable(job.name)}",
        )
        self.view.select(key, by_user=True)
        self.host.go("packets")

    def _flow_of(self, job: TrainingJob, sender: str | None) -> FlowKey | None:
        """The flow of the job with most bytes, of this sender if there is one."""
        snapshot = self.view.snapshot
        flows = [flow for flow in job.flows if flow < len(snapshot.flows)]
        own = [flow for flow in flows if snapshot.key(flow).src == sender]
        sizes = snapshot.flows.wire_bytes
        most = max(own or flows, key=lambda flow: int(sizes[flow]), default=None)
        return None if most is None else snapshot.key(most)


def mark(line: Said) -> str:
    """The mark of a sentence."""
    if line.severity == "warning":
        return UNICODE.warning
    return UNICODE.severities[SEVERITIES.index(line.severity or "note")]


def first_of_interest(job: TrainingJob) -> int:
    """The first step in which a rank is waited for, else the longest one."""
    if job.stragglers:
        return job.stragglers[0].from_step
    steps = steps_of(job)
    lasting = [step.duration_ns or 0 for step in steps]
    return lasting.index(max(lasting)) if lasting else 0


def step_cells(job: TrainingJob, step: JobStep, clock: Clock) -> Sequence[Cell]:
    """One row, in the order of COLUMNS."""
    usual = 0.0 if job.iterations is None else job.iterations.period_p50_ns
    lasted = step.duration_ns
    change = None if lasted is None or usual <= 0 else lasted / usual - 1
    is_slow = change is not None and change > SLOW
    longest = max((one.duration_ns or 0 for one in steps_of(job)), default=0)
    percent = 0 if change is None else round(change * 100)
    text = "" if change is None else f"{percent:+d} %" if percent else "0 %"
    shown: Cell = (f"{UNICODE.warning} {text}", "warn") if is_slow else text
    return (
        str(step.index),
        clock.text(step.last_message_ns, 4),
        (human.duration(lasted), "warn" if is_slow else ""),
        shown,
        human.duration(step.waited_ns),
        waited_for(step),
        network(step),
        human.size(step.payload_bytes),
        (UNICODE.bar((lasted or 0) / longest if longest else 0, 8), "warn" if is_slow else "dim"),
    )


def waited_for(step: JobStep) -> Cell:
    """`rank 2 10.1.3.11`; `-`: no rank stands out, or it is unknown."""
    if step.waited_for_address is None:
        return "-", "dim"
    rank = "" if step.waited_for is None else f"rank {step.waited_for} "
    return rank + printable(step.waited_for_address), "warn"


def network(step: JobStep) -> str:
    """The network's part: `6.9 %`, `2.6 to 14 %`."""
    lasted = step.duration_ns
    low, high, exact = step.network_low_ns, step.network_high_ns, step.network_ns
    if not lasted:
        return human.UNKNOWN
    if exact is not None:
        return human.percent(exact / lasted)
    if low is None or high is None:
        return human.UNKNOWN
    return f"{human.percent(low / lasted).removesuffix(' %')} to {human.percent(high / lasted)}"


def gantt(job: TrainingJob, step: JobStep, width: int, most: int, clock: Clock) -> Text:
    """A line per rank over the time of one step, its axis and the states."""
    names, shown = rank_names(job), ranks_shown(job, step, most)
    begin = begin_of(step)
    lasted = human.duration(step.last_message_ns - begin)
    text = Text(f" step {step.index}", "bold", no_wrap=True, overflow="ellipsis")
    hidden = len(step.ranks) - len(shown)
    more = f"; {human.counted(hidden, 'rank')} not shown" if hidden > 0 else ""
    text.append(f"  {lasted} from {clock.point(begin, 4)}{more}\n", "dim not bold")
    if not shown:
        text.append(" the ranks are kept for the newest and the longest steps only", "dim not bold")
        return text
    axis = Axis(begin, max(1, step.last_message_ns - begin), max(10, width - LABEL - 1 - _WAITS))
    used: set[State] = set()
    for rank in shown:
        used |= _line(text, rank, names.get(rank.address, ""), step, axis.columns)
    text.append_text(axis.numbers(clock if clock.of_day else Clock(begin))).append("\n")
    legend = Text(" ", "not bold")
    for state, meaning in STATES.items():
        if state in used:
            glyph, style = GLYPHS[state]
            legend.append(f"{glyph} ", f"{style} not dim").append(f"{meaning}  ", "dim")
    return text.append_text(legend)


def _line(text: Text, rank: StepRank, name: str, step: JobStep, columns: int) -> set[State]:
    """Append the line of a rank; returns the states in it."""
    known = "" if name == "rank ?" else f"{name} "
    label = UNICODE.shorten(known + printable(rank.address), LABEL)
    is_late = rank.address == step.waited_for_address
    text.append(f"{label:>{LABEL}} ", "bold" if is_late else "dim not bold")
    states = columns_of(step, rank, columns)
    for state in states:
        glyph, style = GLYPHS[state]
        text.append(glyph, f"{style} not bold" if "bold" not in style else style)
    waits = "" if not rank.waited_ns else f"{human.duration(rank.waited_ns):>{_WAITS}}"
    text.append(f"{waits}\n", "dim not bold")
    return {state for state in states if state is not None}
