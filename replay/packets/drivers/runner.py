"""Runs a workload with the open-loop driver, by the rules of one strategy."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

import numpy as np

from ....analyzer.errors import UsageError
from ...fabrics.fabric import Fabric
from ..links.load_bins import filled
from ..model.arrays import FabricArrays, fabric_arrays, with_cut_through
from ..model.model import EngineResult, Model, Workload
from ..model.rules import Rules, Strategy
from ..model.run_state import RunState, new_run, release, with_more_slots
from .open_loop import DONE, GROW, run_windows

HOPS_AT_ONCE = 2_000_000
"""Packet hops between checks for progress and interruption."""


def run_open_loop(
    workload: Workload,
    fabric: Fabric,
    strategy: Strategy,
    model: Model,
    seed: int = 0,
    *,
    keep_arrivals: bool = False,
    keep_sent: bool = False,
    load_bin_ps: int = 0,
    tell: Callable[[int], None] | None = None,
    stop: Event | None = None,
) -> EngineResult:
    """Run until no packet is in flight or pending.

    keep_arrivals, keep_sent: also return `arrived_ps`, `sent_ps`. load_bin_ps: also return `loads`
    in intervals of this length, doubled as often as a long run requires; 0: no loads.
    tell: called with the packet hops so far. stop: ends the run early when set.
    UsageError if strategy, fabric and workload do not fit, or if the strategy needs feedback, which
    this driver does not give.
    """
    rules = strategy.under(model).rules(workload, fabric, seed)
    if strategy.reacts or rules.hosts is not None:
        raise UsageError(
            f"{strategy.name} needs feedback, which the open-loop driver does not give"
        )
    if model.pfc is not None:
        raise UsageError("PFC needs the event-driven driver")
    if len(model.classes) > 1:
        raise UsageError("several classes need the event-driven driver")
    where = fabric if rules.fabric is None else rules.fabric
    arrays = fabric_arrays(where)
    check_hosts(workload, arrays, fabric.name)
    source = where.links.source
    if model.cut_through:
        arrays = with_cut_through(arrays, source, model.header_bytes)
    run = new_run(
        workload, arrays, source, model, rules, seed, keep_arrivals, load_bin_ps, keep_sent
    )
    base = 0
    for phase in range(int(workload.phase.max(initial=-1)) + 1):
        own = workload.nodes_of(phase)
        release(run, workload, np.flatnonzero(own & workload.at_once), base)
        run = _drain(run, rules, tell, stop)
        done = run.messages["completed_ps"][own]
        if (done < 0).any() or (stop is not None and stop.is_set()):
            break  # the barrier is not reached
        base = int(done.max(initial=base))
    return result_of(run, rules, len(workload.flow))


def _drain(
    run: RunState,
    rules: Rules,
    tell: Callable[[int], None] | None,
    stop: Event | None,
) -> RunState:
    """Run until no packet is in flight or pending."""
    while True:
        outcome = run_windows(run, rules.choose, rules.emit, rules.state, HOPS_AT_ONCE)
        if tell is not None:
            tell(int(run.counts["hops"][0]))
        if outcome == DONE or (stop is not None and stop.is_set()):
            return run
        if outcome == GROW:
            run = with_more_slots(run)


def check_hosts(workload: Workload, arrays: FabricArrays, name: str) -> None:
    """UsageError for a flow without hosts, or from a host to itself."""
    ends = np.concatenate([workload.src, workload.dst])
    if len(ends) and (ends.min() < 0 or ends.max() >= arrays.hosts):
        raise UsageError(f"{name} has {arrays.hosts} hosts, the traffic needs more")
    if (workload.src == workload.dst).any():
        raise UsageError(f"{name}: a flow has the same source and destination host")


def result_of(run: RunState, rules: Rules, of_messages: int) -> EngineResult:
    """The result of a run of this many messages."""
    messages, stats = run.messages[:of_messages], run.stats

    kept = len(run.arrived_ps) > 0
    bin_ps = int(run.counts["load_bin_ps"][0])
    over_time = filled(run.loads) if bin_ps else None
    return EngineResult(
        started_ps=messages["started_ps"].copy(),
        received_ps=messages["received_ps"].copy(),
        completed_ps=messages["completed_ps"].copy(),
        computed_ps=run.messages["completed_ps"][of_messages:].copy(),
        link_bytes=run.links["carried"].copy(),
        link_packets=stats["packets"].copy(),
        link_max_packets=stats["max_packets"].copy(),
        link_max_bytes=stats["max_bytes"].copy(),
        link_drops=stats["drops"].copy(),
        link_trims=stats["trims"].copy(),
        link_marks=stats["marks"].copy(),
        queue_histogram=run.histogram,
        no_route=int(run.counts["no_route"][0]),
        hops=int(run.counts["hops"][0]),
        arrived_ps=run.arrived_ps if kept else None,
        arrived_flags=run.arrived_flags if kept else None,
        sent_ps=run.sent_ps if len(run.sent_ps) else None,
        loads=None if over_time is None else over_time[:, : len(run.links)],
        queues=None if over_time is None else over_time[:, len(run.links) :],
        load_bin_ps=bin_ps,
        parameters=rules.parameters,
        notes=rules.notes,
        switches=rules.switches,
    )
