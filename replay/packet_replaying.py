"""Strategies compared packet by packet: runs over all cores, and what is said of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Event, Lock
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import __version__
from ..analyzer.errors import UsageError
from .conditions import Conditions
from .engine.bounds import Bounds, bounds
from .engine.many import run_many
from .engine.model import PS, EngineResult, Model, Workload
from .engine.received import received_flows
from .engine.rules import PacketStrategy
from .engine.run import run_packets
from .fabric import Fabric
from .loads import evenness, layers_of
from .queue_pairs import QueuePairs
from .replaying import fabric_summary
from .results import (
    LayerLoad,
    LayerOverTime,
    LinkLoad,
    ReplayResult,
    StrategyResult,
    TrafficSummary,
)
from .results_packets import FlowTimes, LayerQueues, PacketReplay, ReceivedOrder, Spread

MOST_KEPT = 1 << 24
"""Data packets whose arrivals are kept to look at their order; 9 bytes each."""


STRETCHES = 50
"""Of the lower bound, in which loads over time are counted."""
MOST_CELLS = 1 << 18
"""Numbers of a strategy's loads over time in the result; else stretches are joined in pairs."""
LEAST_PACKETS = 8
"""Full packets in a stretch: in a shorter one any link that is used at all seems busy."""


class Load(NamedTuple):
    """Traffic for one run."""

    workload: Workload
    notes: tuple[str, ...] = ()
    pairs: QueuePairs | None = None
    """What a generated workload was made of."""
    offered: str = ""
    """When packets are released, in words."""


@dataclass
class _Gathered:
    """What is kept of the runs of one strategy."""

    by_run: dict[int, tuple[EngineResult, Bounds]] = field(default_factory=dict)
    received: ReceivedOrder | None = None

    @property
    def results(self) -> list[tuple[EngineResult, Bounds]]:
        """In the order of the runs, whichever finished first."""
        return [self.by_run[run] for run in sorted(self.by_run)]


class _Offered:
    """Traffic and bounds of every run, made when they are first needed, by whichever thread."""

    def __init__(self, load: Callable[[int], Load], fabric: Fabric, model: Model) -> None:
        self._load, self._fabric, self._model = load, fabric, model
        self._known: dict[int, tuple[Load, Bounds]] = {}
        self._lock = Lock()

    def __getitem__(self, run: int) -> tuple[Load, Bounds]:
        with self._lock:
            if run not in self._known:
                one = self._load(run)
                first = self._known.get(0)
                if first is not None and first[0].workload is one.workload:  # a capture
                    self._known[run] = first
                else:
                    self._known[run] = one, bounds(one.workload, self._fabric, self._model)
            return self._known[run]


def replay_packets(
    load: Callable[[int], Load],
    fabric: Fabric,
    strategies: Sequence[PacketStrategy],
    model: Model,
    sources: Sequence[str],
    *,
    runs: int = 1,
    seed: int = 1,
    threads: int | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    first: Callable[[Load, EngineResult], None] | None = None,
    conditions: Conditions | None = None,
) -> tuple[ReplayResult, bool]:
    """Every strategy on the traffic of every run (load(0) .. load(runs - 1)).

    Run r has seed + r. conditions: how hosts send and what fails. progress: told (what, packet
    hops done, hops expected). first: given the first run of the first strategy with the arrivals
    of its packets and when they were sent. An interrupt ends the runs under way: what is finished
    becomes the result, and False comes with it.
    UsageError when strategies, traffic and fabric do not go together.
    """
    offered = _Offered(load, fabric, model)
    under = conditions or Conditions()
    base = offered[0][0].workload
    cases = [(number, run) for run in range(runs) for number in range(len(strategies))]
    expected = len(cases) * _hops(base, fabric, model)
    hops = np.zeros(len(cases), np.int64)
    gathered = [_Gathered() for _ in strategies]

    def one(case: tuple[int, int], stop: Event) -> EngineResult:
        number, run = case
        at = cases.index(case)

        def tell(done: int) -> None:
            hops[at] = done
            if progress is not None:
                progress("packets", int(hops.sum()), max(expected, int(hops.sum())))

        workload = offered[run][0].workload
        transport, failures = under.of_run(workload, fabric, seed + run)
        wanted = first is not None and case == (0, 0)
        keep = wanted or (run == 0 and int(workload.packet_start[-1]) <= MOST_KEPT)
        return run_packets(
            workload,
            fabric,
            strategies[number],
            model,
            seed + run,
            keep_arrivals=keep,
            keep_sent=wanted,
            load_bin_ps=_bin_ps(offered[0], fabric) if run == 0 else 0,
            tell=tell,
            stop=stop,
            transport=transport,
            failures=failures,
        )

    complete = True
    try:
        for at, found in run_many(cases, one, threads):
            number, run = cases[at]
            own = gathered[number]
            if run == 0:
                own.received = _order(base, found, fabric)
                if first is not None and number == 0 and found.arrived_ps is not None:
                    first(offered[0][0], found)
                found = replace(found, arrived_ps=None, arrived_flags=None, sent_ps=None)  # large
            own.by_run[run] = found, offered[run][1]
    except KeyboardInterrupt:
        complete = False
    settings = {key: str(value) for key, value in vars(model).items() if value is not None}
    settings |= under.described()
    if offered[0][0].offered:
        settings["offer"] = offered[0][0].offered
    finished = sum(len(one.by_run) for one in gathered)
    warnings = list(offered[0][0].notes)
    if not complete:
        warnings.append(f"interrupted: {finished} of {len(cases)} runs are finished and shown")
    return (
        ReplayResult(
            version=__version__,
            traffic=_traffic(base, sources),
            fabric=fabric_summary(fabric),
            strategies=[
                _strategy(strategy.name, own, fabric, settings)
                for strategy, own in zip(strategies, gathered, strict=True)
                if own.by_run
            ],
            warnings=warnings,
        ),
        complete,
    )


