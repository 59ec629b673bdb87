"""Training jobs for the screen: which are shown, and the states of ranks by terminal column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...analyzer.results.jobs import JobStep, StepRank, TrainingJob
from ...report.jobs import State, begin_of, in_order, intervals, is_training

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
