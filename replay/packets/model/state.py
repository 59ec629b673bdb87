"""The state of a run in a few tables: links, packets in flight, hosts, flows, messages."""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar

import numpy as np

from ....kernels.kernel import Array, Bytes, Int32s, Ints, NamedTuple
from .arrays import FabricArrays, ports_in_turn
from .model import LINK, NEVER, RANDOM, Model, Workload
from .pause_state import Pauses, no_pauses
from .queueing import Classes, new_classes
from .records import CACHE_LINE, Records, layout, table
from .rules import Rules


class Stat:
    """What a link counts; one cache line."""

    packets: int
    max_packets: int
    max_bytes: int
    drops: int
    trims: int
    marks: int
    fixed: int
    """Set before the run: bytes after which the node at the end forwards a packet << 1 | 1 for
    links that never mark."""
    last: int
    """Of the data that waits: the packet before the last one (valid if two or more wait) << 32 |
    packets that have competed for the last place, see `enqueue`."""


class Slot:
    """A packet in flight."""

    time: int
    """On a wire, the arrival of the next packet (NEVER: none), so that the next packet is not
    fetched before it arrives."""
    key: int
    meta: int
    """Destination host << 32 | label."""
    next: int
    """Packets that an ACK acknowledges << 48 | bytes << 32 | next slot (NO_SLOT for none)."""


class Host:
    """A host."""

    pending: int
    """First message not yet released, by time."""
    now: int
    """Latest handled release or arrival."""


class Ring:
    """Flows with packets to send, which take turns on a port."""

    ring_head: int
    ring_tail: int


class Flow:
    """A flow; one cache line."""

    cursor: int
    """The message that it sends, below `end`."""
    end: int
    ring: int
    """-1 for a flow without a path."""
    ring_next: int
    in_ring: int
    src: int
    dst: int


class Message:
    """A message, or a computation, which has size 0; two cache lines."""

    size: int
    """Packets."""
    packet_bytes: int
    last_bytes: int
    release: int
    pending_next: int
    ready: int
    sent: int
    """Packets, like the following three."""
    received: int
    unacked: int
    acked: int
    flow: int
    started_ps: int
    received_ps: int
    completed_ps: int
    first_number: int
    """Number, over all messages, of its first packet."""
    waits: int
    """Predecessors that are not complete."""


class Counts:
    """What a run counts; one record."""

    hops: int
    no_route: int
    """Packets without a route."""
    free_slot: int
    """First free slot."""
    free_slots: int
    in_flight: int
    clock: int
    completed: int
    load_bin_ps: int


class Settings:
    """The settings of a run; one record."""

    ack_bytes: int
    gap_bytes: int
    ack_every: int
    buffer: int
    trim_bytes: int
    ecn_low: int
    ecn_high: int
    seed: int
    window_ps: int
    new_per_window: int
    reads_queues: int
    histogram_bins: int
    keep_arrivals: int
    any_port: int
    sees_all: int
    ecn_most: int
    """Probability of a mark at `ecn_high`, in 2^-24."""
    fair_drops: int
    jitter: int
    """Longest gap after a data packet of a host, of its service time in 2^-20."""
    pfc: int
    classes: int
    """Number of classes of data."""
    cut_through: int


STAT, SLOT, HOST, RING = layout(Stat), layout(Slot), layout(Host), layout(Ring)
FLOW, MESSAGE = layout(Flow, CACHE_LINE), layout(Message, CACHE_LINE)
COUNTS, SETTINGS = layout(Counts), layout(Settings)
NO_SLOT = 0xFFFFFFFF

_BINS = 2048
MOST_STRETCHES = 128
"""Intervals of loads over time; even."""