def _bin_ps(offered: tuple[Load, Bounds], fabric: Fabric) -> int:
    """Stretches in which loads are told: about STRETCHES of them, if all goes well, in each of
    which most links can serve LEAST_PACKETS."""
    load, bound = offered
    packet = int(load.workload.packet_bytes.max(initial=1))
    service = packet * 8e12 / float(np.median(fabric.links.rate_bits_per_second))
    longest = max(bound.completion_ps // STRETCHES, int(LEAST_PACKETS * service))
    return max(PS, longest // PS * PS)


def _hops(workload: Workload, fabric: Fabric, model: Model) -> int:
    """About how many packet hops a run takes: for the time left."""
    tiers = int(fabric.nodes.tier.max(initial=1))
    return int(workload.packet_start[-1]) * 2 * tiers * (model.ack_every + 1) // model.ack_every


def _traffic(workload: Workload, sources: Sequence[str]) -> TrafficSummary:
    return TrafficSummary(
        sources=list(sources),
        flows=len(workload.src),
        units=workload.units,
        packets=int(workload.packet_start[-1]),
        wire_bytes=int(workload.message_bytes().sum()),
        hosts=len(np.unique(np.concatenate([workload.src, workload.dst]))),
        window_ns=None,
    )


def _order(workload: Workload, result: EngineResult, fabric: Fabric) -> ReceivedOrder | None:
    """Reordering as the analyzer measures it."""
    if result.arrived_ps is None or not (result.arrived_ps >= 0).any():
        return None
    flows = received_flows(workload, result, fabric)
    packets = sum(flow.packets for flow in flows)
    reordered = sum(flow.reordered_packets or 0 for flow in flows)
    extents = [flow.reordering.max_extent for flow in flows if flow.reordering is not None]
    return ReceivedOrder(
        packets=packets,
        reordered_packets=reordered,
        reordered_percent=100 * reordered / packets,
        max_extent=max(extents, default=0) or None,
    )


def _strategy(
    name: str, own: _Gathered, fabric: Fabric, settings: Mapping[str, str]
) -> StrategyResult:
    first = own.results[0][0]
    carried = first.link_bytes
    series, stretch_ns = _series(first)
    packets = _packets(own, fabric, settings, stretch_ns)
    layers = layers_of(fabric, carried > 0)
    records, links = [], []
    for layer, members, choice in zip(*layers, strict=True):
        record, shares = _layer(layer, members, choice, fabric, first)
        records.append(record)
        links += [
            LinkLoad(
                name=fabric.link_name(link),
                layer=layer,
                flows=None,
                wire_bytes=int(carried[link]),
                over_mean=float(carried[link] / share) if share else None,
                wire_bytes_over_time=series[:, link].tolist(),
            )
            for link, share in zip(members.tolist(), shares.tolist(), strict=True)
        ]
    chosen = [record for record in records if record.choice and record.wire_bytes]
    busy = carried * 8e9 / fabric.links.rate_bits_per_second
    done = packets.completion_ns
    return StrategyResult(
        name=name,
        parameters=dict(first.parameters),
        fim_percent=None,
        max_over_mean=max((r.max_over_mean or 0.0 for r in chosen), default=None),
        busiest_link=fabric.link_name(int(busy.argmax())) if busy.any() else None,
        lower_bound_ns=float(np.mean([bound.completion_ps for _, bound in own.results])) / PS,
        completion_time_ns=None if done is None else round(done.mean),
        max_queue_packets=round(packets.max_queue_packets.max),
        layers=records,
        links=links,
        worst=[],
        packets=packets,
        notes=list(first.notes) + _incomplete(packets),
    )


def _incomplete(packets: PacketReplay) -> list[str]:
    missing = packets.runs - packets.completed_runs
    if not missing:
        return []
    recovery = packets.model["recovery"]
    if recovery == "none" and (packets.dropped or packets.lost_on_links):
        why = "packets were lost, and nothing recovers them (--transport recovery=sack)"
    elif "fail" in packets.model:
        why = (
            f"packets were lost where links failed, and recovery={recovery} did not bring them back"
        )
    else:
        why = "packets were trimmed" if packets.trimmed else "some flows have no way"
    return [f"{missing} of {packets.runs} runs did not complete: {why}"]


def _layer(
    name: str,
    members: NDArray[np.int64],
    choice: bool,
    fabric: Fabric,
    result: EngineResult,
) -> tuple[LayerLoad, NDArray[np.float64]]:
    carried = result.link_bytes
    rates = fabric.links.rate_bits_per_second[members]
    even = evenness(np.zeros(len(members), np.int64), carried[members], rates)
    record = LayerLoad(
        layer=name,
        choice=choice,
        links=len(members),
        idle_links=int(np.count_nonzero(carried[members] == 0)),
        flows=None,
        wire_bytes=even.wire_bytes,
        fim_flows_percent=None,
        fim_flows_best_percent=None,
        fim_bytes_percent=even.fim_bytes,
        fim_chance_percent=None,
        max_over_mean=even.max_over_mean,
        over_time=_over_time(result, members, fabric),
        devices=[],
    )
    return record, carried[members].sum() * (rates / rates.sum())


def _over_time(
    result: EngineResult, members: NDArray[np.int64], fabric: Fabric
) -> LayerOverTime | None:
    """Means over the stretches with traffic, weighted by their bytes."""
    if result.loads is None:
        return None
    loads = result.loads[:, members]
    total = loads.sum(1)
    loads, total = loads[total > 0], total[total > 0]
    rates = fabric.links.rate_bits_per_second[members]
    share = loads / (rates / rates.sum() * total[:, None])
    stretch, link = np.unravel_index(int(loads.argmax()), loads.shape)
    peak = float(loads[stretch, link]) * 8e12 / result.load_bin_ps
    return LayerOverTime(
        window_ns=result.load_bin_ps // PS,
        windows=len(total),
        fim_bytes_percent=float(np.average(100 * abs(share - 1).mean(1), weights=total)),
        max_over_mean=float(np.average(share.max(1), weights=total)),
        peak_bits_per_second=peak,
        peak_utilisation=peak / float(rates[link]),
        peak_link=fabric.link_name(int(members[link])),
    )


def _series(result: EngineResult) -> tuple[NDArray[np.int64], int]:
    """(bytes of every link by stretch, length of a stretch in ns), at most MOST_CELLS numbers."""
    loads, length = result.loads, result.load_bin_ps
    if loads is None:
        return np.zeros((0, len(result.link_bytes)), np.int64), 0
    while loads.size > MOST_CELLS and len(loads) > 1:
        loads = np.add.reduceat(loads, np.arange(0, len(loads), 2))
        length *= 2
    return loads, length // PS


def _packets(
    own: _Gathered, fabric: Fabric, settings: Mapping[str, str], stretch_ns: int
) -> PacketReplay:
    done, over, slow = [], [], []
    for result, bound in own.results:
        total = result.completion_ps
        if total is not None:
            done.append(total / PS)
            over.append(100 * (total / bound.completion_ps - 1))
        whole = (result.completed_ps >= 0) & (bound.message_ps > 0)
        took = (result.completed_ps - result.started_ps)[whole]
        slow.append(took / bound.message_ps[whole])
    slowdown = np.concatenate(slow)
    results = [result for result, _ in own.results]
    most = [float(result.link_max_packets.max(initial=0)) for result in results]
    return PacketReplay(
        runs=len(results),
        completed_runs=len(done),
        completion_ns=_spread(done),
        over_bound_percent=_spread(over),
        bound=own.results[0][1].kind,
        message_slowdown=FlowTimes(
            p50=float(np.percentile(slowdown, 50)),
            p99=float(np.percentile(slowdown, 99)),
            max=float(slowdown.max()),
        )
        if len(slowdown)
        else None,
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
        load_stretch_ns=stretch_ns,
        received=own.received,
        model=dict(settings),
    )


def _spread(values: Sequence[float]) -> Spread | None:
    if not values:
        return None
    return Spread(min=min(values), mean=sum(values) / len(values), max=max(values))


def _queues(results: Sequence[EngineResult], fabric: Fabric) -> list[LayerQueues]:
    found = []
    for number, layer in enumerate(fabric.layers):
        members = np.flatnonzero(fabric.links.layer == number)
        seen = sum(result.queue_histogram[number] for result in results)
        count = int(np.sum(seen))
        if not count:
            continue
        below = np.cumsum(seen)

        def total(column: str, members: NDArray[np.int64] = members) -> int:
            return sum(int(getattr(result, column)[members].sum()) for result in results)

        def most(column: str, members: NDArray[np.int64] = members) -> int:
            return max(int(getattr(result, column)[members].max()) for result in results)

        found.append(
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
    return found


def check_runs(runs: int) -> None:
    """UsageError for an impossible number of runs."""
    if not 1 <= runs <= 10_000:
        raise UsageError(f"--runs must be 1 to 10,000, not {runs:,}")
