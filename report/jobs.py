"""Training jobs in words, and what each rank does in a step as intervals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Final, Literal, NamedTuple

from ..analyzer.diagnosis.finders.jobs import WHY, rank_name
from ..analyzer.results.analysis import Analysis
from ..analyzer.results.diagnosis import Finding, Severity
from ..analyzer.results.jobs import (
    Iterations,
    JobGroup,
    JobStep,
    StepRank,
    Straggler,
    TrainingJob,
)
from ..analyzer.words import printable
from .human import counted, duration, message_size, percent, span
from .notes import first_ns

# What a job is and does, as sentences.

_ALIKE: Final = 0.05
"""Steps within this share of their median are all alike."""
_ALL: Final = 0.95
"""Of a step: bounds that are further apart say nothing."""
_MOST_NAMED: Final = 3
_SEE: Final = "{}, see the diagnosis"
_PATTERNS = {
    "ring": "ring of",
    "tree": "tree of",
    "pairs": "pairs among",
    "exchange": "all-to-all of",
    "unknown": "unknown pattern of",
}


class Said(NamedTuple):
    """One sentence about a job."""

    severity: Severity | None
    """None: no more than what the job is."""
    text: str


def training(jobs: Sequence[TrainingJob]) -> list[TrainingJob]:
    """The jobs that are no other traffic."""
    return [job for job in jobs if is_training(job)]


def is_training(job: TrainingJob) -> bool:
    """Whether a job shows a sign of training: steps, ranks or a hang."""
    named = any(rank.rank is not None for rank in job.ranks)
    return named or job.iterations is not None or job.hang is not None


def heading(jobs: Sequence[TrainingJob]) -> str:
    """`2 training jobs, 4 ranks each`; `no training job` without jobs."""
    if not jobs:
        return "no training job"
    sizes = [len(job.ranks) for job in jobs]
    each = " each" if len(jobs) > 1 else ""
    ranks = f"{counted(sizes[0], 'rank')}{each}" if len(set(sizes)) == 1 else f"{span(sizes)} ranks"
    hosts = {frozenset(rank.host for rank in job.ranks) for job in jobs}
    same = next(iter(hosts)) if len(hosts) == 1 and len(jobs) > 1 else frozenset({None})
    shared = "" if None in same else f", on the same {counted(len(same), 'host')}"
    return f"{counted(len(jobs), 'training job')}, {ranks}{shared}"


def sentences(job: TrainingJob, analysis: Analysis) -> list[Said]:
    """The job, then who is waited for and what the network costs, then what does not show."""
    begin = first_ns(analysis)
    return [Said(None, overview(job)), *said(job, analysis.diagnosis.findings, begin)]


def said(job: TrainingJob, findings: Sequence[Finding], begin_ns: int) -> Iterator[Said]:
    yield from _stops(job, begin_ns)
    iterations = job.iterations
    if iterations is None:
        yield Said("note", f"no iterations: {printable(job.iterations_reason or 'unknown why')}")
        return
    costly = {
        (cost.from_step, cost.until_step): finding.kind
        for finding in findings
        if finding.kind not in ("straggler", "hang")
        for cost in finding.job_cost
        if cost.job == job.id
    }
    told: set[int] = set()
    for straggler in job.stragglers:
        both = straggler.from_step, straggler.until_step
        kind = costly.get(both) if straggler.cause == "slow_transfers" else None
        told |= set(range(both[0], both[1] + 1))
        yield Said("warning", straggling(iterations, straggler, kind))
    for finding in findings:
        for cost in finding.job_cost:
            steps = range(cost.from_step, cost.until_step + 1)
            if cost.job == job.id and not told.issuperset(steps):
                told |= set(steps)
                text = f"{_took(iterations, steps)}, {duration(cost.cost_ns)} more than before"
                yield Said("warning", f"{text}: {_SEE.format(finding.kind)}")
    others = [step for step in _timed(iterations) if step.index not in told]
    usual = iterations.period_p50_ns
    slow = [step for step in others if (step.duration_ns or 0) > (1 + _ALIKE) * usual]
    yield from _single(slow)
    yield Said("note", _network(iterations, bool(job.stragglers)))
    if iterations.boundary == "convention":
        yield Said("note", "where a step ends does not show: only the durations are claimed")


def _single(slow: Sequence[JobStep]) -> Iterator[Said]:
    """Slow steps that are part of no straggler and no finding."""
    by_rank: dict[str | None, list[JobStep]] = {}
    for step in slow:
        by_rank.setdefault(step.waited_for_address, []).append(step)
    for address, steps in by_rank.items():
        took = duration(max(step.duration_ns or 0 for step in steps))
        text = f"{_listed([step.index for step in steps])} took {'up to ' * (len(steps) > 1)}{took}"
        if address is None:
            yield Said("note", f"{text}: the packets do not show why")
        else:
            who = rank_name(address, steps[0].waited_for)
            yield Said("note", f"{text}: the others waited for {who}")


def overview(job: TrainingJob) -> str:
    """`10.1.1.11 and 3 more, ring of 4: 10 steps of 27.0 ms (median), 192 messages each`"""
    first, *more = sorted(job.addresses, key=_natural)
    text = printable(first) + (f" and {len(more):,} more" if more else "")
    if shape := patterns(job.groups):
        text += f", {shape}"
    if job.iterations is not None:
        text += f": {steps_of(job.iterations)}"
    return text


def patterns(groups: Sequence[JobGroup]) -> str:
    """`ring of 4`; `4 x ring of 2, pairs among 4`."""
    kinds = Counter((group.pattern, len(group.order)) for group in groups)
    named = [
        f"{number} x {_PATTERNS[pattern]} {size}" if number > 1 else f"{_PATTERNS[pattern]} {size}"
        for (pattern, size), number in kinds.most_common()
    ]
    left = len(named) - _MOST_NAMED
    return ", ".join(named[:_MOST_NAMED]) + (f" and {left} more patterns" if left > 0 else "")


def steps_of(iterations: Iterations) -> str:
    """`9 steps of 34.5 ms, all within 1 %, 96 messages each`"""
    usual = iterations.period_p50_ns
    lasting = [step.duration_ns for step in _timed(iterations) if step.duration_ns is not None]
    text = f"{counted(len(iterations.steps), 'step')} of {duration(usual)}"
    apart = max((abs(one - usual) for one in lasting), default=0.0) / max(usual, 1.0)
    if len(lasting) > 1:
        text += (
            f", all within {max(1, round(apart * 100 + 0.5))} %" if apart < _ALIKE else " (median)"
        )
    if iterations.messages_per_step is not None:
        text += f", {counted(iterations.messages_per_step, 'message')} each"
    return text


def straggling(iterations: Iterations, straggler: Straggler, finding: str | None = None) -> str:
    """`steps 5 to 7 took 37.4 to 38.8 ms: the others waited for rank 2 (10.1.3.11); ...`; finding:
    the kind of that which explains slow transfers."""
    steps = range(straggler.from_step, straggler.until_step + 1)
    text = _took(iterations, steps)
    who = rank_name(straggler.address, straggler.rank)
    cost = f"cost: {duration(straggler.wait_ns)} in {counted(len(steps), 'step')}"
    if straggler.cause == "slow_transfers":
        why = WHY["slow_transfers"] if finding is None else _SEE.format(finding)
        return f"{text}: transfers of {who} took longer; {cost}; {why}"
    return f"{text}: the others waited for {who}; {cost}; {WHY[straggler.cause]}"


def _took(iterations: Iterations, numbers: Sequence[int]) -> str:
    """`steps 5 to 7 took 37.4 to 38.8 ms`"""
    known = {step.index: step.duration_ns for step in iterations.steps}
    lasting = [one for number in numbers if (one := known.get(number)) is not None]
    named = f"step {numbers[0]}" if len(numbers) == 1 else f"steps {numbers[0]} to {numbers[-1]}"
    return f"{named} took {_between(lasting)}" if lasting else named


def _between(values: Sequence[float]) -> str:
    """`37.4 to 38.8 ms`; the unit once if both have it."""
    low, high = duration(min(values)), duration(max(values))
    if low == high:
        return low
    number, _, unit = low.rpartition(" ")
    return f"{number if high.endswith(f' {unit}') else low} to {high}"


def _network(iterations: Iterations, is_waited_for: bool) -> str:
    """The network's part of a step, as an interval unless the pattern shows it exactly."""
    steps = _timed(iterations)
    parts = {
        name: [
            value / step.duration_ns
            for step in steps
            if step.duration_ns and (value := getattr(step, name)) is not None
        ]
        for name in ("network_ns", "network_low_ns", "network_high_ns")
    }
    exact, low, high = parts.values()
    if exact and len(exact) == len(low):
        text = f"the network costs {_share(median(exact))} of a step"
    elif low and high and median(high) - median(low) < _ALL:
        text = (
            f"the network costs between {_share(median(low))} and {_share(median(high))} of a"
            " step: how much of it hides behind computing does not show in packets"
        )
    else:
        text = "what the network costs does not show"
    seen = [step for step in iterations.steps if step.waited_ns is not None]
    if not is_waited_for and seen and all(step.waited_for_address is None for step in seen):
        text += "; nobody is waited for"
    return text