class RunState(NamedTuple):
    """Tables of a run, and the arrays of its fabric."""

    links: Records
    stats: Records
    slots: Records
    hosts: Records
    rings: Records
    flows: Records
    messages: Records
    next_start: Ints
    """int64[2 nodes + 1]: successors of message m at its sender from 2m, at its receiver from 2m+1;
    of computations from twice their node."""
    next_message: Int32s
    counts: Records
    settings: Records
    histogram: Ints
    arrived_ps: Ints
    arrived_flags: Bytes
    sent_ps: Ints
    """int64[packets]: time of the first transmission; empty if not requested."""
    due_ps: Ints
    wire: Int32s
    """As in `Workload`: `due_ps` and `wire_bytes`."""
    loads: Ints
    """See packets/queues.py; counted if `Counts.load_bin_ps` is not 0."""
    pauses: Pauses
    classes: Classes
    tree: Ints
    """Scratch space of the merge of links."""
    route: Int32s
    group_start: Ints
    members: Int32s
    host_edge: Int32s
    host_switch: Int32s
    access: Int32s
    exits: Int32s
    return_link: Int32s
    in_start: Ints
    in_links: Int32s
    out_start: Ints
    out_links: Int32s


class Net(NamedTuple):
    """The arrays of `RunState` for packets in the network, as one argument."""

    links: Records
    stats: Records
    slots: Records
    counts: Records
    settings: Records
    histogram: Ints
    loads: Ints
    pauses: Pauses
    classes: Classes


class Desk(NamedTuple):
    """The arrays of `RunState` for messages and turns of flows."""

    hosts: Records
    rings: Records
    flows: Records
    messages: Records
    settings: Records
    access: Int32s
    sent_ps: Ints
    due_ps: Ints
    wire: Int32s
    next_start: Ints
    next_message: Int32s
    counts: Records


Network: TypeAlias = RunState | Net
"""Argument of functions on packets in the network."""
Messages: TypeAlias = RunState | Desk
"""Argument of functions on messages and turns of flows."""
_AnyState = TypeVar("_AnyState", RunState, Net)


def new_run(
    workload: Workload,
    arrays: FabricArrays,
    source: Int32s,
    model: Model,
    rules: Rules,
    seed: int,
    keep_arrivals: bool,
    load_bin_ps: int,
    keep_sent: bool,
) -> RunState:
    """The state before the first packet. source: node at the start of each link."""
    links = idle_links(arrays)
    links["layer"] = arrays.layer
    flows, rings = _flows(workload, arrays, rules.any_port, len(model.classes))
    settings = _settings(workload, arrays, model, rules, seed, keep_arrivals)
    room = max(1024, 2 * int(settings["new_per_window"][0]))
    counts = table(1, COUNTS)
    counts["free_slot"], counts["free_slots"] = 0, room
    counts["load_bin_ps"] = load_bin_ps
    hosts = table(arrays.hosts, HOST)
    hosts["pending"] = -1
    next_start, next_message = _successors(workload)
    order = np.argsort(source, kind="stable").astype(np.int32)
    leaving = np.bincount(source, minlength=arrays.switches + arrays.hosts)
    degree = int(np.diff(arrays.in_start).max(initial=1))
    packets = int(workload.packet_start[-1]) if keep_arrivals else 0
    return RunState(
        links=links,
        stats=_stats(arrays, model),
        slots=free_slots(0, room, SLOT),
        hosts=hosts,
        rings=rings,
        flows=flows,
        messages=_messages(workload),
        next_start=next_start,
        next_message=next_message,
        counts=counts,
        settings=settings,
        histogram=np.zeros((int(arrays.layer.max(initial=0)) + 1, _BINS), np.int64),
        arrived_ps=np.full(packets, -1, np.int64),
        arrived_flags=np.zeros(packets, np.uint8),
        sent_ps=np.full(int(workload.packet_start[-1]) if keep_sent else 0, -1, np.int64),
        due_ps=workload.due_ps,
        wire=workload.wire_bytes,
        loads=np.zeros((MOST_STRETCHES, 2 * len(links)) if load_bin_ps else (1, 2), np.int64),
        pauses=no_pauses(),
        classes=_classes(workload, arrays, model),
        tree=np.empty(4 << max(1, degree - 1).bit_length(), np.int64),
        **{name: array for name, array in arrays._asdict().items() if name in RunState._fields},
        out_start=np.concatenate([np.zeros(1, np.int64), np.cumsum(leaving)]),
        out_links=order,
    )


