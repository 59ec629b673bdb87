"""The open-loop driver: no event heap, but time windows as long as the fastest hop.

A window is as long as the fastest link needs for the smallest packet, delay included, so a packet
whose service starts in a window arrives at the next node after the window. All arrivals of a window
are known at its start, every link delivers in order, and a node merges its links. The driver serves
oblivious and switch-local strategies: hosts react only to the ends of messages.

Conservative synchronisation: Chandy, Misra, "Distributed Simulation", IEEE TSE 1979.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import cast

import numpy as np

from ...analyzer.errors import UsageError
from ...kernels.kernel import Int, Ints, inlined, kernel, subkernel
from ..fabrics.fabric import Fabric
from ..traffic.traffic import ON_ACKED, ON_RECEIVED
from .hosts.congestion import OnSend
from .hosts.reacting import receive_data
from .hosts.sending import acknowledged, release_successors, serve_nic
from .model.arrays import FabricArrays, fabric_arrays, with_cut_through
from .model.labels import EvState, Select
from .model.model import ACK, NEVER, EngineResult, Model, Workload, message_of
from .model.rules import Choose, Emit, Rules, Strategy, choose_at, emit_at
from .model.state import RunState, new_run, release, with_more_slots
from .pauses import free_slot
from .queues import enqueue, filled, serve, take_arrival, way_on

DONE, MORE, GROW = range(3)
"""No packet is in flight or pending; stopped at the limit; slots may not suffice for a window."""

_PORT_BITS = 16
NO_EVS, NO_SELECTION, NO_PACE = cast(EvState, None), cast(Select, None), cast(OnSend, None)
"""Placeholders for what only hosts with feedback have."""


@inlined
def _fill_tree(run: RunState, node: Int, begin: Int, end: Int) -> Int:
    """Build a winner tree of the first arrival on every in-link; returns its number of leaves.

    A leaf is (time - begin) << 16 | position of the link; an inner node is the smaller child.
    """
    tree, links = run.tree, run.links
    first = run.in_start[node]
    degree = run.in_start[node + 1] - first
    leaves = np.int64(1)
    while leaves < degree:
        leaves *= 2
    is_earlier = False
    for i in range(leaves):
        key = np.int64(NEVER)
        if i < degree:
            time = links[run.in_links[first + i]].head_time
            if time < end:
                key = ((time - begin) << np.int64(_PORT_BITS)) | i
                is_earlier = True
        tree[leaves + i] = key
    if not is_earlier:
        tree[1] = NEVER
        return leaves
    for i in range(leaves - 1, 0, -1):
        tree[i] = min(tree[2 * i], tree[2 * i + 1])
    return leaves


@inlined
def _take_arrival(
    run: RunState, link: Int, position: Int, leaves: Int, begin: Int, end: Int
) -> tuple[Int, Int]:
    """Take the first packet from a wire and update the tree: (slot, new root)."""
    tree, links, key = run.tree, run.links, np.int64(NEVER)
    slot = take_arrival(links, run.slots, link)
    time = links[link].head_time
    if time < end:
        key = ((time - begin) << np.int64(_PORT_BITS)) | position
    i = leaves + position
    tree[i] = key
    while i > 1:
        key = min(key, tree[i ^ 1])
        i >>= 1
        tree[i] = key
    return slot, key


@inlined
def _switch_window(
    run: RunState, choose: Choose, state: Ints, node: Int, begin: Int, end: Int
) -> None:
    """The arrivals at a switch in a window, and the services that its links begin."""
    tree, links = run.tree, run.links
    first = run.in_start[node]
    leaves = _fill_tree(run, node, begin, end)
    root = tree[1]
    while root != NEVER:
        position = root & np.int64((1 << _PORT_BITS) - 1)
        time = begin + (root >> np.int64(_PORT_BITS))
        by = run.in_links[first + position]
        slot, root = _take_arrival(run, by, position, leaves, begin, end)
        link = _way_on(run, choose, state, node, slot, time)
        if link < 0:
            run.counts[0].no_route += 1
            free_slot(run, slot)
            continue
        serve(run, link, time + 1)
        enqueue(run, link, slot, time)
    for i in range(run.out_start[node], run.out_start[node + 1]):
        link = np.int64(run.out_links[i])
        if links[link].waiting_packets > 0:
            serve(run, link, end)


@inlined
def _way_on(run: RunState, choose: Choose, state: Ints, switch: Int, slot: Int, time: Int) -> Int:
    """`way_on`; there is only one routing state."""
    meta = run.slots[slot].meta
    edge = np.int64(run.host_edge[meta >> np.int64(32)])
    group = np.int64(run.route[switch, edge]) if edge >= 0 else np.int64(-1)
    if group >= 0 and run.settings[0].reads_queues:
        first, end = run.group_start[group], run.group_start[group + 1]
        if end - first > 1 or run.settings[0].sees_all:
            for i in range(first, end):
                serve(run, np.int64(run.members[i]), time + 1)
    return way_on(run, choose, state, group, switch, edge, meta, run.slots[slot].key, time)


@inlined
def _host_window(run: RunState, emit: Emit, state: Ints, host: Int, begin: Int, end: Int) -> None:
    """The arrivals at a host in a window, and the packets that its ports begin to send."""
    tree = run.tree
    node = run.route.shape[0] + host
    first = run.in_start[node]
    leaves = _fill_tree(run, node, begin, end)
    root = tree[1]
    while root != NEVER:
        position = root & np.int64((1 << _PORT_BITS) - 1)
        time = begin + (root >> np.int64(_PORT_BITS))
        link = np.int64(run.in_links[first + position])
        slot, root = _take_arrival(run, link, position, leaves, begin, end)
        _serve_nic(run, emit, state, host, time + 1)
        _receive(run, emit, state, host, link, slot, time)
    _serve_nic(run, emit, state, host, end)


@inlined
def _serve_nic(run: RunState, emit: Emit, state: Ints, host: Int, limit: Int) -> None:
    serve_nic(run, run, None, NO_EVS, emit, state, NO_SELECTION, NO_PACE, host, limit)


@inlined
def _receive(
    run: RunState, emit: Emit, state: Ints, host: Int, came_by: Int, slot: Int, time: Int
) -> None:
    """Handle a packet that arrives at a host; the host has been served up to `time`, inclusive."""
    key = run.slots[slot].key
    if key & np.int64(ACK):
        count = run.slots[slot].next >> np.int64(48)
        free_slot(run, slot)
        if acknowledged(run, message_of(key), count, time):
            release_successors(run, host, 2 * message_of(key) + ON_ACKED, time)
        return
    back = np.int64(run.return_link[came_by])
    answered, complete, _ = receive_data(
        run, run, None, run.arrived_ps, run.arrived_flags, emit, state, host, back, slot, time
    )
    if answered:
        enqueue(run, back, slot, time)
    else:
        free_slot(run, slot)
    if complete >= 0:
        release_successors(run, host, 2 * complete + ON_RECEIVED, time)


@subkernel
def _next_release(run: RunState) -> Int:
    """Time of the next release when no packet is in flight, NEVER if there is none."""
    earliest_release = np.int64(NEVER)
    for ring in range(run.rings.shape[0]):
        if run.rings[ring].ring_head >= 0:
            return run.counts[0].clock
    for host in range(run.access.shape[0]):
        message = run.hosts[host].pending
        if message >= 0:
            earliest_release = min(earliest_release, run.messages[message].release)
    return earliest_release


@subkernel
def _switches(run: RunState, choose: Choose, state: Ints, begin: Int, end: Int) -> None:
    """All switches, in one call: a call passes every array of the run."""
    for node in range(run.route.shape[0]):
        _switch_window(run, choose, state, node, begin, end)


@subkernel
def _hosts(run: RunState, emit: Emit, state: Ints, begin: Int, end: Int) -> None:
    """All hosts, in one call."""
    for host in range(run.access.shape[0]):
        _host_window(run, emit, state, host, begin, end)


@kernel
def run_windows(
    run: RunState, choose_address: Int, emit_address: Int, state: Ints, most_hops: Int
) -> Int:
    """Advance by about `most_hops` hops. Returns DONE, MORE or GROW."""
    choose, emit = choose_at(choose_address), emit_at(emit_address)
    counts, settings = run.counts, run.settings
    stop_hops = counts[0].hops + most_hops
    while counts[0].hops < stop_hops:
        if counts[0].free_slots < settings[0].new_per_window:
            return GROW
        begin = counts[0].clock
        if counts[0].in_flight == 0:
            begin = _next_release(run)
            if begin == NEVER:
                return DONE
            begin = max(begin, counts[0].clock)
        end = begin + settings[0].window_ps
        _switches(run, choose, state, begin, end)
        _hosts(run, emit, state, begin, end)
        counts[0].clock = end
    return MORE


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
        nodes_of_phase = workload.nodes_of(phase)
        release(run, workload, np.flatnonzero(nodes_of_phase & workload.at_once), base)
        run = _drain(run, rules, tell, stop)
        done = run.messages["completed_ps"][nodes_of_phase]
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