def _share(share: float) -> str:
    """Of a step, to a tenth of a percent below 10 %."""
    return percent(share) if share < 0.0095 else f"{share * 100:.{0 if share >= 0.0995 else 1}f} %"


def _stops(job: TrainingJob, begin_ns: int) -> Iterator[Said]:
    """Hangs and restarts."""
    hang = job.hang
    if hang is not None:
        at = f"{(hang.from_ns - begin_ns) / 1e9:.3f} s"
        text = f"stops within a step at {at}"
        text += "" if hang.until_ns is None else f" for {duration(hang.until_ns - hang.from_ns)}"
        if hang.missing:
            names = [rank_name(rank.address, rank.rank) for rank in hang.missing[:_MOST_NAMED]]
            more = len(hang.missing) - len(names)
            who = ", ".join(names) + (f" and {more:,} more" if more else "")
            verb = "sends nor grants" if len(hang.missing) == 1 else "send nor grant"
            text += f": {who} neither {verb}{_waiting(job)}"
        else:
            text += "; which rank is missing does not show"
        yield Said("critical", text)
    for before, after in zip(job.epochs, job.epochs[1:], strict=False):
        lost_ns = after.from_ns - before.until_ns
        how = "restarts with new queue pairs" if before.ended_by == "restart" else "goes on"
        text = f"{how} at {(after.from_ns - begin_ns) / 1e9:.3f} s: {duration(lost_ns)} lost"
        if job.iterations is not None:
            text += f", the time of {round(lost_ns / job.iterations.period_p50_ns):,} steps"
        yield Said("note", text)
    if hang is None or hang.until_ns is not None or not job.epochs:
        return
    yield Said("note", "it does not return before the end of the capture")


