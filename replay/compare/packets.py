"""Comparison of strategies packet by packet: runs on all cores, and their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from threading import Event, Lock
from typing import TYPE_CHECKING

import numpy as np

from ...analyzer.errors import RocescopeError, UsageError
from ...analyzer.words import parse_duration
from ...kernels.kernel import Floats, Ints, NamedTuple, compiling
from ...version import VERSION
from ..fabrics.fabric import Fabric
from ..flows.loads import layers_of
from ..flows.shares import fair_bytes, split_evenly
from ..generate.queue_pairs import QueuePairs
from ..packets.bounds import Bounds, bounds
from ..packets.failures import Failures
from ..packets.hosts.transport import Transport
from ..packets.model.model import PS, EngineResult, Model, Workload
from ..packets.model.queueing import TrafficClass
from ..packets.model.rules import Strategy
from ..packets.received import reordering
from ..packets.runs import layer_load, loads_over_time, run_many, run_packets, stretch_ps
from ..results import (
    FlowCompletion,
    FlowTimes,
    JobCompletion,
    LayerQueues,
    LinkEvidence,
    LinkLoad,
    PacketReplay,
    ReceivedOrder,
    ReplayResult,
    Spread,
    StrategyResult,
    TrafficSummary,
)
from .pauses import circle_text, pause_notes, pause_summary
from .specs import Conditions
from .summaries import fabric_summary, titled

if TYPE_CHECKING:
    from ..jobs.collectives import Job
    from ..jobs.offered import JobTimes, OfferedJobs

COMPILING = "compiling (once)"
"""Name of the progress step that compiles kernels."""
IDLE_TICKS = 5
"""Ticks of `run_many` before compiling is told; loading compiled kernels takes less."""
_MOST_FAILED = 5
MOST_FLOWS = 1 << 16
"""Maximum number of flows whose times are in the result."""
MOST_KEPT = 1 << 24
"""Maximum number of data packets whose arrivals are kept to measure reordering; 9 bytes each."""


class Load(NamedTuple):
    """Traffic for one run."""

    workload: Workload
    notes: tuple[str, ...] = ()
    pairs: QueuePairs | None = None
    """The queue pairs of a generated workload."""
    offered: str = ""
    """When hosts release packets, for the report."""
    jobs: OfferedJobs | None = None
    by_job: tuple[Job, ...] = ()
    """The jobs of `jobs`."""
    linked: LinkEvidence | None = None


@dataclass
class _Gathered:
    """The results of the runs of one strategy."""

    by_run: dict[int, tuple[EngineResult, Bounds]] = field(default_factory=dict)
    received: ReceivedOrder | None = None
    jobs: dict[int, list[JobTimes]] = field(default_factory=dict)
    """By run."""

    @property
    def results(self) -> list[tuple[EngineResult, Bounds]]:
        """The results in order of runs, not of completion."""
        return [self.by_run[run] for run in sorted(self.by_run)]


class _Case(NamedTuple):
    """What all strategies of a run share."""

    load: Load
    bound: Bounds
    transport: Transport
    failures: Failures | None
    alone_ps: list[int]
    """Lower bounds of single jobs."""


class _Offered:
    """Traffic and bounds of every run; the first thread that needs them makes them."""

    def __init__(
        self,
        load: Callable[[int], Load],
        fabric: Fabric,
        model: Model,
        conditions: Conditions,
        seed: int,
    ) -> None:
        self._load, self._fabric, self._model = load, fabric, model
        self._conditions, self._seed = conditions, seed
        self._known: dict[int, _Case] = {}
        self._lock = Lock()

    def __getitem__(self, run: int) -> _Case:
        with self._lock:
            if run not in self._known:
                self._known[run] = self._case(run)
            return self._known[run]

    def _case(self, run: int) -> _Case:
        load, first = self._load(run), self._known.get(0)
        under = self._conditions.of_run(load.workload, self._fabric, self._seed + run)
        share = under[0].rate_share
        if first is not None and first.load.workload is load.workload:  # a capture
            if first.transport.rate_share == share:
                return _Case(load, first.bound, *under, [])
        bound = bounds(load.workload, self._fabric, self._model, share, under[1])
        alone = []
        if load.by_job:
            from ..jobs.offered import alone_ps

            alone = alone_ps(load.by_job, self._fabric, self._model, share)
        return _Case(load, bound, *under, alone)


def replay_packets(
    load: Callable[[int], Load],
    fabric: Fabric,
    strategies: Sequence[Strategy],
    model: Model,
    sources: Sequence[str],
    *,
    runs: int = 1,
    seed: int = 1,
    threads: int | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    first: Callable[[Load, EngineResult], None] | None = None,
    conditions: Conditions | None = None,
    leave_out: bool = False,
) -> tuple[ReplayResult, bool]:
    """Every strategy on the traffic of every run (load(0) .. load(runs - 1)).

    Run r has seed + r. conditions: how hosts send, and failures. progress: called with (step,
    packet hops done, hops expected). first: called with the first run of the first strategy,
    with arrival and send times of its packets. An interrupt ends the running runs: the result
    then contains the finished runs, and the second value is False. leave_out: leave out strategies
    that do not fit traffic and fabric in some run, unless none fits.
    UsageError if strategies, traffic and fabric do not fit.
    """
    under = conditions or Conditions()
    offered = _Offered(load, fabric, model, under, seed)
    base = offered[0].load.workload
    length = stretch_ps(base, offered[0].bound.completion_ps, fabric)
    cases = [(number, run) for run in range(runs) for number in range(len(strategies))]
    expected = len(cases) * _hops(base, fabric, model)
    hops = np.zeros(len(cases), np.int64)
    gathered = [_Gathered() for _ in strategies]

    unfit: dict[int, UsageError] = {}
    idle = 0

    def say() -> None:
        done = int(hops.sum())
        if progress is not None:
            progress(COMPILING if idle > IDLE_TICKS else "packets", done, max(expected, done))

    def run_case(case: tuple[int, int], stop: Event) -> EngineResult | UsageError:
        number, run = case
        if number in unfit:
            return unfit[number]
        at = cases.index(case)

        def tell(done: int) -> None:
            hops[at] = done
            say()

        workload = offered[run].load.workload
        wanted = first is not None and case == (0, 0)
        keep = wanted or (run == 0 and int(workload.packet_start[-1]) <= MOST_KEPT)
        try:
            return run_packets(
                workload,
                fabric,
                strategies[number].in_run(seed + run - 1, fabric),
                model,
                seed + run,
                keep_arrivals=keep,
                keep_sent=wanted,
                load_bin_ps=length if run == 0 else 0,
                tell=tell,
                stop=stop,
                transport=offered[run].transport,
                failures=offered[run].failures,
            )
        except UsageError as error:
            if not leave_out:
                raise
            return error

    def tick() -> None:
        nonlocal idle
        idle = idle + 1 if compiling else 0
        say()

    complete = True
    try:
        for at, result in run_many(cases, run_case, threads, tick):
            number, run = cases[at]
            of_strategy = gathered[number]
            if isinstance(result, UsageError):
                unfit[number] = result
                continue
            if run == 0:
                of_strategy.received = _order(base, result)
                if first is not None and number == 0 and result.arrived_ps is not None:
                    first(offered[0].load, result)
                result = replace(result, arrived_ps=None, arrived_flags=None, sent_ps=None)  # large
            who = f"{strategies[number].name}, seed {seed + run}"
            check_bound(offered[run].load.workload, result, offered[run].bound, who)
            of_strategy.by_run[run] = result, offered[run].bound
            case = offered[run]
            if case.load.jobs is not None:
                from ..jobs.offered import job_times

                of_strategy.jobs[run] = job_times(
                    case.load.by_job, case.alone_ps, case.load.jobs, result
                )
    except KeyboardInterrupt:
        complete = False
    settings = model.described()
    settings |= under.described()
    if offered[0].load.offered:
        settings["offer"] = offered[0].load.offered
    finished = sum(len(runs_of.by_run) for runs_of in gathered)
    if unfit and len(unfit) == len(strategies):
        raise unfit[min(unfit)]
    even = split_evenly(base.traffic, fabric)
    warnings = list(offered[0].load.notes) + [f"left out: {unfit[at]}" for at in sorted(unfit)]
    if not complete:
        warnings.append(f"interrupted: {finished} of {len(cases)} runs are finished and shown")
    return (
        ReplayResult(
            version=VERSION,
            traffic=_traffic(offered[0].load, sources),
            fabric=fabric_summary(fabric),
            strategies=titled(
                [
                    _strategy(strategy, of_strategy, fabric, model, settings, even, base)
                    for number, (strategy, of_strategy) in enumerate(
                        zip(strategies, gathered, strict=True)
                    )
                    if of_strategy.by_run and number not in unfit
                ]
            ),
            warnings=warnings,
        ),
        complete,
    )


def check_bound(workload: Workload, result: EngineResult, bound: Bounds, case: str) -> None:
    """RocescopeError if the run, or a message of it, was faster than its lower bound: then either
    is wrong, and so is every figure over the bound.

    A message with captured times may be faster than alone from its first packet on: this packet may
    wait for the port, and the last one not. Then only the whole run counts.
    """
    is_comparable = (
        (result.completed_ps >= 0) & (bound.message_ps > 0) & (len(workload.due_ps) == 0)
    )
    spare = (result.completed_ps - result.started_ps - bound.message_ps)[is_comparable]
    total = result.completion_ps
    early = min(int(spare.min(initial=0)), 0 if total is None else total - bound.completion_ps)
    if early < 0:
        raise RocescopeError(
            f"{case}: completed {-early / PS:g} ns before its lower bound ({bound.kind}): "
            "this is a defect of rocescope; report it with the command and the fabric"
        )


def _hops(workload: Workload, fabric: Fabric, model: Model) -> int:
    """Approximate packet hops of a run, for the remaining time."""
    tiers = int(fabric.nodes.tier.max(initial=1))
    return int(workload.packet_start[-1]) * 2 * tiers * (model.ack_every + 1) // model.ack_every


def _traffic(load: Load, sources: Sequence[str]) -> TrafficSummary:
    workload = load.workload
    return TrafficSummary(
        sources=list(sources),
        flows=len(workload.src),
        units=workload.units,
        packets=int(workload.packet_start[-1]),
        wire_bytes=int(workload.message_bytes().sum()),
        hosts=int(np.count_nonzero(np.bincount(np.concatenate([workload.src, workload.dst])))),
        window_ns=None,
        linked=load.linked,
    )


def _order(workload: Workload, result: EngineResult) -> ReceivedOrder | None:
    """Reordering at the receivers; None if no packet arrived, or if arrivals are not kept."""
    if result.arrived_ps is None:
        return None
    counts = reordering(workload, result)
    if not counts.packets:
        return None
    return ReceivedOrder(
        packets=counts.packets,
        reordered_packets=counts.reordered,
        reordered_percent=100 * counts.reordered / counts.packets,
        max_extent=counts.max_extent or None,
    )


def _strategy(
    strategy: Strategy,
    runs_of: _Gathered,
    fabric: Fabric,
    model: Model,
    settings: Mapping[str, str],
    even: Floats,
    workload: Workload,
) -> StrategyResult:
    first = runs_of.results[0][0]
    carried = first.link_bytes
    series, queues, stretch_ns = loads_over_time(first)
    packets = _packets(runs_of, fabric, model, settings, stretch_ns, workload)
    layers = layers_of(fabric, (even > 0) | (carried > 0))
    rates = fabric.links.rate_bits_per_second
    fair = fair_bytes(even, carried, rates, layers.links)
    over_time = series.T.tolist(), queues.T.tolist()
    records, links = [], []
    for layer, members, choice in zip(*layers, strict=True):
        records.append(layer_load(layer, members, choice, fabric, first, fair))
        links += [
            LinkLoad(
                name=fabric.link_name(link),
                layer=layer,
                flows=None,
                wire_bytes=int(carried[link]),
                over_mean=float(carried[link] / share) if share else None,
                wire_bytes_over_time=over_time[0][link],
                queue_bytes_over_time=over_time[1][link],
            )
            for link, share in zip(members.tolist(), fair[members].tolist(), strict=True)
        ]
    chosen = [record for record in records if record.choice and record.wire_bytes]
    busy = carried * 8e9 / rates
    done = packets.completion_ns
    return StrategyResult(
        name=strategy.name,
        title=strategy.name,
        parameters=_parameters([result for result, _ in runs_of.results]),
        switches=list(first.switches),
        fim_percent=None,
        max_over_mean=max((r.max_over_mean or 0.0 for r in chosen), default=None),
        busiest_link=fabric.link_name(int(busy.argmax())) if busy.any() else None,
        lower_bound_ns=float(np.mean([bound.completion_ps for _, bound in runs_of.results])) / PS,
        completion_time_ns=None if done is None else round(done.mean),
        max_queue_packets=round(packets.max_queue_packets.max),
        layers=records,
        links=links,
        worst=[],
        packets=packets,
        notes=[
            *first.notes,
            *_blind(strategy, packets),
            *_overloaded(packets, [result for result, _ in runs_of.results], fabric, workload),
            *_incomplete(packets, [result for result, _ in runs_of.results], fabric, workload),
            *pause_notes(first, fabric),
        ],
    )


def _parameters(results: Sequence[EngineResult]) -> dict[str, str]:
    """The parameters of the runs; of one that differs the first and the last."""
    first, last = results[0].parameters, results[-1].parameters
    return {
        key: value if last.get(key) == value else f"{value} to {last.get(key)}"
        for key, value in first.items()
    }


def _blind(strategy: Strategy, packets: PacketReplay) -> list[str]:
    if not strategy.learns_from_marks or "ecn_low_bytes" in packets.model:
        return []
    return [
        f"{strategy.name} learns of congestion from ECN marks, and no packet is marked: it sees "
        "only losses and trims; set --model ecn="
    ]


def _overloaded(
    packets: PacketReplay, results: Sequence[EngineResult], fabric: Fabric, workload: Workload
) -> list[str]:
    """Timeouts and retransmissions that are load themselves (congestion collapse)."""
    notes, model = [], packets.model
    rates = fabric.links.rate_bits_per_second
    queue_ns = max(float((result.link_max_bytes * 8e9 / rates).max()) for result in results)
    if packets.timeouts and parse_duration(model["rto"], "rto") < queue_ns:
        notes.append(
            f"rto={model['rto']} is shorter than the longest queue, {queue_ns / 1000:.3g} us: "
            "packets time out while they wait there; set a longer --transport rto="
        )
    sent = packets.runs * int(workload.packet_start[-1])
    if packets.sent_again > sent and "congestion" not in model:
        notes.append(
            f"congestion collapse: {packets.sent_again:,} retransmissions of {sent:,} packets: "
            "hosts send at line rate despite losses; set --transport congestion=dcqcn"
        )
    return notes


def _incomplete(
    packets: PacketReplay, results: Sequence[EngineResult], fabric: Fabric, workload: Workload
) -> list[str]:
    missing = [result for result in results if result.completion_ps is None]
    if not missing:
        return []
    recovery = packets.model["recovery"]
    circles = [one.pauses.deadlock for one in missing if one.pauses and one.pauses.deadlock]
    gave_up = next((run for run in missing if len(_failed(run))), None)
    if gave_up is not None:
        why = _gave_up(gave_up, workload, packets, fabric)
    elif packets.pfc is not None and packets.pfc.deadlocked_runs == len(missing):
        why = f"deadlock: {circle_text(packets.pfc.deadlock)}"
    elif recovery == "none" and (packets.dropped or packets.lost_on_links):
        why = "packets were lost without recovery: use --transport recovery=sack"
    elif "fail" in packets.model:
        why = f"recovery={recovery} did not retransmit all packets lost on failed links"
    elif recovery == "none" and packets.trimmed:
        why = "packets were trimmed"
    elif packets.no_route:
        why = "some flows have no path"
    elif circles:
        names = [fabric.link_name(link) for link in circles[0]]
        why = f"no packet moves, perhaps in a deadlock: {circle_text(names)}"
    elif any(one.out_of_time for one in missing):
        why = "packets were still in flight at the time limit of the simulation"
    else:
        why = _waiting(missing[0])
    return [f"{len(missing)} of {packets.runs} runs did not complete: {why}"]


def _gave_up(
    result: EngineResult, workload: Workload, packets: PacketReplay, fabric: Fabric
) -> str:
    """The flows of a run whose sender gave up."""
    failed, names = _failed(result), fabric.nodes.names[fabric.switches :]
    ends = [(names[int(workload.src[flow])], names[int(workload.dst[flow])]) for flow in failed]
    shown = ", ".join(f"{src} > {dst}" for src, dst in ends[:_MOST_FAILED])
    more = f" and {len(ends) - _MOST_FAILED:,} more" if len(ends) > _MOST_FAILED else ""
    retries = packets.model["retries"]
    return f"{len(ends):,} flows failed after {retries} retries: {shown}{more}"


def _waiting(result: EngineResult) -> str:
    """What a run without an event left waits for."""
    begun = np.count_nonzero((result.started_ps >= 0) & (result.completed_ps < 0))
    if begun:
        return f"{begun:,} messages wait for packets or ACKs that never arrive"
    never = np.count_nonzero(result.started_ps < 0)
    return f"{never:,} messages never began: their hosts cannot send"


def percentile(ordered: Floats, percent: float) -> float:
    """As of np.percentile, to the bit, of at least one value, in order; that one loads a module
    that takes a twentieth of the time of a small replay."""
    at = (len(ordered) - 1) * (percent / 100)
    below = int(at)
    part, low, high = at - below, ordered[below], ordered[min(below + 1, len(ordered) - 1)]
    return float(high - (high - low) * (1 - part) if part >= 0.5 else low + (high - low) * part)


def _packets(
    gathered: _Gathered,
    fabric: Fabric,
    model: Model,
    settings: Mapping[str, str],
    stretch_ns: int,
    workload: Workload,
) -> PacketReplay:
    done, over, slow = [], [], []
    for result, bound in gathered.results:
        total = result.completion_ps
        if total is not None:
            done.append(total / PS)
            over.append(100 * (total / bound.completion_ps - 1))
        completed = (result.completed_ps >= 0) & (bound.message_ps > 0)
        took = (result.completed_ps - result.started_ps)[completed]
        slow.append(took / bound.message_ps[completed])
    slowdown = np.sort(np.concatenate(slow))
    results = [result for result, _ in gathered.results]
    most = [float(result.link_max_packets.max(initial=0)) for result in results]
    return PacketReplay(
        runs=len(results),
        completed_runs=len(done),
        completion_ns=_spread(done),
        over_bound_percent=_spread(over),
        bound=gathered.results[0][1].kind,
        message_slowdown=FlowTimes(
            p50=percentile(slowdown, 50),
            p99=percentile(slowdown, 99),
            max=float(slowdown[-1]),
        )
        if len(slowdown)
        else None,
        flows=_flows(workload, results[0], fabric, model.classes),
        jobs=_jobs([gathered.jobs[run] for run in sorted(gathered.jobs)], model.classes),
        flows_omitted=max(0, len(workload.src) - MOST_FLOWS),
        max_queue_packets=_spread(most) or Spread(min=0.0, mean=0.0, max=0.0),
        layers=_queues(results, fabric),
        hops=sum(result.hops for result in results),
        dropped=sum(int(result.link_drops.sum()) for result in results),
        trimmed=sum(int(result.link_trims.sum()) for result in results),
        ecn_marked=sum(int(result.link_marks.sum()) for result in results),
        no_route=sum(result.no_route for result in results),
        lost_on_links=sum(result.lost_on_links for result in results),
        sent_again=sum(result.sent_again for result in results),
        timeouts=sum(result.timeouts for result in results),
        failed_flows=sum(len(_failed(result)) for result in results),
        load_stretch_ns=stretch_ns,
        pfc=pause_summary(results, fabric, model),
        received=gathered.received,
        model=dict(settings),
    )


def _failed(result: EngineResult) -> Ints:
    """Flows whose sender gave up, the earliest first."""
    if result.failed_ps is None:
        return np.zeros(0, np.int64)
    failed = np.flatnonzero(result.failed_ps >= 0)
    rows: Ints = failed[np.argsort(result.failed_ps[failed], kind="stable")]
    return rows


def _flows(
    workload: Workload, result: EngineResult, fabric: Fabric, classes: Sequence[TrafficClass]
) -> list[FlowCompletion]:
    """The MOST_FLOWS flows that complete last; those that do not complete come first."""
    if not len(workload.src):
        return []
    begins = workload.flow_start[:-1]
    sent = np.add.reduceat(workload.message_bytes(), begins)
    never = np.iinfo(np.int64).max
    started = np.where(result.started_ps < 0, never, result.started_ps)
    begun = np.minimum.reduceat(started, begins)
    completed = np.minimum.reduceat(result.completed_ps, begins) >= 0
    last = np.where(completed, np.maximum.reduceat(result.completed_ps, begins), -1)
    late = np.where(completed, last, never)
    names = fabric.nodes.names[fabric.switches :]
    failed = np.full(len(workload.src), -1) if result.failed_ps is None else result.failed_ps
    of = workload.priority if len(workload.priority) else np.zeros(len(workload.src), np.uint8)
    latest = np.argsort(-late, kind="stable")[:MOST_FLOWS]
    columns = (workload.src, workload.dst, np.diff(workload.flow_start), sent, begun, last, failed)
    rows = zip(*(column[latest].tolist() for column in (*columns, of)), strict=True)
    return [
        FlowCompletion(
            flow=flow,
            src=names[src],
            dst=names[dst],
            messages=messages,
            wire_bytes=wire_bytes,
            started_ns=None if start == never else start / PS,
            completed_ns=end / PS if end >= 0 else None,
            failed_ns=gave_up / PS if gave_up >= 0 else None,
            priority=classes[kind].name,
        )
        for flow, (src, dst, messages, wire_bytes, start, end, gave_up, kind) in zip(
            latest.tolist(), rows, strict=True
        )
    ]


def _jobs(
    runs: Sequence[Sequence[JobTimes]], classes: Sequence[TrafficClass]
) -> list[JobCompletion]:
    completions = []
    for times in zip(*runs, strict=True):
        done = [(job.end - job.start, job.bound) for job in times if job.end is not None]
        each = [
            (b - a) / PS
            for job in times
            for a, b in pairwise((job.start, *job.iterations))
            if len(job.iterations) > 1
        ]
        completions.append(
            JobCompletion(
                name=times[0].name,
                workers=times[0].workers,
                start_ns=times[0].start / PS,
                completed_runs=len(done),
                completion_ns=_spread([took / PS for took, _ in done]),
                over_bound_percent=_spread(
                    [100 * (took / bound - 1) for took, bound in done if bound]
                ),
                iteration_ns=_spread(each),
                priority=classes[times[0].priority % len(classes)].name,
            )
        )
    return completions


def _spread(values: Sequence[float]) -> Spread | None:
    if not values:
        return None
    return Spread(min=min(values), mean=sum(values) / len(values), max=max(values))


def _queues(results: Sequence[EngineResult], fabric: Fabric) -> list[LayerQueues]:
    queues = []
    for number, layer in enumerate(fabric.layers):
        members = np.flatnonzero(fabric.links.layer == number)
        seen = sum(result.queue_histogram[number] for result in results)
        count = int(np.sum(seen))
        if not count:
            continue
        below = np.cumsum(seen)

        def total(column: str, members: Ints = members) -> int:
            return sum(int(getattr(result, column)[members].sum()) for result in results)

        def most(column: str, members: Ints = members) -> int:
            return max(int(getattr(result, column)[members].max()) for result in results)

        queues.append(
            LayerQueues(
                layer=layer,
                p50_packets=int(np.searchsorted(below, 0.50 * count)),
                p99_packets=int(np.searchsorted(below, 0.99 * count)),
                max_packets=most("link_max_packets"),
                max_bytes=most("link_max_bytes"),
                dropped=total("link_drops"),
                trimmed=total("link_trims"),
                ecn_marked=total("link_marks"),
            )
        )
    return queues


def check_runs(runs: int) -> None:
    """UsageError for an invalid number of runs."""
    if not 1 <= runs <= 10_000:
        raise UsageError(f"--runs must be 1 to 10,000, not {runs:,}")
