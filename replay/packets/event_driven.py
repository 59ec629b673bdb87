"""Runs a workload with the event-driven driver: feedback at hosts, losses, failures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Event

import numpy as np

from ...analyzer.errors import UsageError
from ...kernels.kernel import Ints
from ..fabrics.fabric import Fabric
from .event_loop import DONE, GROW, MORE, run_events
from .failures import Failures, Scheduled, converged, scheduled
from .hosts import feedback as fb
from .hosts.congestion import Congestion, Line, congestion
from .hosts.feedback import Feedback, new_feedback
from .hosts.transport import ALGORITHMS, Transport
from .model import state as rs
from .model.arrays import FabricArrays, fabric_arrays, round_trips, with_cut_through
from .model.labels import EvState, HostFunctions, host_functions, new_state, no_selection
from .model.model import ACK, NEVER, EngineResult, Model, Workload
from .model.pause_state import new_pauses
from .model.rules import Rules, Strategy
from .model.state import RunState, free_slots, new_run, release, smallest_packet, with_more_slots
from .model.wheel import new_wheel
from .open_loop import HOPS_AT_ONCE, check_hosts, result_of
from .pauses import pause_outcome

LONGEST_PS = 10**11
"""100 ms: added to the time to send everything, for runs that cannot complete."""


@dataclass(frozen=True)
class FeedbackResult:
    """The result of a run with feedback."""

    engine: EngineResult
    tally: fb.Tally
    data_under_way: int
    """Packets in queues and on wires at the end, trimmed packets included."""
    port_bytes: Ints
    """int64[F, ports]: data of each flow by the NIC port of its host."""
    evs: EvState | None
    """State of the hosts' selection at the end."""


def run_event_driven(
    workload: Workload,
    fabric: Fabric,
    strategy: Strategy,
    model: Model,
    seed: int = 0,
    *,
    transport: Transport | None = None,
    failures: Failures | None = None,
    keep_arrivals: bool = False,
    keep_sent: bool = False,
    load_bin_ps: int = 0,
    until_ps: int | None = None,
    tell: Callable[[int], None] | None = None,
    stop: Event | None = None,
) -> FeedbackResult:
    """Run until all messages are complete, or no event is left.

    until_ps: ends runs that would retry forever; None: `_patience_ps`. The others as for
    `run_open_loop`. UsageError for a combination that is not possible.
    """
    transport = transport or Transport()
    fixed = failures is None or strategy.static_paths
    before = [] if failures is None or fixed else failures.known_before()
    # Failures known to all switches before the start are part of the fabric.
    known = converged(fabric, before) if before else fabric
    plan = scheduled(known, failures or Failures())
    rules = strategy.under(model).rules(workload, plan.fabric, seed)
    if rules.fabric is not None:
        plan = scheduled(rules.fabric, failures or Failures())
    if strategy.static_paths:
        plan = plan.without_routing()
    if rules.rerouted is not None and len(plan.routes) > 1:
        rules = rules.rerouted(plan.fabric, plan.routes)
    arrays = fabric_arrays(plan.fabric)
    check_hosts(workload, arrays, fabric.name)
    can_lose = model.buffer_bytes is not None or len(plan.changes) > 0
    can_lose |= model.pfc is not None and model.pfc.headroom_bytes is not None
    can_lose |= model.pfc is not None and model.pfc.quanta is not None
    can_lose |= not all(each.lossless for each in model.classes)
    source = plan.fabric.links.source
    if model.cut_through:
        rates = plan.rates(arrays.ps_per_byte_q20)
        arrays = with_cut_through(arrays, source, model.header_bytes, rates)
    run = new_run(
        workload, arrays, source, model, rules, seed, keep_arrivals, load_bin_ps, keep_sent
    )
    run = run._replace(slots=free_slots(0, len(run.slots), fb.FEEDBACK_SLOT))
    evs, functions = rules.hosts or (new_state(1, 1, 0, 1, 1), host_functions(no_selection))
    if rules.hosts is not None and arrays.access.shape[1] > 1 and not rules.any_port:
        raise UsageError(f"{strategy.name}: hosts that choose among ports need any_port")
    control = _congestion(workload, arrays, transport, model)
    feedback = _feedback(
        workload, run, arrays, plan, transport, control, model, strategy, rules, can_lose
    )
    if model.pfc is not None:
        packet = max(workload.packet_bytes.max(initial=1), workload.last_bytes.max(initial=1))
        flows, wheel = len(workload.src), feedback.wheel
        rates = plan.rates(arrays.ps_per_byte_q20)
        names = fabric.nodes.names
        pauses = new_pauses(arrays, source, model, int(packet), flows, wheel, rates, names)
        run = run._replace(pauses=pauses)
    run, feedback = _grown_to(run, feedback, int(feedback.control["margin"][0]) + len(workload.src))
    base, goal, ended = 0, 0, True
    if until_ps is None:
        until_ps = _patience_ps(workload, fabric)
    for phase in range(int(workload.phase.max(initial=-1)) + 1):
        in_phase = workload.nodes_of(phase)
        goal += int(np.count_nonzero(in_phase))
        release(run, workload, np.flatnonzero(in_phase & workload.at_once), base)
        run, feedback, ended = _drain(
            run, feedback, evs, functions, control, rules, goal, until_ps, tell, stop
        )
        done = run.messages["completed_ps"][in_phase]
        if run.counts["completed"][0] < goal:
            break
        base = int(done.max(initial=base))
    result = _result(run, feedback, rules, None if rules.hosts is None else evs, len(workload.flow))
    stopped = stop is not None and stop.is_set()
    engine = replace(result.engine, out_of_time=not ended and not stopped)
    if model.pfc is not None:
        incomplete = run.counts["completed"][0] < goal and not stopped
        names = tuple(each.name for each in model.classes)
        engine = replace(engine, pauses=pause_outcome(run, names, incomplete, ended))
    return replace(result, engine=engine)