def idle_links(arrays: FabricArrays) -> Records:
    """Links without packets, all of the first layer."""
    links = table(len(arrays.target), LINK)
    links["head_time"] = NEVER
    for name in ("wire_head", "wire_tail", "data_head", "data_tail", "ack_head", "ack_tail"):
        links[name] = -1
    links["rate"], links["delay"] = arrays.ps_per_byte_q20, arrays.delay_ps
    return links


def _stats(arrays: FabricArrays, model: Model) -> Records:
    stats = table(len(arrays.target), STAT)
    unmarked = (arrays.target >= arrays.switches) & (not model.ecn_last_hop)
    stats["fixed"] = arrays.header_bytes.astype(np.int64) << 1 | unmarked
    return stats


def free_slots(first: int, room: int, record: np.dtype[Any]) -> Records:
    """Free slots, chained from number `first` on. record: SLOT, or one that begins as it does."""
    slots = table(room, record)
    slots["next"] = np.arange(first + 1, first + room + 1)
    slots["next"][-1] = NO_SLOT
    return slots


def with_more_slots(run: _AnyState) -> _AnyState:
    """The state with twice the slots for packets in flight."""
    old, counts = run.slots, run.counts
    more = free_slots(len(old), len(old), old.dtype)
    more["next"][-1] = counts["free_slot"][0] if counts["free_slots"][0] else NO_SLOT
    counts["free_slot"] = len(old)
    counts["free_slots"] += len(old)
    slots = table(2 * len(old), old.dtype)
    slots[: len(old)], slots[len(old) :] = old, more
    return run._replace(slots=slots)


def release(run: RunState, workload: Workload, rows: Array, base_ps: int) -> None:
    """Schedule nodes without a predecessor at their hosts, at base_ps + release_ps; computations
    at their end.

    No host may have pending messages. Messages of flows without a path are left out.
    """
    m = len(workload.flow)
    messages, work = rows[rows < m], rows[rows >= m] - m
    messages = messages[run.flows["ring"][workload.flow[messages]] >= 0]
    rows = np.concatenate([messages, work + m])
    if not len(rows):
        return
    waits = workload.waits
    times = base_ps + np.concatenate([workload.release_ps[messages], waits.takes_ps[work]])
    host = np.concatenate([workload.src[workload.flow[messages]], waits.host[work]])
    order = np.lexsort((rows, times, host))
    rows, times, host = rows[order], times[order], host[order]
    run.messages["release"][rows] = times
    last = np.append(host[1:] != host[:-1], True)
    run.messages["pending_next"][rows] = np.where(last, -1, np.append(rows[1:], -1))
    first = np.concatenate([np.array([True]), last[:-1]])
    run.hosts["pending"][host[first]] = rows[first]


def _classes(workload: Workload, arrays: FabricArrays, model: Model) -> Classes:
    packet = max(workload.packet_bytes.max(initial=1), workload.last_bytes.max(initial=1))
    of = workload.priority[workload.flow] if len(workload.priority) else np.zeros(1, np.uint8)
    if len(of) < len(workload.flow) and len(model.classes) > 1:
        of = np.zeros(len(workload.flow), np.uint8)
    return new_classes(model.classes, len(arrays.target), of, int(packet))


