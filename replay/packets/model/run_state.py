"""The state of a run in a few arrays: links, packets in flight, hosts, flows, messages.

Columns are constants of this file; rows of links and packets fit cache lines."""

from __future__ import annotations

from typing import TypeAlias, TypeVar

import numpy as np

from ....kernels.kernel import Array, Bytes, Int32s, Ints
from ....kernels.named import NamedTuple
from .aligned import aligned
from .arrays import FabricArrays, ports_in_turn
from .classes import Classes, new_classes
from .model import LINK_COLUMNS, NEVER, RANDOM, Model, Workload
from .pause_state import Pauses, no_pauses
from .rules import Rules

# links: the shared columns of `LinkColumn`, then
FREE, WAITING_DATA, WAITING_ACKS, WAITING_PACKETS, SERVED, CARRIED = range(6)
WIRE_HEAD, WIRE_TAIL, HEAD_TIME = 6, 7, 8
"""Packets on the wire, and the arrival time of the first (NEVER: none)."""
DATA_HEAD, DATA_TAIL, ACK_HEAD, ACK_TAIL = 9, 10, 11, 12
"""Packets that wait, by class; -1 for none."""
RATE, DELAY, LAYER = 13, 14, 15

# stats, per link
PACKETS, MAX_PACKETS, MAX_BYTES, DROPS, TRIMS, MARKS, FIXED, LAST = range(8)
"""FIXED, set before the run: bytes after which the node at the end forwards a packet << 1 | 1 for
links that never mark. LAST, of the data that waits: the packet before the last one (valid if two or
more wait) << 32 | packets that have competed for the last place, see `enqueue`. Eight columns: a
row is one cache line."""
STAT_COLUMNS = 8

# slots: one row per packet in flight
TIME, KEY, META, NEXT = range(4)
"""TIME: on a wire, the arrival of the next packet (NEVER: none), so that the next packet is not
fetched before it arrives. META: destination host << 32 | label. NEXT: packets that an ACK
acknowledges << 48 | bytes << 32 | next slot (0xFFFFFFFF for none)."""
SLOT_COLUMNS = 4
NO_SLOT = 0xFFFFFFFF

# hosts
PENDING, NOW = range(2)
"""First message not yet released, by time; latest handled release or arrival."""

# rings: flows with packets to send, which take turns on a port
RING_HEAD, RING_TAIL = range(2)

# flows
CURSOR, END, RING, RING_NEXT, IN_RING, SRC, DST = range(7)
FLOW_COLUMNS = 8

# messages
(
    SIZE,
    PACKET_BYTES,
    LAST_BYTES,
    RELEASE,
    PENDING_NEXT,
    READY,
    SENT,
    RECEIVED,
    UNACKED,
    ACKED,
    FLOW,
    STARTED_PS,
    RECEIVED_PS,
    COMPLETED_PS,
    FIRST_NUMBER,
    WAITS,
) = range(16)
MESSAGE_COLUMNS = 16

# counts
HOPS, NO_ROUTE_COUNT, FREE_SLOT, FREE_SLOTS, IN_FLIGHT, CLOCK, COMPLETED, LOAD_BIN_PS = range(8)
COUNTS = 8

# settings
ACK_BYTES, GAP_BYTES, ACK_EVERY, BUFFER, TRIM_BYTES, ECN_LOW, ECN_HIGH, SEED = range(8)
WINDOW_PS, NEW_PER_WINDOW, READS_QUEUES, HISTOGRAM_BINS, KEEP_ARRIVALS, ANY_PORT = range(8, 14)
SEES_ALL, ECN_MOST, FAIR_DROPS, JITTER, PFC, CLASSES, CUT_THROUGH = range(14, 21)
"""ECN_MOST: probability of a mark at ECN_HIGH, in 2^-24. JITTER: longest gap after a data packet of
a host, of its service time in 2^-20. CLASSES: number of classes of data."""
SETTINGS = 21

_BINS = 2048
MOST_STRETCHES = 128
"""Intervals of loads over time; even."""


