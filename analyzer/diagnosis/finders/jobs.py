"""Training jobs: ranks that the others wait for, links that slow their transfers, jobs that hang,
and what findings cost them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from ...jobs.training import Slowdown
from ...results.diagnosis import Finding, Kind, Place
from ...results.jobs import Hang, JobCost, JobStep, MissingRank, Straggler, TrainingJob
from ...words import printable
from ..case import Case
from ..finding import duration, finding
from ..known import LOSSES, REFUSALS, Finder, Known

STOPPERS: Final[tuple[Kind, ...]] = (*LOSSES, *REFUSALS, "stalled", "timeout-recovery", "pause")
"""Kinds of causes that stop a job: then no rank is missing."""
SLOWERS: Final[tuple[Kind, ...]] = (
    *STOPPERS, "queueing", "ecn-marking", "polarisation", "rehash", "reordering", "retry-storm",
    "delay-step", "mrc-path",
)  # fmt: skip
"""Kinds of causes that make transfers take longer."""

WHY = {
    "late_data": "its data comes late and then at full speed, its grants come on time: likely the"
    " GPU or its kernels, not the network",
    "late_grants": "its data and its grants come late: likely the launch by its host, not the"
    " network",
    "slow_transfers": "the same messages take longer on the wire: network or NIC",
}
"""What each cause of a straggler is seen by."""
_NEXT = {
    "late_data": "compare the GPU of this rank with the others: clocks, temperature, kernels",
    "late_grants": "look what delays the process of this rank: data loader, garbage collection,"
    " checkpoint, CPU",
    "slow_transfers": "look at the NIC, cable and port of this host, and at the links that only"
    " its traffic uses",
}


def rank_name(address: str, rank: int | None) -> str:
    """`rank 2 (10.1.3.11)`, `10.1.3.11` without a known rank."""
    return printable(address) if rank is None else f"rank {rank} ({printable(address)})"


def stragglers(case: Case, known: Known) -> Iterator[Finding]:
    """Ranks that the others wait for in slow steps."""
    for job in case.training.jobs:
        for straggler in job.stragglers:
            if straggler.cause == "slow_transfers" and _is_explained(case, known, job, straggler):
                continue
            yield _waited_for(case, job, straggler)


def _steps(job: TrainingJob) -> Sequence[JobStep]:
    return [] if job.iterations is None else job.iterations.steps


def _span(job: TrainingJob, from_step: int, until_step: int) -> tuple[int, int]:
    """From the end of the step before to the end of the last step."""
    steps = _steps(job)
    first = steps[from_step]
    begun = first.last_message_ns - (first.duration_ns or 0)
    return min(begun, first.first_message_ns), steps[until_step].last_message_ns


def _is_explained(case: Case, known: Known, job: TrainingJob, straggler: Straggler) -> bool:
    span = _span(job, straggler.from_step, straggler.until_step)
    return any(known.explains(SLOWERS, flow, *span) for flow in job.flows)


def _waited_for(case: Case, job: TrainingJob, straggler: Straggler) -> Finding:
    first, last = straggler.from_step, straggler.until_step
    span = _span(job, first, last)
    steps = f"in step {first}" if first == last else f"in steps {first} to {last}"
    goes_on = last == len(_steps(job)) - 1
    usual = _usual_ns(case, job, straggler)
    flows = {flow: 0 for flow in job.flows if case.flows[flow].src == straggler.address}
    who = rank_name(straggler.address, straggler.rank)
    found = finding(
        case,
        "straggler",
        Place(host=straggler.address),
        0,
        f"job {printable(job.name)} waits for {who} {steps}, {duration(straggler.wait_ns)} in all:"
        f" {WHY[straggler.cause]}",
        _NEXT[straggler.cause],
        hits=flows,
        span=span,
        confidence=straggler.confidence,
        severity="warning",
        until_ns=None if goes_on else span[1],
        costs=False,
        sure_onset=True,
    )
    cost = JobCost(job.id, first, last, usual, straggler.wait_ns)
    return replace(found, job_cost=[cost], cost_ns=straggler.wait_ns)


def _usual_ns(case: Case, job: TrainingJob, straggler: Straggler) -> int:
    """Median duration of a step without what this straggler costs."""
    steps = _steps(job)[straggler.from_step : straggler.until_step + 1]
    total = sum(step.duration_ns or 0 for step in steps)
    return max(0, (total - straggler.wait_ns) // max(1, len(steps)))


def slow_links(case: Case, known: Known) -> Iterator[Finding]:
    """Links over which the same messages of a job take longer than in its other steps."""
    for slow in case.training.slowdowns:
        if slow.tap is not None and not _is_named(case, known, slow):
            yield _slow_link(case, slow, slow.tap)


def _is_named(case: Case, known: Known, slow: Slowdown) -> bool:
    """Whether a finding at this tap explains it."""
    span = _span(case.training.jobs[slow.job], slow.from_step, slow.until_step)
    return any(
        slow.tap in (cause.place.from_tap, cause.place.to_tap)
        for flow in slow.flows
        for cause in known.causes_of(SLOWERS, flow, *span)
    )


def _slow_link(case: Case, slow: Slowdown, tap: str) -> Finding:
    job = case.training.jobs[slow.job]
    first, last = slow.from_step, slow.until_step
    span = _span(job, first, last)
    steps = f"in steps {first} to {last}"
    sources = sorted({case.flows[flow].src for flow in slow.flows})
    who = printable(sources[0])
    if len(sources) > 1:
        who += f" and {len(sources) - 1:,} more"
    found = finding(
        case,
        "slow-link",
        Place(from_tap=tap, direction=f"data of {who}"),
        0,
        f"job {printable(job.name)} waits for the data of {who} through {printable(tap)} {steps},"
        f" {duration(slow.cost_ns)} in all: the same messages take longer on the wire, those over"
        " other links do not: a slow or congested link on this way",
        "look at the rate, errors and load of this link, and at what else uses it",
        hits=dict.fromkeys(slow.flows, 0),
        span=span,
        confidence="likely",
        severity="warning",
        until_ns=None if last == len(_steps(job)) - 1 else span[1],
        costs=False,
        sure_onset=True,
    )
    cost = JobCost(slow.job, first, last, int(slow.usual_ns), int(slow.cost_ns))
    return replace(found, job_cost=[cost], cost_ns=int(slow.cost_ns))


def hangs(case: Case, known: Known) -> Iterator[Finding]:
    """Jobs that stop within a step, unless the network stops them."""
    for job in case.training.jobs:
        hang = job.hang
        if hang is None:
            continue
        until = case.last_ns if hang.until_ns is None else hang.until_ns
        if any(known.explains(STOPPERS, flow, hang.from_ns, until) for flow in job.flows):
            continue
        yield _hang(case, job, hang, until)


def _hang(case: Case, job: TrainingJob, hang: Hang, until_ns: int) -> Finding:
    missing = _ranks(hang.missing)
    lasted = duration(until_ns - hang.from_ns)
    restarted = hang.until_ns is not None
    says = f"job {printable(job.name)} stops within a step"
    says += f" for {lasted}" if restarted else ""
    if missing:
        verb = "sends and grants" if len(hang.missing) == 1 else "send and grant"
        says += f": {missing} {verb} nothing, the others wait"
    silent = {rank.address for rank in hang.missing}
    flows = [flow for flow in job.flows if not silent or case.flows[flow].src in silent]
    found = finding(
        case,
        "hang",
        Place(host=hang.missing[0].address if len(hang.missing) == 1 else None),
        0,
        says,
        "look at the process of this rank (py-spy, gdb, its log)"
        if missing
        else "capture at all hosts of the job: the rank that is missing does not show",
        hits=dict.fromkeys(flows, 0),
        span=(hang.from_ns, until_ns),
        severity="critical",
        until_ns=hang.until_ns,
        costs=False,
        sure_onset=True,
    )
    return replace(found, cost_ns=until_ns - hang.from_ns)


def _ranks(missing: Sequence[MissingRank]) -> str:
    names = [rank_name(rank.address, rank.rank) for rank in missing[:3]]
    more = len(missing) - len(names)
    return ", ".join(names) + (f" and {more:,} more" if more else "")


def with_costs(case: Case, findings: Sequence[Finding]) -> list[Finding]:
    """The findings with what they cost the training jobs whose transfers they slow down."""
    return [_with_cost(case, item) for item in findings]


def _with_cost(case: Case, item: Finding) -> Finding:
    if item.kind not in SLOWERS or item.severity == "note":
        return item
    costs = [
        JobCost(slow.job, slow.from_step, slow.until_step, int(slow.usual_ns), int(slow.cost_ns))
        for slow in case.training.slowdowns
        if _slows(case, item, slow)
    ]
    if not costs:
        return item
    return replace(
        item, job_cost=costs, cost_ns=item.cost_ns or sum(cost.cost_ns for cost in costs)
    )


def _slows(case: Case, item: Finding, slow: Slowdown) -> bool:
    """Whether a finding hits flows of the job while its transfers are slow."""
    job = case.training.jobs[slow.job]
    begun, ended = _span(job, slow.from_step, slow.until_step)
    since = item.from_ns - item.onset_uncertainty_ns
    in_time = since <= ended and (item.until_ns is None or item.until_ns >= begun)
    return in_time and not set(job.flows).isdisjoint(item.flows)


FINDERS = (
    Finder(stragglers, ("straggler",), SLOWERS),
    Finder(slow_links, ("slow-link",), SLOWERS),
    Finder(hangs, ("hang",), STOPPERS),
)
