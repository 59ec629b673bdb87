"""What the ranks of a training job do in its steps, as a Gantt chart."""

from __future__ import annotations

from collections.abc import Sequence

from ...analyzer.results.analysis import Analysis
from ...analyzer.results.jobs import JobStep, TrainingJob
from .. import human
from ..jobs import STATES, State, begin_of, in_order, intervals, rank_names
from ..notes import first_ns
from .drawing import WIDTH, Chart, Drawing, Value, shorten, ticks

MOST_STEPS, MOST_RANKS = 8, 32
"""Steps and ranks of a picture."""
_LEFT, _TOP, _ROW = 150.0, 40.0, 20.0
_KINDS: dict[State, tuple[str, float, float]] = {
    "computing": ("span note", 0.15, 3),
    "waiting": ("span warning", 0.55, 8),
    "sending": ("one", 1, 14),
    "waited for": ("span", 1, 14),
    "sends within": ("one", 0.4, 14),
}
"""Class, opacity and height: the states differ in height, too, where colours do not show."""


def ranks_in_steps(job: TrainingJob, analysis: Analysis) -> Chart | None:
    """The steps before, in and after the first wait for a rank, else the longest ones; None if no
    step says what its ranks do."""
    steps = shown_steps(job)
    if not steps:
        return None
    ranks = in_order(job, steps[-1])[:MOST_RANKS]
    names = rank_names(job)
    begin_ns, end_ns = begin_of(steps[0]), steps[-1].last_message_ns
    bottom = _TOP + _ROW * len(ranks)
    seen = {part.state for step in steps for one in step.ranks for part in intervals(step, one)}
    used = [state for state in STATES if state in seen]
    drawing = Drawing(bottom + 46 + 18 * len(used))

    def x(time_ns: float) -> float:
        return _LEFT + (WIDTH - 10 - _LEFT) * (time_ns - begin_ns) / max(1, end_ns - begin_ns)

    row = {rank.address: number for number, rank in enumerate(ranks)}
    for rank in ranks:
        label = f"{names.get(rank.address, 'rank ?')} {rank.address}"
        drawing.text(_LEFT - 6, _TOP + _ROW * row[rank.address] + 14, shorten(label, 22), "", "end")
    numbers: list[tuple[Value, ...]] = []
    since = first_ns(analysis)
    for step in steps:
        end = x(step.last_message_ns)
        drawing.line(end, _TOP - 6, end, bottom, "axis")
        middle = (x(begin_of(step)) + end) / 2
        drawing.text(middle, _TOP - 22, f"step {step.index}", "strong", "middle")
        lasted = "" if step.duration_ns is None else human.duration(step.duration_ns)
        drawing.text(middle, _TOP - 8, lasted, "soft", "middle")
        for one in step.ranks:
            if one.address not in row:
                continue
            top = _TOP + _ROW * row[one.address]
            total = dict.fromkeys(STATES, 0)
            for part in intervals(step, one):
                kind, opacity, height = _KINDS[part.state]
                left, right = x(part.from_ns), x(part.until_ns)
                y = top + (_ROW - height) / 2
                drawing.rect(left, y, max(0.5, right - left), height, kind, opacity)
                total[part.state] += part.until_ns - part.from_ns
            spent = (total[state] / 1e6 for state in used)
            numbers.append((step.index, names.get(one.address, "rank ?"), one.address, *spent))
    for tick in ticks(end_ns - begin_ns, 6):
        if tick <= (end_ns - begin_ns) * 1.001:
            near = "end" if x(begin_ns + tick) > WIDTH - 30 else "middle"
            text = human.duration(tick) if tick else "0"
            drawing.text(x(begin_ns + tick), bottom + 16, text, "soft", near)
    after = f"time since {human.duration(max(0, begin_ns - since))} after the first packet"
    drawing.text((_LEFT + WIDTH) / 2, bottom + 32, after, "soft", "middle")
    for number, state in enumerate(used):
        y = bottom + 42 + 18 * number
        kind, opacity, height = _KINDS[state]
        drawing.rect(_LEFT, y + (14 - height) / 2, 34, height, kind, opacity)
        drawing.text(_LEFT + 42, y + 11, STATES[state])
    hidden = [
        human.counted(left, what)
        for left, what in (
            (len(steps[-1].ranks) - len(ranks), "rank"),
            (0 if job.iterations is None else len(job.iterations.steps) - len(steps), "step"),
        )
        if left > 0
    ]
    return Chart(
        f"Ranks of job {job.name} in steps {steps[0].index} to {steps[-1].index}",
        "A row per rank; vertical lines are the ends of steps, with their durations. The times are"
        " those at the taps.",
        drawing,
        ("step", "rank", "address", *(f"{state}, ms" for state in used)),
        numbers,
        f"{' and '.join(hidden)} not shown." if hidden else "",
    )


def shown_steps(job: TrainingJob) -> Sequence[JobStep]:
    """At most MOST_STEPS consecutive steps with ranks."""
    if job.iterations is None:
        return []
    steps = job.iterations.steps
    known = [step for step in steps if step.ranks]
    if not known:
        return []
    if job.stragglers:
        first = max(0, job.stragglers[0].from_step - 2)
    else:
        longest = max(known, key=lambda step: step.duration_ns or 0)
        first = max(0, longest.index - MOST_STEPS // 2)
    first = max(0, min(first, len(steps) - MOST_STEPS))
    chosen: list[JobStep] = []
    for step in steps[first : first + MOST_STEPS]:
        if step.ranks and (not chosen or step.epoch == chosen[-1].epoch):
            chosen.append(step)
    return chosen or known[-1:]
