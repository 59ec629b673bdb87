"""The event-driven driver: feedback at hosts, losses, failures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Event

import numpy as np

from ...analyzer.errors import UsageError
from ...kernels.kernel import Bool, Bytes, Int, Int32s, Ints, inlined, prefetch_item, subkernel
from ..fabrics.fabric import Fabric
from ..traffic.traffic import ON_RECEIVED
from .failures import (
    LINK_DOWN,
    LINK_LOSS,
    LINK_RATE,
    LINK_UP,
    PEER_PORTS,
    ROUTES,
    Failures,
    Scheduled,
    converged,
    scheduled,
)
from .hosts import feedback as fb
from .hosts.congestion import (
    Congestion,
    Line,
    congestion,
    on_ack_at,
    on_cnp_at,
    on_loss_at,
    on_send_at,
)
from .hosts.feedback import Feedback, drawn_key, new_feedback
from .hosts.reacting import on_timer, receive_ack, receive_data
from .hosts.sending import release_successors, ring_of, serve_nic, unblock
from .hosts.transport import ALGORITHMS, IDEAL, Transport
from .model import pause_state as ps
from .model import state as rs
from .model.arrays import ATTACHED, FabricArrays, fabric_arrays, round_trips, with_cut_through
from .model.draws import FAILURE, draw
from .model.labels import (
    EvState,
    HostFunctions,
    feedback_at,
    host_functions,
    new_state,
    no_selection,
    select_at,
    wake_at,
)
from .model.model import ACK, NEVER, TRIMMED, EngineResult, Model, Workload, message_of, number_of
from .model.pause_state import new_pauses
from .model.records import Records, layout, table
from .model.rules import Choose, Rules, Strategy, choose_at, emit_at
from .model.state import (
    Desk,
    Net,
    RunState,
    free_slots,
    new_run,
    release,
    smallest_packet,
    with_more_slots,
)
from .model.wheel import AT, COUNT, ITEM_MASK, MANY, Wheel, new_wheel, next_event, schedule
from .open_loop import HOPS_AT_ONCE, check_hosts, result_of
from .pauses import (
    admit,
    class_of,
    free_slot,
    is_paused,
    leave,
    link_next,
    new_slot,
    next_due,
    next_of,
    note_use,
    obey,
    pause_due,
    pause_outcome,
    row_of,
    size_of,
)
from .queues import enqueue, serve, take_arrival, way_on

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
    passages: Records
    """PASSAGE[n]: packets that arrived at the ends of the watched links, in order of time."""


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
    watched: Bytes | None = None,
    tell: Callable[[int], None] | None = None,
    stop: Event | None = None,
) -> FeedbackResult:
    """Run until all messages are complete, or no event is left.

    until_ps: ends runs that would retry forever; None: `_patience_ps`. watched: uint8[L], 1 for
    links whose packets the result lists. The others as for `run_open_loop`. UsageError for a
    combination that is not possible.
    """
    watch = _Watch(np.zeros(0, np.uint8) if watched is None else watched)
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
            run, feedback, evs, functions, control, rules, goal, until_ps, watch, tell, stop
        )
        done = run.messages["completed_ps"][in_phase]
        if run.counts["completed"][0] < goal:
            break
        base = int(done.max(initial=base))
    evs_of_hosts = None if rules.hosts is None else evs
    result = _result(run, feedback, rules, evs_of_hosts, watch.all(feedback), len(workload.flow))
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
    watch: _Watch,
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
            watch.links,
            watch.room,
        )
        if tell is not None:
            tell(int(run.counts["hops"][0]))
        if outcome == FULL:
            watch.empty(feedback)
            continue
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
    run: RunState,
    feedback: Feedback,
    rules: Rules,
    evs: EvState | None,
    passages: Records,
    of_messages: int,
) -> FeedbackResult:
    tally = fb.Tally(*feedback.tally[0].tolist())
    engine = replace(
        result_of(run, rules, of_messages),
        lost_on_links=tally.lost_on_links,
        sent_again=tally.sent_again,
        timeouts=tally.timeouts,
        failed_ps=_failed_ps(feedback),
    )
    return FeedbackResult(engine, tally, _under_way(run), feedback.ports, evs, passages)


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


# One event per packet and link, from a calendar of links.
#
# Links are first in, first out and are served lazily, so each link has at most one event: the
# arrival of the first packet on its wire. A link is served up to the current time when its state is
# needed, in place of events for departures. Timers of hosts and changes of links are items of the
# same calendar. Model, queues and rules are those of the open-loop driver.

DONE, MORE, GROW, FULL = range(4)
"""No event is left or the goal is reached; stopped at a limit; slots may not suffice; the room for
passages is full."""


class Passage:
    """A packet that arrived at the end of a watched link."""

    time: int
    link: int
    key: int
    """With flags (`model.py`, `feedback.py`)."""
    stamp: int
    """Time at which the packet, or for an ACK its data packet, left its host."""
    trail: int
    """As in `FeedbackSlot`; bit 0: the link lost the packet."""


PASSAGE = layout(Passage)
PASSAGES_AT_ONCE = 1 << 16


class _Watch:
    """Watched links and what has passed them."""

    def __init__(self, links: Bytes) -> None:
        self.links = links
        self.room = table(PASSAGES_AT_ONCE if links.any() else 0, PASSAGE)
        self._parts: list[Records] = []

    def empty(self, feedback: Feedback) -> None:
        """Make room for more."""
        self._parts.append(self.room[: feedback.control["passages"][0]].copy())
        feedback.control["passages"] = 0

    def all(self, feedback: Feedback) -> Records:
        """PASSAGE[n]"""
        self.empty(feedback)
        return np.concatenate(self._parts)


@subkernel
def run_events(
    run: RunState,
    feedback: Feedback,
    evs: EvState,
    of_rules: tuple[Int, Int],
    state: Ints,
    of_hosts: tuple[Int, Int, Int],
    of_congestion: tuple[Int, Int, Int, Int],
    goal: Int,
    until_ps: Int,
    most_hops: Int,
    watched: Bytes,
    passages: Records,
) -> Int:
    """Handle events until `goal` messages are complete. Returns DONE, MORE, GROW or FULL.

    of_rules, of_hosts, of_congestion: addresses of the functions, in the order of the lines below.
    watched: uint8[L]. passages: PASSAGE, without room if no link is watched.
    """
    choose, emit = choose_at(of_rules[0]), emit_at(of_rules[1])
    select, on_feedback, wake = (
        select_at(of_hosts[0]),
        feedback_at(of_hosts[1]),
        wake_at(of_hosts[2]),
    )
    on_ack, on_cnp = on_ack_at(of_congestion[0]), on_cnp_at(of_congestion[1])
    on_loss, on_send = on_loss_at(of_congestion[2]), on_send_at(of_congestion[3])
    net = Net(
        run.links, run.stats, run.slots, run.counts, run.settings, run.histogram, run.loads,
        run.pauses, run.classes,
    )  # fmt: skip
    desk = Desk(
        run.hosts, run.rings, run.flows, run.messages, run.settings, run.access, run.sent_ps,
        run.due_ps, run.wire, run.next_start, run.next_message, run.counts,
    )  # fmt: skip
    counts, links, slots, stats = run.counts, run.links, run.slots, run.stats
    control, wheel, wires = feedback.control, feedback.wheel, feedback.wires
    timers, host_items = control[0].timers, control[0].host_items
    switches = feedback.routes.shape[1]
    pfc = run.settings[0].pfc != 0
    stop_hops = counts[0].hops + most_hops
    ahead = len(wheel.items) > MANY
    for host in range(run.access.shape[0]):
        if run.hosts[host].pending >= 0:
            due = max(run.messages[run.hosts[host].pending].release, counts[0].clock)
            schedule(wheel, host_items + host, due)
    if control[0].next_change < len(feedback.changes):
        schedule(wheel, np.int64(0), feedback.changes[control[0].next_change, 0])
    while counts[0].completed < goal:
        if counts[0].free_slots < control[0].margin:
            return GROW
        if counts[0].hops >= stop_hops:
            return MORE
        if len(passages) and control[0].passages == len(passages):
            return FULL
        item, time = next_event(wheel)
        if item < 0:
            return DONE
        if time > until_ps:
            schedule(wheel, item, time)
            return MORE
        counts[0].clock = time
        control[0].now_ps = time
        if ahead:
            _fetch_next(run, feedback, switches)

        # The event: a change, a packet that arrives over a link, or the timer of a flow.
        # `nic` is the host of the event.
        link: Int = np.int64(-1)
        slot: Int = np.int64(-1)
        node: Int = np.int64(-1)
        flow: Int = np.int64(-1)
        resumes: Bool
        framed: Bool
        resumes = framed = False
        if item == 0:
            nic: Int = _owner_of_change(feedback)
        elif item >= host_items:
            nic = item - host_items
            resumes = feedback.nics[nic].blocked != 0
        elif item >= timers:
            flow = item - timers
            nic = run.flows[flow].src
        else:
            link = item - 1
            nic = wires[link].owner
            framed = pfc and pause_due(net, link) <= time
            if not framed and links[link].head_time == time:
                node = wires[link].target
                slot = take_arrival(links, slots, link)
                if node >= switches:
                    nic = node - switches
            if not framed and wires[link].owner < 0 and links[link].waiting_packets > 0:
                serve(net, link, time + 1)
        if nic >= 0:
            limit = time if item == 0 or framed else time + 1  # changes and pauses come first
            serve_nic(net, desk, feedback, evs, emit, state, select, on_send, nic, limit)
        if framed:
            if nic >= 0:
                _hold_rings(net, desk, link, nic)
            obey(net, run.messages, link, time)
            if nic >= 0 and run.settings[0].classes > 1:  # another class may have been blocked
                unblock(feedback.nics, run.hosts, nic, time)
            schedule(wheel, item, time)  # the same event, without the frame
            continue
        if resumes:  # retry after the earlier packets were sent
            unblock(feedback.nics, run.hosts, nic, time)
            schedule(wheel, item, time)
        if link >= 0:
            _schedule_link(net, wheel, link, time)

        # The packet to forward, and the link for it.
        finished: Int
        out: Int = np.int64(-1)
        finished = np.int64(0)
        if item == 0:
            _change(net, feedback, run.flows, run.messages, run.access, time)
        elif flow >= 0:
            slot = on_timer(net, desk, feedback, evs, on_feedback, wake, on_loss, flow, time)
            if slot >= 0:
                out = np.int64(run.access[nic, feedback.slots[slot].echo % run.access.shape[1]])
        elif slot >= 0:
            seed = run.settings[0].seed
            if _fails(feedback, slots, seed, link, slot, time):
                feedback.slots[slot].trail |= 1
            if len(passages) and watched[link]:
                _note(feedback, passages, link, slot, time)
            if feedback.slots[slot].trail & 1:
                feedback.tally[0].lost_on_links += 1
            elif node < switches:
                feedback.slots[slot].trail += 2
                out = _way_on(run, feedback, choose, state, node, slot, time)
                if out < 0:
                    counts[0].no_route += 1
            elif slots[slot].key & np.int64(ACK):
                key, count = slots[slot].key, slots[slot].next >> np.int64(48)
                finished = receive_ack(
                    desk, feedback, evs, on_feedback, on_ack, on_cnp, on_loss, feedback.ends, key,
                    count, slot, time,
                )  # fmt: skip
                free_slot(net, slot)
                slot = np.int64(-1)
            else:
                back = np.int64(run.return_link[link])
                answered, complete, notice = receive_data(
                    net, desk, feedback, run.arrived_ps, run.arrived_flags, emit, state, nic, back,
                    slot, time,
                )  # fmt: skip
                if notice >= 0:
                    _send_notice(net, feedback, back, notice, time)
                if complete >= 0:
                    feedback.ends[0] = 2 * complete + ON_RECEIVED
                    finished = np.int64(1)
                if answered:
                    out = back
                else:
                    free_slot(net, slot)
                    slot = np.int64(-1)
        if finished:
            for i in range(finished):
                release_successors(run, nic, feedback.ends[i], time)
            pending = run.hosts[nic].pending
            if pending >= 0:
                schedule(wheel, host_items + nic, max(time, run.messages[pending].release))
        if slot < 0 or item == 0:
            continue
        if out >= 0 and wires[out].down == 0:
            serve(net, out, time + 1)
            room: Bool = True
            if pfc:
                room = _counted(net, feedback, run, link, out, slot, time)
            if room:
                slot = enqueue(net, out, slot, time)
            else:
                free_slot(net, slot)
                stats[out].drops += 1
            _schedule_link(net, wheel, out, time)
            if slot < 0:
                continue
        else:
            free_slot(net, slot)
            if out >= 0:
                stats[out].drops += 1
        _lost(net, feedback, run.messages, slot, time)
    return DONE


@subkernel
def _note(feedback: Feedback, passages: Records, link: Int, slot: Int, time: Int) -> None:
    """List a packet that arrives at the end of a watched link."""
    at = feedback.control[0].passages
    feedback.control[0].passages = at + 1
    passages[at].time = time
    passages[at].link = link
    passages[at].key = feedback.slots[slot].key
    passages[at].stamp = feedback.slots[slot].stamp
    passages[at].trail = feedback.slots[slot].trail


@inlined
def _schedule_link(net: Net, wheel: Wheel, link: Int, time: Int) -> None:
    """Make the next event of a link due: an arrival, or where its wire is empty and packets wait
    (gaps, cut-through), the end of what occupies it."""
    due: Int
    if net.settings[0].pfc:
        due = next_due(net, link, time)
    else:
        due = net.links[link].head_time
        if due == NEVER and net.links[link].waiting_packets > 0:
            due = max(time, net.links[link].free)
    if due != NEVER:
        schedule(wheel, 1 + link, due)


@subkernel
def _hold_rings(net: Net, desk: Desk, link: Int, host: Int) -> None:
    """Note the flows that wait at a paused port of a host."""
    held = net.pauses.held
    if len(held) == 1:
        return
    for port in range(desk.access.shape[1]):
        if desk.access[host, port] != link:
            continue
        for of in range(net.settings[0].classes):
            if net.pauses.rows[row_of(net, link, np.int64(of))].paused == 0:
                continue
            flow = desk.rings[ring_of(desk, host, np.int64(port), np.int64(of))].ring_head
            while flow >= 0:
                held[link, flow] |= np.uint8(ps.HELD)
                flow = desk.flows[flow].ring_next


@inlined
def _counted(
    net: Net, feedback: Feedback, run: RunState, came_by: Int, out: Int, slot: Int, time: Int
) -> Bool:
    """Count a packet that is about to wait in the buffer of its switch; False without room."""
    net.slots[slot].time = -1
    if feedback.wires[out].owner >= 0 or net.slots[slot].key & np.int64(ACK | TRIMMED):
        return True
    note_use(net, run.messages, out, slot)
    of = class_of(net, net.slots[slot].key)
    if net.links[out].free <= time and not is_paused(net, out, of, time):
        return True  # its transmission begins at once
    return admit(net, run.out_start, run.out_links, came_by, out, slot, time)


@inlined
def _fetch_next(run: RunState, feedback: Feedback, switches: Int) -> None:
    """Prefetch the data of the next events: MANY links and packets exceed the caches.

    First the link, then the packet on it, then its next link or its state at the sender.
    """
    book, links, slots = feedback.wheel.book, run.links, run.slots
    pfc, classes = run.settings[0].pfc != 0, run.settings[0].classes
    at, left = book[AT], book[COUNT] - book[AT]
    if left > 7:
        link = (book[at + 7] & np.int64(ITEM_MASK)) - 1
        prefetch_item(links, link)
        prefetch_item(links.head_time, link)
        prefetch_item(feedback.wires, link)
        if pfc:
            prefetch_item(run.pauses.rows, link * classes)
    if left > 4:
        link = (book[at + 4] & np.int64(ITEM_MASK)) - 1
        if 0 <= link < len(links) and links[link].head_time != NEVER:
            prefetch_item(slots, links[link].wire_head)
    if left > 1:
        link = (book[at + 1] & np.int64(ITEM_MASK)) - 1
        if 0 <= link < len(links) and links[link].head_time != NEVER:
            slot = links[link].wire_head
            host = slots[slot].meta >> np.int64(32)
            node, edge = feedback.wires[link].target, np.int64(run.host_edge[host])
            if node >= switches:
                if feedback.control[0].tracks:
                    key = slots[slot].key
                    first = run.messages[message_of(key)].first_number
                    prefetch_item(feedback.packets, first + number_of(key))
            elif edge >= 0:
                group = np.int64(feedback.routes[feedback.control[0].epoch, node, edge])
                out = np.int64(0)
                if group >= 0:
                    out = np.int64(run.members[run.group_start[group]])
                elif group == ATTACHED:
                    out = np.int64(run.exits[host, 0])
                prefetch_item(links, out)
                prefetch_item(links.head_time, out)
                prefetch_item(run.stats, out)
                prefetch_item(feedback.wires, out)
                if pfc:
                    prefetch_item(run.pauses.rows, out * classes)


@subkernel
def _send_notice(net: Net, feedback: Feedback, link: Int, slot: Int, time: Int) -> None:
    """Queue a CNP at a NIC; it is lost if the link is down or the queue full."""
    if feedback.wires[link].down:
        free_slot(net, slot)
        net.stats[link].drops += 1
        return
    serve(net, link, time + 1)
    enqueue(net, link, slot, time)
    _schedule_link(net, feedback.wheel, link, time)


@inlined
def _fails(feedback: Feedback, slots: Records, seed: Int, link: Int, slot: Int, time: Int) -> Bool:
    """Whether a lossy link loses this packet."""
    chance = feedback.wires[link].loss
    if chance == 0:
        return False
    random = draw(seed, FAILURE, slots[slot].key, (time << np.int64(16)) ^ link)
    return np.int64(random >> np.uint64(32)) < chance


@subkernel
def _lost(net: Net, feedback: Feedback, messages: Records, slot: Int, time: Int) -> None:
    """Count a lost packet, whose slot is already free but unchanged. With the ideal code the sender
    learns of it at once, by the timer of the flow, so that its NIC is served first."""
    key = net.slots[slot].key
    if key & np.int64(fb.PROBE | fb.CNP):
        return
    if not key & np.int64(ACK):
        feedback.tally[0].data_lost += 1
        feedback.tally[0].last_loss_ps = time
    if feedback.control[0].recovery == IDEAL:  # a lost ACK also causes a retransmission
        flow = messages[message_of(key)].flow
        kept = new_slot(net, key, np.int64(0), np.int64(0))  # the same slot
        head = feedback.senders[flow].loss_head
        net.slots[kept].next = np.int64(rs.NO_SLOT)
        if head >= 0:
            link_next(net.slots, kept, head)
        feedback.senders[flow].loss_head = kept
        schedule(feedback.wheel, feedback.control[0].timers + flow, time)


@inlined
def _way_on(
    run: RunState,
    feedback: Feedback,
    choose: Choose,
    state: Ints,
    switch: Int,
    slot: Int,
    time: Int,
) -> Int:
    """`way_on` in the current routing state."""
    meta = run.slots[slot].meta
    edge = np.int64(run.host_edge[meta >> np.int64(32)])
    group = (
        np.int64(feedback.routes[feedback.control[0].epoch, switch, edge])
        if edge >= 0
        else np.int64(-1)
    )
    if group >= 0 and run.settings[0].reads_queues:
        first, end = run.group_start[group], run.group_start[group + 1]
        if end - first > 1 or run.settings[0].sees_all:
            net = Net(
                run.links, run.stats, run.slots, run.counts, run.settings, run.histogram, run.loads,
                run.pauses, run.classes,
            )  # fmt: skip
            for i in range(first, end):
                other = np.int64(run.members[i])
                if run.links[other].waiting_packets > 0 and run.links[other].free <= time:
                    _bring_up(net, feedback.wheel, other, time)
    key = drawn_key(run.slots[slot].key, feedback.slots[slot].stamp)
    return way_on(run, choose, state, group, switch, edge, meta, key, time)


@subkernel
def _bring_up(net: Net, wheel: Wheel, link: Int, time: Int) -> None:
    """Serve a link up to a time, inclusive."""
    serve(net, link, time + 1)
    if net.links[link].head_time != NEVER:
        schedule(wheel, 1 + link, net.links[link].head_time)


@inlined
def _owner_of_change(feedback: Feedback) -> Int:
    """The host whose NIC the next change affects, -1 for none."""
    at = feedback.control[0].next_change
    if feedback.changes[at, 1] >= ROUTES:
        return np.int64(-1)
    return feedback.wires[feedback.changes[at, 2]].owner


@subkernel
def _change(
    net: Net, feedback: Feedback, flows: Records, messages: Records, access: Int32s, time: Int
) -> None:
    """Apply the next change of a link or of routing."""
    control, changes = feedback.control, feedback.changes
    at = control[0].next_change
    what, which, value = changes[at, 1], changes[at, 2], changes[at, 3]
    control[0].next_change = at + 1
    if at + 1 < len(changes):
        schedule(feedback.wheel, np.int64(0), changes[at + 1, 0])
    if what == ROUTES:
        control[0].epoch = which
        return
    if what == PEER_PORTS:
        for flow in range(len(flows)):
            if flows[flow].dst == which:
                feedback.senders[flow].peer_mask = value
                feedback.senders[flow].new_ports = 1
                schedule(feedback.wheel, control[0].timers + flow, time)
        return
    host = feedback.wires[which].owner
    if host < 0:
        _bring_up(net, feedback.wheel, which, time - 1)
    if what == LINK_RATE:
        net.links[which].rate = value
    elif what == LINK_LOSS:
        feedback.wires[which].loss = value
    elif what == LINK_DOWN or what == LINK_UP:
        down = what == LINK_DOWN
        feedback.wires[which].down = 1 if down else 0
        if host >= 0:
            for port in range(access.shape[1]):
                if access[host, port] == which:
                    bit = np.int64(1) << port
                    feedback.nics[host].up = feedback.nics[host].up & ~bit | (0 if down else bit)
            for flow in range(len(flows)):
                if flows[flow].src == host:
                    feedback.senders[flow].new_ports = 1
                    schedule(feedback.wheel, control[0].timers + flow, time)
        if down:
            _cut(net, feedback, messages, which, time)


@inlined
def _cut(net: Net, feedback: Feedback, messages: Records, link: Int, time: Int) -> None:
    """Packets that wait and the packet in service are lost; packets on the wire still arrive."""
    links = net.links
    if links[link].free > time and links[link].head_time != NEVER:
        feedback.slots[links[link].wire_tail].trail |= 1
    data, acks = links[link].data_head, links[link].ack_head
    links[link].data_head = links[link].ack_head = -1
    _drop_all(net, feedback, messages, link, data, True, time)
    _drop_all(net, feedback, messages, link, acks, False, time)
    if net.settings[0].classes > 1:
        for of in range(net.settings[0].classes):
            row = row_of(net, link, np.int64(of))
            slot = net.classes.queues[row].head
            net.classes.queues[row].head = -1
            net.classes.queues[row].bytes = net.classes.queues[row].deficit = 0
            _drop_all(net, feedback, messages, link, slot, True, time)
    links[link].data_tail = -1
    links[link].ack_tail = -1
    links[link].waiting_data = 0
    links[link].waiting_acks = 0
    links[link].waiting_packets = 0


@subkernel
def _drop_all(
    net: Net, feedback: Feedback, messages: Records, link: Int, slot: Int, data: Bool, time: Int
) -> None:
    """Drop the packets of a queue, from its first one on."""
    while slot >= 0:
        following = next_of(net.slots, slot)
        net.stats[link].drops += 1
        if net.settings[0].pfc and data:
            leave(net, slot, size_of(net.slots, slot), time)
        free_slot(net, slot)
        _lost(net, feedback, messages, slot, time)
        slot = following
