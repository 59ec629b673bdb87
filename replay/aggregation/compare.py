"""Schemes on the same jobs: the result of `rocescope aggregate`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Event

import numpy as np

from ...analyzer.errors import UsageError
from ...analyzer.words import noun
from ...kernels.kernel import Floats, compiling
from ...version import VERSION
from ..compare.packets import COMPILING, IDLE_TICKS
from ..compare.summaries import fabric_summary
from ..fabrics.fabric import Fabric
from ..packets.model.arrays import fabric_arrays
from ..packets.runs import run_many
from ..results import AggregationResult, JobOutcome, JobSummary, LinkBytes, Occupancy, SchemeResult
from .all_reduce import Collectives, run_all_reduce
from .jobs import Job
from .run import Conditions, Outcome, check, simulate
from .schemes import AllReduce, Scheme
from .state import TALLY

ESA_ASSUMED = (
    "esa: the values of priorities, the receiver of an evicted sum, ageing, reminders and the time "
    "at which a slot is released; the abstract of the paper only names the mechanisms"
)
A2TP_ASSUMED = "a2tp: timers and later results request missing results, as with ATP"
RACKS_ASSUMED = (
    "switchml over several racks: the root is a switch of one of them, and the other switches send "
    "a sum again when a worker retransmits"
)
JOBS_ASSUMED = (
    "the division of compute time among layers, and the start of an iteration when the sums of the "
    "previous iteration have arrived"
)
ALL_REDUCE_ASSUMED = (
    "ring and tree: packets of 4,096 B by ECMP, without losses and other packets; all jobs start a "
    "collective at once, when all of their gradients are computed"
)
CAPTURED_ASSUMED = (
    "captured jobs: hosts that send and receive evenly do all-reduces, and each worker computes "
    "between the collectives"
)


def aggregation_result(
    schemes: Sequence[Scheme | AllReduce],
    slots: Sequence[int],
    jobs: Sequence[Job],
    fabric: Fabric,
    conditions: Conditions,
    runs: int,
    leave_out: bool = False,
    notes: Sequence[str] = (),
    progress: Callable[[str, int, int], None] | None = None,
    stop: Event | None = None,
) -> AggregationResult:
    """Run every scheme with every size of memory, `runs` times with seeds from that of `conditions`
    on. leave_out: a scheme that cannot run these jobs is a warning. notes: warnings on the jobs.
    progress: called with (step, runs done, number of runs). UsageError as `check`, before the first
    run. KeyboardInterrupt once `stop` is set."""
    cases: list[tuple[Scheme | AllReduce, int | None]] = []
    warnings = list(notes)
    arrays = fabric_arrays(fabric)
    for scheme in schemes:
        if isinstance(scheme, AllReduce):
            cases.append((scheme, None))
            continue
        conduct = scheme.conduct
        limited = conduct.aggregates and not conduct.private_slots
        for size in slots if limited else (None,):
            try:
                check(scheme.name, conduct, jobs, arrays, size or 1)
            except UsageError as error:
                if not leave_out:
                    raise
                warnings.append(f"left out: {error}")
            else:
                cases.append((scheme, size))
    if not cases:
        raise UsageError(warnings[len(notes)])
    each = [(at, number) for at in range(len(cases)) for number in range(runs)]
    done, idle = 0, 0

    def run_case(of: tuple[int, int], halt: Event) -> Outcome | Collectives:
        scheme, size = cases[of[0]]
        chosen = conditions._replace(slots=size or 1, seed=conditions.seed + of[1])
        if isinstance(scheme, AllReduce):
            return run_all_reduce(scheme.name, jobs, fabric, chosen.seed, chosen.jitter, halt)
        return simulate(scheme, jobs, fabric, chosen, stop=halt)

    def tick() -> None:
        nonlocal idle
        idle = idle + 1 if compiling else 0
        if progress is not None:
            progress(COMPILING if idle > IDLE_TICKS else "runs", done, len(each))
        if stop is not None and stop.is_set():
            raise KeyboardInterrupt

    outcome_of: dict[tuple[int, int], Outcome | Collectives] = {}
    for at, outcome in run_many(each, run_case, 1, tick):
        outcome_of[each[at]] = outcome
        done += 1
    tick()
    results = []
    for at, (scheme, size) in enumerate(cases):
        ran = [outcome_of[at, number] for number in range(runs)]
        if isinstance(scheme, AllReduce):
            collectives = [outcome for outcome in ran if isinstance(outcome, Collectives)]
            results.append(_all_reduce_result(scheme, jobs, fabric, collectives))
            continue
        outcomes = [outcome for outcome in ran if isinstance(outcome, Outcome)]
        results.append(_scheme_result(scheme, size, jobs, fabric, outcomes))
        left = max(outcome.slots_left for outcome in outcomes)
        if left and all((outcome.finished_ps >= 0).all() for outcome in outcomes):
            warnings.append(
                f"{scheme.name}: {left:,} {noun(left, 'slot')} still occupied after the end of "
                "all jobs, by packets that arrived after the result"
            )
    warnings += [
        f"{result.name}: a job did not end within the simulated time"
        for result in results
        if result.mean_completion_ns is None
    ]
    names = {result.name.partition(":")[0] for result in results}
    summaries = [_job_summary(job, fabric) for job in jobs]
    return AggregationResult(
        version=VERSION,
        fabric=fabric_summary(fabric),
        jobs=summaries,
        runs=runs,
        jitter=conditions.jitter,
        schemes=results,
        assumed=[ESA_ASSUMED] * ("esa" in names)
        + [A2TP_ASSUMED] * ("a2tp" in names)
        + [RACKS_ASSUMED] * ("switchml" in names and any(job.racks > 1 for job in summaries))
        + [JOBS_ASSUMED] * any(job.took_ns is None for job in jobs)
        + [ALL_REDUCE_ASSUMED] * any(isinstance(scheme, AllReduce) for scheme in schemes)
        + [CAPTURED_ASSUMED] * any(job.took_ns is not None for job in jobs),
        warnings=warnings,
    )


def _job_summary(job: Job, fabric: Fabric) -> JobSummary:
    switch = fabric.attachments.switch[list(job.workers), 0]
    return JobSummary(
        name=job.name,
        workers=[fabric.host_name(host) for host in job.workers],
        server=fabric.host_name(job.server),
        racks=len(np.unique(switch)),
        fragments=job.total // job.iterations,
        layers=len(job.steps[0].fragments),
        compute_ns=sum(step.computed_ps[-1] for step in job.steps) // job.iterations // 1000,
        iterations=job.iterations,
        window=job.window,
        start_ns=job.start_ps // 1000,
        captured_ns=job.took_ns,
        ranks=[list(names) for names in job.ranks],
    )


def _completions(jobs: Sequence[Job], outcome: Outcome) -> list[float | None]:
    """Completion time of every job in ns."""
    times: list[float | None] = []
    first = 0
    for job in jobs:
        ends = outcome.finished_ps[first : first + len(job.workers)]
        first += len(job.workers)
        times.append(None if (ends < 0).any() else (int(ends.max()) - job.start_ps) / 1000)
    return times


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _scheme_result(
    scheme: Scheme,
    slots: int | None,
    jobs: Sequence[Job],
    fabric: Fabric,
    outcomes: Sequence[Outcome],
) -> SchemeResult:
    times = [_completions(jobs, outcome) for outcome in outcomes]
    aggregates = scheme.conduct.aggregates
    names = TALLY.names or ()
    tallies = [
        {name: float(np.mean([of_run.tally[name][at] for of_run in outcomes])) for name in names}
        for at in range(len(jobs))
    ]
    carried = np.mean([outcome.link_bytes for outcome in outcomes], axis=0)
    occupancies = [_occupancy(scheme, outcome, slots, jobs, fabric) for outcome in outcomes]
    return SchemeResult(
        name=scheme.name,
        parameters=dict(scheme.parameters),
        slots=slots,
        **_means(times),
        jobs=[
            _job_outcome(job, tallies[at], _mean([of_run[at] for of_run in times]), aggregates)
            for at, job in enumerate(jobs)
        ],
        used_percent=_mean([None if o is None else o[0] for o in occupancies]),
        useful_percent=_mean([None if o is None else o[1] for o in occupancies]),
        occupancy=None if occupancies[0] is None else occupancies[0][2],
        lost=float(np.mean([outcome.link_drops.sum() for outcome in outcomes])),
        wire_bytes=float(carried.sum()),
        hops=sum(outcome.hops for outcome in outcomes),
        links=_links(carried, fabric),
    )


def _all_reduce_result(
    scheme: AllReduce, jobs: Sequence[Job], fabric: Fabric, collectives: Sequence[Collectives]
) -> SchemeResult:
    times = [[None if ps is None else ps / 1000 for ps in run.completion_ps] for run in collectives]
    carried = np.mean([collective.link_bytes for collective in collectives], axis=0)
    nothing = dict.fromkeys(TALLY.names or (), 0.0)
    sent = np.mean([collective.packets for collective in collectives], axis=0)
    return SchemeResult(
        name=scheme.name,
        parameters=dict(scheme.parameters),
        slots=None,
        **_means(times),
        jobs=[
            _job_outcome(
                job, nothing | {"sent": float(sent[at])}, _mean([run[at] for run in times]), False
            )
            for at, job in enumerate(jobs)
        ],
        used_percent=None,
        useful_percent=None,
        occupancy=None,
        lost=0.0,
        wire_bytes=float(carried.sum()),
        hops=sum(collective.hops for collective in collectives),
        links=_links(carried, fabric),
    )


def _means(times: Sequence[Sequence[float | None]]) -> dict[str, float | None]:
    """Mean over jobs and runs, and the smallest and largest mean of a run."""
    means = [_mean(of_job) for of_job in times]
    known = [mean for mean in means if mean is not None]
    every = len(known) == len(means)
    return {
        "mean_completion_ns": _mean(means),
        "least_completion_ns": min(known) if every else None,
        "most_completion_ns": max(known) if every else None,
    }


def _links(carried: Floats, fabric: Fabric) -> list[LinkBytes]:
    """Links with their bytes, the largest first."""
    return [
        LinkBytes(link=fabric.link_name(link), wire_bytes=float(carried[link]))
        for link in np.argsort(-carried, kind="stable").tolist()
        if carried[link]
    ]


def _job_outcome(
    job: Job, tally: Mapping[str, float], time: float | None, aggregates: bool
) -> JobOutcome:
    aggregated = tally["whole"] if aggregates else 0.0
    return JobOutcome(
        name=job.name,
        completion_ns=time,
        sent=tally["sent"],
        retransmitted=tally["resent"],
        timeouts=tally["timeouts"],
        aggregated_percent=100 * aggregated / job.total,
        server_packets=tally["server"],
        collisions=tally["collisions"],
        preemptions=tally["preemptions"],
        evicted=tally["evicted"],
        reminders=tally["reminders"],
    )


def _occupancy(
    scheme: Scheme, outcome: Outcome, slots: int | None, jobs: Sequence[Job], fabric: Fabric
) -> tuple[float, float, Occupancy] | None:
    """Mean share of slots taken and usefully taken in percent, and both over time."""
    if slots is None or not outcome.at_ps or not scheme.conduct.has_server:
        return None
    hosts = [host for job in jobs for host in (*job.workers, job.server)]
    room = slots * len(np.unique(fabric.attachments.switch[hosts, 0]))
    bins = outcome.at_ps // outcome.bin_ps + 1
    width = np.full(bins, outcome.bin_ps, float)
    width[-1] = max(1, outcome.at_ps - outcome.bin_ps * (bins - 1))
    shares = 100 * outcome.usage[:, :bins] / (room * width)
    total = 100 * outcome.usage.sum(1) / (room * outcome.at_ps)
    return (
        float(total[0]),
        float(total[1]),
        Occupancy(
            bin_ns=outcome.bin_ps / 1000,
            used_percent=[round(v, 3) for v in shares[0].tolist()],
            useful_percent=[round(v, 3) for v in shares[1].tolist()],
        ),
    )


def check_sizes(slots: Sequence[int]) -> None:
    """UsageError for memory without slots."""
    for size in slots:
        if not 1 <= size <= 1 << 24:
            raise UsageError(f"--memory must be 1 to {1 << 24:,} slots, not {size:,}")