class RunState(NamedTuple):
    """Arrays of a run. int64 except arrays of the fabric; columns as above."""

    links: Ints
    stats: Ints
    slots: Ints
    hosts: Ints
    rings: Ints
    flows: Ints
    messages: Ints
    next_start: Ints
    """int64[2 nodes + 1]: successors of message m at its sender from 2m, at its receiver from 2m+1;
    of computations from twice their node. `messages` has a row of SIZE 0 for each computation."""
    next_message: Int32s
    counts: Ints
    settings: Ints
    histogram: Ints
    arrived_ps: Ints
    arrived_flags: Bytes
    sent_ps: Ints
    """int64[packets]: time of the first transmission; empty if not requested."""
    due_ps: Ints
    wire: Int32s
    """As in `Workload`: `due_ps` and `wire_bytes`."""
    loads: Ints
    """See load_bins.py; counted if LOAD_BIN_PS is not 0."""
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

    links: Ints
    stats: Ints
    slots: Ints
    counts: Ints
    settings: Ints
    histogram: Ints
    loads: Ints
    pauses: Pauses
    classes: Classes


class Desk(NamedTuple):
    """The arrays of `RunState` for messages and turns of flows."""

    hosts: Ints
    rings: Ints
    flows: Ints
    messages: Ints
    settings: Ints
    access: Int32s
    sent_ps: Ints
    due_ps: Ints
    wire: Int32s
    next_start: Ints
    next_message: Int32s
    counts: Ints


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
    links = aligned(len(arrays.target), LINK_COLUMNS, -1)
    links[:, :WIRE_HEAD] = 0
    links[:, HEAD_TIME] = NEVER
    links[:, RATE], links[:, DELAY] = arrays.ps_per_byte_q20, arrays.delay_ps
    links[:, LAYER] = arrays.layer
    flows, rings = _flows(workload, arrays, rules.any_port, len(model.classes))
    settings = _settings(workload, arrays, model, rules, seed, keep_arrivals)
    room = max(1024, 2 * int(settings[NEW_PER_WINDOW]))
    counts = np.zeros(COUNTS, np.int64)
    counts[FREE_SLOT], counts[FREE_SLOTS] = 0, room
    counts[LOAD_BIN_PS] = load_bin_ps
    next_start, next_message = _successors(workload)
    order = np.argsort(source, kind="stable").astype(np.int32)
    leaving = np.bincount(source, minlength=arrays.switches + arrays.hosts)
    degree = int(np.diff(arrays.in_start).max(initial=1))
    packets = int(workload.packet_start[-1]) if keep_arrivals else 0
    return RunState(
        links=links,
        stats=_stats(arrays, model),
        slots=free_slots(0, room),
        hosts=np.tile(np.array([-1, 0], np.int64), (arrays.hosts, 1)),
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


def _stats(arrays: FabricArrays, model: Model) -> Ints:
    stats = aligned(len(arrays.target), STAT_COLUMNS)
    unmarked = (arrays.target >= arrays.switches) & (not model.ecn_last_hop)
    stats[:, FIXED] = arrays.header_bytes.astype(np.int64) << 1 | unmarked
    return stats


def free_slots(first: int, room: int, columns: int = SLOT_COLUMNS) -> Ints:
    """Free slots, chained from number `first` on."""
    slots = aligned(room, columns)
    slots[:, NEXT] = np.arange(first + 1, first + room + 1)
    slots[-1, NEXT] = NO_SLOT
    return slots


def with_more_slots(run: _AnyState) -> _AnyState:
    """The state with twice the slots for packets in flight."""
    old, counts = run.slots, run.counts
    more = free_slots(len(old), *old.shape)
    more[-1, NEXT] = counts[FREE_SLOT] if counts[FREE_SLOTS] else NO_SLOT
    counts[FREE_SLOT] = len(old)
    counts[FREE_SLOTS] += len(old)
    slots = aligned(2 * len(old), old.shape[1])
    slots[: len(old)], slots[len(old) :] = old, more
    return run._replace(slots=slots)


def release(run: RunState, workload: Workload, rows: Array, base_ps: int) -> None:
    """Schedule nodes without a predecessor at their hosts, at base_ps + release_ps; computations
    at their end.

    No host may have pending messages. Messages of flows without a path are left out.
    """
    m = len(workload.flow)
    messages, work = rows[rows < m], rows[rows >= m] - m
    messages = messages[run.flows[workload.flow[messages], RING] >= 0]
    rows = np.concatenate([messages, work + m])
    if not len(rows):
        return
    waits = workload.waits
    times = base_ps + np.concatenate([workload.release_ps[messages], waits.takes_ps[work]])
    host = np.concatenate([workload.src[workload.flow[messages]], waits.host[work]])
    order = np.lexsort((rows, times, host))
    rows, times, host = rows[order], times[order], host[order]
    run.messages[rows, RELEASE] = times
    last = np.append(host[1:] != host[:-1], True)
    run.messages[rows, PENDING_NEXT] = np.where(last, -1, np.append(rows[1:], -1))
    first = np.concatenate([np.array([True]), last[:-1]])
    run.hosts[host[first], PENDING] = rows[first]


def _classes(workload: Workload, arrays: FabricArrays, model: Model) -> Classes:
    packet = max(workload.packet_bytes.max(initial=1), workload.last_bytes.max(initial=1))
    of = workload.priority[workload.flow] if len(workload.priority) else np.zeros(1, np.uint8)
    if len(of) < len(workload.flow) and len(model.classes) > 1:
        of = np.zeros(len(workload.flow), np.uint8)
    return new_classes(model.classes, len(arrays.target), of, int(packet))


def _flows(
    workload: Workload, arrays: FabricArrays, any_port: bool, classes: int
) -> tuple[Ints, Ints]:
    flows = aligned(len(workload.src), FLOW_COLUMNS)
    flows[:, CURSOR], flows[:, END] = workload.flow_start[:-1], workload.flow_start[1:]
    ports = arrays.access.shape[1]
    port = ports_in_turn(arrays, workload.src, workload.dst)
    flows[:, RING] = workload.src.astype(np.int64) * ports + (0 if any_port else port)
    flows[:, RING] *= classes
    if classes > 1 and len(workload.priority):
        flows[:, RING] += workload.priority
    flows[port < 0, RING] = -1
    flows[:, RING_NEXT] = -1
    flows[:, SRC], flows[:, DST] = workload.src, workload.dst
    return flows, np.full((arrays.hosts * ports * classes, 2), -1, np.int64)


def _messages(workload: Workload) -> Ints:
    nodes, own = workload.nodes, slice(len(workload.flow))
    messages = aligned(nodes, MESSAGE_COLUMNS)
    messages[own, SIZE] = workload.packets
    messages[own, PACKET_BYTES] = workload.packet_bytes
    messages[own, LAST_BYTES] = workload.last_bytes
    messages[own, RELEASE] = workload.release_ps
    messages[len(workload.flow) :, RELEASE] = workload.waits.takes_ps
    messages[:, PENDING_NEXT] = -1
    messages[own, FLOW] = workload.flow
    messages[:, STARTED_PS : COMPLETED_PS + 1] = -1
    messages[own, FIRST_NUMBER] = workload.packet_start[:-1]
    messages[:, WAITS] = np.bincount(workload.edges.node, minlength=nodes)
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
) -> Ints:
    settings = np.zeros(SETTINGS, np.int64)
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
    settings[ACK_BYTES], settings[GAP_BYTES] = model.ack_bytes, model.gap_bytes
    settings[ACK_EVERY] = model.ack_every
    settings[BUFFER] = none if model.buffer_bytes is None else model.buffer_bytes
    settings[TRIM_BYTES] = model.trim_bytes or 0
    settings[ECN_LOW] = none if model.ecn_low_bytes is None else model.ecn_low_bytes
    settings[ECN_HIGH] = none if model.ecn_high_bytes is None else model.ecn_high_bytes
    settings[ECN_MOST] = round(model.ecn_most * (1 << 24))
    settings[PFC] = model.pfc is not None
    settings[CLASSES] = len(model.classes)
    settings[CUT_THROUGH] = model.cut_through
    settings[FAIR_DROPS] = model.drop == RANDOM
    settings[JITTER] = round(model.host_jitter * (1 << 20))
    settings[SEED] = seed
    settings[WINDOW_PS] = window
    settings[NEW_PER_WINDOW] = int((window // fastest + 2).sum())
    settings[READS_QUEUES] = rules.reads_queues
    settings[SEES_ALL] = rules.sees_all
    settings[HISTOGRAM_BINS] = _BINS
    settings[KEEP_ARRIVALS] = keep_arrivals
    settings[ANY_PORT] = rules.any_port
    return settings