def _patience_ps(workload: Workload, fabric: Fabric) -> int:
    """When to give up: 10 times the time to send all messages one after another, plus a margin."""
    sent = workload.message_bytes()
    slowest = int(fabric.links.rate_bits_per_second.min())
    at_once = workload.at_once[: len(workload.flow)]
    last = int(workload.release_ps[at_once].max(initial=0))
    last = max(last, int(workload.due_ps.max(initial=0)))
    waits = int(workload.release_ps[~at_once].sum()) + int(
        workload.waits.takes_ps.sum(dtype=np.float64)
    )
    to_send = 10 * (int(sent.sum()) * 8 * 10**12 // slowest)
    return min(LONGEST_PS + last + waits + to_send, 1 << 62)


def _drain(
    run: RunState,
    feedback: Feedback,
    evs: EvState,
    functions: HostFunctions,
    control: Congestion,
    rules: Rules,
    goal: int,
    until_ps: int,
    tell: Callable[[int], None] | None,
    stop: Event | None,
) -> tuple[RunState, Feedback, bool]:
    """Run one phase; the last value: whether its goal is reached or no event is left."""
    while True:
        before = int(run.counts["hops"][0])
        outcome = run_events(
            run,
            feedback,
            evs,
            (rules.choose, rules.emit),
            rules.state,
            (functions.select, functions.feedback, functions.wake),
            (control.on_ack, control.on_cnp, control.on_loss, control.on_send),
            goal,
            until_ps,
            HOPS_AT_ONCE,
        )
        if tell is not None:
            tell(int(run.counts["hops"][0]))
        if outcome == GROW:
            run, feedback = _grown(run, feedback)
            continue
        at_limit = outcome == MORE and run.counts["hops"][0] < before + HOPS_AT_ONCE
        if outcome != MORE or at_limit or (stop is not None and stop.is_set()):
            return run, feedback, outcome == DONE


def _grown(run: RunState, feedback: Feedback) -> tuple[RunState, Feedback]:
    run = with_more_slots(run)
    return run, feedback._replace(slots=run.slots)


def _grown_to(run: RunState, feedback: Feedback, slots: int) -> tuple[RunState, Feedback]:
    while len(run.slots) < slots:
        run, feedback = _grown(run, feedback)
    return run, feedback


def _congestion(
    workload: Workload, arrays: FabricArrays, transport: Transport, model: Model
) -> Congestion:
    packet = model.payload_bytes + model.header_bytes
    trips = round_trips(workload.src, workload.dst, arrays, packet, model.ack_bytes)
    line = Line(packet, trips, model.trim_bytes is not None)
    return congestion(ALGORITHMS[transport.congestion], len(workload.src), line)


def _feedback(
    workload: Workload,
    run: RunState,
    arrays: FabricArrays,
    plan: Scheduled,
    transport: Transport,
    control: Congestion,
    model: Model,
    strategy: Strategy,
    rules: Rules,
    can_lose: bool,
) -> Feedback:
    packet = model.payload_bytes + model.header_bytes
    access = arrays.access[arrays.access >= 0]
    service = (packet * arrays.ps_per_byte_q20 + (1 << 19)) >> 20
    least = min(model.header_bytes, smallest_packet(workload))
    smallest = max(1, int(service[access].min(initial=1 << 40)) * least // packet)
    ahead = int(arrays.delay_ps.max(initial=0)) + int(service.max(initial=0))
    ports = arrays.access.shape[1]
    margin = (ahead // smallest + 4) * ports + 64
    if model.pfc is not None:  # a link that fails ends the pauses of all ports of its switch
        margin += 2 * len(model.classes) * int(np.diff(arrays.in_start).max(initial=1))
    items = 1 + len(run.links) + len(workload.src) + arrays.hosts
    between = float(np.median(service)) / max(1, len(run.links))
    return new_feedback(
        workload,
        run,
        arrays.target,
        transport,
        control,
        plan.routes,
        plan.changes,
        new_wheel(items, between, ahead),
        rules.hosts is not None,
        strategy.static_paths,
        can_lose,
        margin,
    )


def _result(
    run: RunState, feedback: Feedback, rules: Rules, evs: EvState | None, of_messages: int
) -> FeedbackResult:
    tally = fb.Tally(*feedback.tally[0].tolist())
    engine = replace(
        result_of(run, rules, of_messages),
        lost_on_links=tally.lost_on_links,
        sent_again=tally.sent_again,
        timeouts=tally.timeouts,
        failed_ps=_failed_ps(feedback),
    )
    return FeedbackResult(engine, tally, _under_way(run), feedback.ports, evs)


def _failed_ps(feedback: Feedback) -> Ints:
    """int64[F]: when the sender of a flow gave up; -1: never."""
    failed = feedback.senders["retries"] > feedback.control["most_retries"][0]
    return np.where(failed, feedback.senders["retried_ps"], -1)


def _under_way(run: RunState) -> int:
    """Data packets on wires and in queues at the end."""
    heads = run.links["wire_head"][run.links["head_time"] != NEVER].tolist()
    heads += run.links["data_head"].tolist() + run.links["ack_head"].tolist()
    heads += run.classes.queues["head"].tolist()
    count = 0
    for slot in heads:
        while slot >= 0:
            count += not int(run.slots["key"][slot]) & (ACK | fb.PROBE)
            following = int(run.slots["next"][slot]) & rs.NO_SLOT
            slot = -1 if following == rs.NO_SLOT else following
    return count