def _waiting(job: TrainingJob) -> str:
    """`; ranks 0, 1 and 2 wait`; without the ranks if some are unknown."""
    missing = set() if job.hang is None else {rank.address for rank in job.hang.missing}
    waiting = [rank.rank for rank in job.ranks if rank.address not in missing]
    known = sorted(rank for rank in waiting if rank is not None)
    if not known or len(known) != len(waiting) or len(known) > 8:
        return f"; {counted(len(waiting), 'other waits', 'others wait')}" if waiting else ""
    if len(known) == 1:
        return f"; rank {known[0]} waits"
    return f"; ranks {', '.join(map(str, known[:-1]))} and {known[-1]} wait"


def _listed(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"step {numbers[0]}"
    shown = ", ".join(map(str, numbers[:_MOST_NAMED]))
    left = len(numbers) - _MOST_NAMED
    return f"steps {shown}" + (f" and {left:,} more" if left > 0 else "")


def sources(jobs: Sequence[TrainingJob]) -> str:
    """Where the ranks are from, and what no job shows."""
    named = Counter(rank.source for job in jobs for rank in job.ranks)
    words = {"grant": "NCCL's grants", "log": "the logs"}
    known = [words[source] for source in ("grant", "log") if named[source]]
    text = f"ranks are from {' and '.join(known)}" if known else "no grant and no log names ranks"
    if known and named[None]:
        text += f", {named[None]:,} of {sum(named.values()):,} are unknown"
    return f"{text}; traffic inside hosts is not captured"


def slots(job: TrainingJob) -> str:
    """`1 channel, 1 queue pair per connection, slots of 32 KiB`; what all groups have in common."""
    parts = []
    for name, text in _SLOTS.items():
        values = {getattr(group, name) for group in job.groups}
        if len(values) == 1 and (value := values.pop()) is not None:
            parts.append(text(value))
    return ", ".join(parts)


_SLOTS: Final[Mapping[str, Callable[[int], str]]] = {
    "channels": lambda n: counted(n, "channel"),
    "queue_pairs_per_connection": lambda n: f"{counted(n, 'queue pair')} per connection",
    "slot_bytes": lambda n: f"slots of {message_size(n)}",
}


def _timed(iterations: Iterations) -> list[JobStep]:
    return [step for step in iterations.steps if step.duration_ns is not None]


def _natural(address: str) -> list[tuple[int, str]]:
    """Numbers in an address by their value."""
    parts = address.replace(":", ".").split(".")
    return [(int(part), "") if part.isdecimal() else (1 << 32, part) for part in parts]


# What each rank does in a step.

State = Literal["computing", "waiting", "sending", "waited for", "sends within"]
STATES: Final[Mapping[State, str]] = {
    "computing": "computing or idle",
    "sending": "sending",
    "waiting": "waiting for the last rank",
    "waited for": "waited for",
    "sends within": "from first to last data",
}
"""With their meanings."""


class Interval(NamedTuple):
    """A time in which a rank is in one state."""

    from_ns: int
    until_ns: int
    state: State


def begin_of(step: JobStep) -> int:
    """Since when the step lasts: the end of the step before; of a first step, its first data."""
    if step.duration_ns is not None:
        return step.last_message_ns - step.duration_ns
    first = [rank.first_data_ns for rank in step.ranks if rank.first_data_ns is not None]
    return min([step.first_message_ns, *first])


def intervals(step: JobStep, rank: StepRank) -> list[Interval]:
    """The states of a rank of the step until its last data, ascending, without gaps."""
    at = begin_of(step)
    if not any(rank.sends):
        if rank.first_data_ns is None or rank.last_data_ns is None:
            return []
        parts = [
            Interval(at, rank.first_data_ns, "computing"),
            Interval(rank.first_data_ns, rank.last_data_ns, "sends within"),
        ]
        return [part for part in parts if part.until_ns > part.from_ns]
    found: list[Interval] = []
    for number, sending in enumerate(rank.sends):
        if sending is None:
            continue
        late_ns = sending.from_ns
        if rank.address == step.waited_for_address:
            arrivals = [
                other.from_ns
                for each in step.ranks
                if each is not rank
                and number < len(each.sends)
                and (other := each.sends[number]) is not None
            ]
            late_ns = min(late_ns, max(at, int(median(arrivals)))) if arrivals else late_ns
        moving = min(sending.from_ns + sending.waited_ns, sending.until_ns)
        for until, state in (
            (late_ns, "computing"),
            (sending.from_ns, "waited for"),
            (moving, "waiting"),
            (sending.until_ns, "sending"),
        ):
            if until > at:
                found.append(Interval(at, until, state))  # type: ignore[arg-type]
                at = until
    return found


def rank_names(job: TrainingJob) -> dict[str, str]:
    """By address: `rank 2`, `ranks 2, 3`, `rank ?`."""
    ranks: dict[str, list[int]] = {}
    for rank in job.ranks:
        ranks.setdefault(rank.address, [])
        if rank.rank is not None:
            ranks[rank.address].append(rank.rank)
    return {
        address: "rank ?"
        if not known
        else f"rank{'s' if len(known) > 1 else ''} {', '.join(map(str, sorted(known)))}"
        for address, known in ranks.items()
    }


def in_order(job: TrainingJob, step: JobStep) -> list[StepRank]:
    """What the ranks do in a step, by their rank, then by address."""
    ranks: dict[str, int] = {}
    for rank in job.ranks:
        if rank.rank is not None:
            ranks[rank.address] = min(rank.rank, ranks.get(rank.address, rank.rank))
    return sorted(
        step.ranks, key=lambda one: (ranks.get(one.address, 1 << 32), _natural(one.address))
    )