def _flows(
    workload: Workload, arrays: FabricArrays, any_port: bool, classes: int
) -> tuple[Records, Records]:
    flows = table(len(workload.src), FLOW)
    flows["cursor"], flows["end"] = workload.flow_start[:-1], workload.flow_start[1:]
    ports = arrays.access.shape[1]
    port = ports_in_turn(arrays, workload.src, workload.dst)
    flows["ring"] = workload.src.astype(np.int64) * ports + (0 if any_port else port)
    flows["ring"] *= classes
    if classes > 1 and len(workload.priority):
        flows["ring"] += workload.priority
    flows["ring"][port < 0] = -1
    flows["ring_next"] = -1
    flows["src"], flows["dst"] = workload.src, workload.dst
    rings = table(arrays.hosts * ports * classes, RING)
    rings["ring_head"] = rings["ring_tail"] = -1
    return flows, rings


def _messages(workload: Workload) -> Records:
    nodes, real = workload.nodes, slice(len(workload.flow))
    messages = table(nodes, MESSAGE)
    messages["size"][real] = workload.packets
    messages["packet_bytes"][real] = workload.packet_bytes
    messages["last_bytes"][real] = workload.last_bytes
    messages["release"][real] = workload.release_ps
    messages["release"][len(workload.flow) :] = workload.waits.takes_ps
    messages["pending_next"] = -1
    messages["flow"][real] = workload.flow
    messages["started_ps"] = messages["received_ps"] = messages["completed_ps"] = -1
    messages["first_number"][real] = workload.packet_start[:-1]
    messages["waits"] = np.bincount(workload.edges.node, minlength=nodes)
    return messages


def _successors(workload: Workload) -> tuple[Ints, Int32s]:
    edges = workload.edges
    slot = 2 * edges.after.astype(np.int64) + edges.on
    order = np.argsort(slot, kind="stable")
    counts = np.bincount(slot, minlength=2 * workload.nodes)
    start = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    return start, edges.node[order].astype(np.int32)


def smallest_packet(workload: Workload) -> int:
    """Bytes on the wire of the smallest data packet; 65,536 without packets."""
    columns = (
        (workload.wire_bytes,)
        if len(workload.wire_bytes)
        else (workload.last_bytes, workload.packet_bytes)
    )
    return min(int(column.min(initial=1 << 16)) for column in columns)


def _settings(
    workload: Workload,
    arrays: FabricArrays,
    model: Model,
    rules: Rules,
    seed: int,
    keep_arrivals: bool,
) -> Records:
    settings = table(1, SETTINGS)
    none = int(NEVER)
    data = smallest_packet(workload)
    smallest = min(model.ack_bytes, data)
    if model.trim_bytes is not None:
        smallest = min(smallest, model.trim_bytes)
    passed = np.minimum(smallest, arrays.header_bytes)
    service = (passed * arrays.ps_per_byte_q20 + (1 << 19)) >> 20
    window = int((service + arrays.delay_ps).min())
    used = arrays.access[arrays.access >= 0]
    fastest = np.maximum(1, (data * arrays.ps_per_byte_q20[used] + (1 << 19)) >> 20)
    settings["ack_bytes"], settings["gap_bytes"] = model.ack_bytes, model.gap_bytes
    settings["ack_every"] = model.ack_every
    settings["buffer"] = none if model.buffer_bytes is None else model.buffer_bytes
    settings["trim_bytes"] = model.trim_bytes or 0
    settings["ecn_low"] = none if model.ecn_low_bytes is None else model.ecn_low_bytes
    settings["ecn_high"] = none if model.ecn_high_bytes is None else model.ecn_high_bytes
    settings["ecn_most"] = round(model.ecn_most * (1 << 24))
    settings["pfc"] = model.pfc is not None
    settings["classes"] = len(model.classes)
    settings["cut_through"] = model.cut_through
    settings["fair_drops"] = model.drop == RANDOM
    settings["jitter"] = round(model.host_jitter * (1 << 20))
    settings["seed"] = seed
    settings["window_ps"] = window
    settings["new_per_window"] = int((window // fastest + 2).sum())
    settings["reads_queues"] = rules.reads_queues
    settings["sees_all"] = rules.sees_all
    settings["histogram_bins"] = _BINS
    settings["keep_arrivals"] = keep_arrivals
    settings["any_port"] = rules.any_port
    return settings
