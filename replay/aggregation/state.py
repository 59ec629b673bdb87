"""Jobs, packets and switch memory as arrays, and the conventions of the model.

**Jobs.** A job has workers and, in all schemes but SwitchML, a parameter server (PS) on a host of
its own. An iteration computes, then sums `fragments` gradients of each worker, layer by layer; the
next iteration of a worker begins when it has the sum of its last fragment. Fragments of a job have
sequence numbers from 0 over all iterations. A worker sends a sequence number when it is computed
and less than `window` above the first one whose sum is missing; with SwitchML, when it has the sum
of the number `window` below.

**Workers** are numbered through all jobs, those of a job together and sorted by rack; within a job
a worker is a bit of a mask. **Racks** are numbered through all jobs as well: a rack is a job's
workers at one switch. The PS's switch is a rack of each job, perhaps without workers.

**Values** are int32 and drawn per job, sequence number and worker. Sums saturate at the limits of
int32, as in the registers of a switch; the PS then asks for the values in floats. What workers
receive is compared with the sum of what they sent.

**Packets** travel through the links of the packet engine (packets/model/model.py); `Packet` has the
fields that the engine does not know. Times are int64 ps.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...kernels.kernel import Bytes, Int, Int32s, Ints, inlined
from ..packets.model.draws import drawn, purpose
from ..packets.model.records import CACHE_LINE, Records, layout
from ..packets.model.state import Net
from ..packets.model.wheel import Wheel

MOST_WORKERS = 62
"""Of a job: bits of a mask."""
SEQ_BITS = 40

_VALUE, _OVERFLOW = purpose("gradient value"), purpose("gradient overflow")
_SPAN = 1 << 21
_MOST = (1 << 31) - 1


FIXED_WINDOW, ONE_WINDOW, TWO_WINDOWS = range(3)
ONE_PACKET = 1 << 10
"""One packet of a congestion window."""


class Memory(NamedTuple):
    """The memory of all aggregating switches, for the functions of schemes."""

    cells: Records
    """CELL[switches * slots]: the slots of all switches."""
    tally: Records
    """TALLY[jobs]"""
    usage: Ints
    """int64[2, bins]: ps for which slots were taken, and taken for sums that became complete."""
    params: Ints
    """int64[8]: items below, those of the scheme from OWN on."""


SLOTS, BIN_PS, OWN = range(3)
"""Items of `Memory.params`: slots of a switch, width of a bin of `usage`."""
PARAMS = 8


class Ground(NamedTuple):
    """The fabric."""

    target: Int32s
    """int32[L]: node at the end of each link; switches, then hosts."""
    from_host: Bytes
    """uint8[L]: whether a host is at its start."""
    route: Int32s
    group_start: Ints
    members: Int32s
    """As in `FabricArrays`."""
    host_edge: Int32s
    host_switch: Int32s
    """int32[H]"""
    access: Int32s
    exits: Int32s
    """int32[H]: the links of each host."""
    memory_of: Int32s
    """int32[S]: number of the memory of each switch, -1 for none."""
    masks: Ints
    """int64[memories, J]: the workers whose values a switch waits for, 0: it does not aggregate."""


class World(NamedTuple):
    """All that changes in a run, beside the links."""

    extra: Records
    """PACKET[slots]"""
    jobs: Records
    workers: Records
    racks: Records
    layers: Records
    """LAYER[rows], of each iteration and layer of each job."""
    slowness: Ints
    """int64[workers, 1 or iterations]: compute time over that in `layers`, times 2**16."""
    worker_index: Int32s
    """int32[workers, window]: slot of each window position, as each worker knows it."""
    unused: Int32s
    """int32[jobs, slots]: slots in the order in which collisions use them."""
    taken: Bytes
    """uint8[jobs, slots]: slots that a job uses."""
    server_index: Int32s
    """int32[jobs, window]: as the PS knows it."""
    pool: Records
    """POOL_SLOT[workers, window]"""
    degrees: Records
    """DEGREES[workers]"""
    got: Bytes
    """uint8[workers, ring]: results received."""
    sums: Records
    """SUM[jobs * ring]"""
    expected: Records
    """EXPECTED[jobs * ring]. Of SwitchML the two chunks of each slot are kept."""
    ends: Ints
    """int64[workers, iterations]: end of each iteration, -1 before."""
    control: Records
    wheel: Wheel


class Run(NamedTuple):
    """A run: the argument of the driver."""

    net: Net
    ground: Ground
    world: World
    memory: Memory


@inlined
def owner_of(job: Int, seq: Int) -> Int:
    """The owner of a slot: job and sequence number, not 0."""
    return ((np.int64(job) + 1) << np.int64(SEQ_BITS)) | np.int64(seq)


@inlined
def added(a: Int, b: Int) -> Int:
    """The saturating sum of two int32 values, as int64."""
    total = a + b
    if total > np.int64(_MOST):
        return np.int64(_MOST)
    if total < np.int64(-_MOST - 1):
        return np.int64(-_MOST - 1)
    return total


@inlined
def saturated(value: Int) -> bool:
    """Whether a sum is at a limit of int32."""
    return bool(value >= np.int64(_MOST) or value <= np.int64(-_MOST - 1))


@inlined
def value_of(seed: Int, job: Int, seq: Int, bit: Int, overflow: Int) -> Int:
    """The gradient value of a worker, -2**20 to 2**20 - 1: a sum of 62 does not saturate. With the
    chance `overflow` out of 2**31 the values of a fragment are so large that two of them do."""
    owner = owner_of(job, seq)
    value = drawn(seed, _VALUE, owner, bit, _SPAN) - np.int64(_SPAN // 2)
    if overflow and drawn(seed, _OVERFLOW, owner, np.int64(0), 1 << 31) < overflow:
        value += np.int64(3 << 29)
    return value


class Packet:
    """A packet, beside its slot in the packet engine."""

    kind: int
    """GRADIENT, RESULT or REMINDER, and flags."""
    job: int
    seq: int
    bits: int
    """Mask of the workers whose values are in `value`."""
    value: int
    index: int
    """The slot of the switch memory."""
    priority: int
    """0 to 255; in a RESULT the slot of this window position from now on."""
    to: int
    """RESULT: bit of the worker, or -1 - rack for all workers of a rack. REMINDER: -1 - rack.
    GRADIENT: bit of the sender."""


class Cell:
    """A slot of a switch's memory."""

    owner: int
    """`owner_of` of the fragment, 0 for an empty slot."""
    bits: int
    value: int
    priority: int
    marked: int
    """FEEDBACK of the contributions, and CONTENDED if another fragment wanted the slot (A2TP)."""
    since: int
    """When the slot was claimed."""
    done: int
    """Whether the sum was complete; 2: `value` is the result of the root (SwitchML)."""
    touched: int
    """Time of the last contribution."""


class JobTally:
    """Counts of packets of a job."""

    sent: int
    """Gradients, first transmissions."""
    resent: int
    timeouts: int
    """Expired timers of workers."""
    absorbed: int
    """Gradients that ended in a switch, because their slot had not all workers yet."""
    completed: int
    """Sums that a switch completed, at every level."""
    collisions: int
    """Gradients that found their slot taken."""
    preemptions: int
    """Slots taken from other jobs."""
    evicted: int
    """Partial sums that left a switch for another job."""
    server: int
    """Gradient packets that reached the PS."""
    whole: int
    """Those with the values of all workers; SwitchML: sums that the switch completed."""
    ignored: int
    """Packets at the PS with a value that it already had."""
    results: int
    """Results that workers received for the first time."""
    repeated: int
    """Results that a worker already had."""
    reminders: int
    wrong: int
    """Results with another value than the sum of what the workers sent."""
    stale: int
    """Gradients of a chunk that was complete already."""
    overflows: int
    """Sums that saturated: the PS asked for the values in floats."""
    expired: int
    """Slots of the job that a result of another fragment released: the slot's timeout."""
    bypassed: int
    """Gradients that were sent past the switch memory at their first transmission (A2TP)."""


class JobRow:
    """A job."""

    workers: int
    first: int
    """First worker."""
    server: int
    """Host of the PS; with SwitchML a worker in the rack of the root."""
    iterations: int
    window: int
    layers: int
    """Of an iteration."""
    first_layer: int
    """Row of its first layer in `World.layers`; all layers of an iteration follow each other."""
    jitter: int
    """Compute times vary by up to this share, times 2**16."""
    overflow: int
    """Chance of a fragment that its sum exceeds int32, out of 2**31."""
    first_rack: int
    racks: int
    base: int
    """SwitchML: the first of its slots."""
    slots: int
    """SwitchML: its slots, half of them per version."""
    next_index: int
    """Next entry of its list of unused slots, for collisions."""
    highest: int
    """One more than the highest sequence number that reached the PS."""


class Worker:
    """A worker."""

    job: int
    bit: int
    host: int
    sent: int
    """Next sequence number to send."""
    done: int
    """First sequence number without a result; with SwitchML the number of results."""
    ready: int
    """End of the sequence numbers that are computed."""
    iteration: int
    layer: int
    """Next layer of the iteration to be computed."""
    base: int
    """Start of the iteration."""
    slowness: int
    """Compute time over that of the model, times 2**16, in this iteration."""
    deadline: int
    """When the timer expires."""
    later: int
    """Results since `done` was asked for that are not `done`."""
    asked: int
    """One more than the last sequence number retransmitted for later results."""
    finished: int
    """When the last iteration ended, -1 before."""
    congestion: int
    """Congestion window in packets, times 2**10."""
    halved: int
    """The window was last halved below this sequence number; the threshold of slow start is the
    window then."""
    heard: int
    """Whether a result has arrived."""
    by_timer: int
    """Gradients that its timer retransmitted."""

    # A2TP, see workers.py.
    aggregators: int
    """Window of aggregators, packets."""
    credit: int
    """Gradients that may still use switch memory in this period."""
    period_end: int
    """Sequence number whose result ends the period."""
    period_at: int
    """Start of the period."""
    period_done: int
    """`done` at its start."""
    measured: int
    """Whether the share of prompt results of this period is known."""
    echoes: int
    """Results of this period with the mark of ECN."""
    contentions: int
    """Results of this period whose slot another fragment wanted."""


class PoolSlot:
    """A slot of SwitchML as a worker sees it."""

    seq: int
    """Sequence number that waits for its result, or the next one."""
    due: int
    """When its timer expires, 0: not sent."""


class Degrees:
    """A2TP's moving averages of a worker, 0 to 1."""

    marked: float
    """Share of results with the mark of ECN."""
    contended: float
    """Share of results whose slot another fragment wanted."""
    prompt: float
    """Share of a window whose results came within the base round-trip time."""
    prompt_now: float
    """The same of this period alone."""


class Sum:
    """What the PS of a job holds of a fragment."""

    seq: int
    """One more than the sequence number, 0 for none."""
    bits: int
    value: int
    done: int
    collided: int
    marked: int
    """FEEDBACK of the packets."""
    since: int
    """Time of the last contribution or reminder."""
    index: int
    """The slot, once `done`."""
    next: int
    """The slot of its window position from now on, once `done`."""
    floats: int
    """Whether the sum saturated and starts again in floats."""


class Rack:
    """The workers of a job at one switch."""

    switch: int
    first: int
    """First worker."""
    end: int
    """End of its workers."""


class Layer:
    """A layer of an iteration of a job."""

    end: int
    """End of its sequence numbers."""
    ps: int
    """From the start of the iteration until it is computed."""
    priority: int
    """0 to 255."""


class Expected:
    """What workers sent of a fragment."""

    seq: int
    """One more than the sequence number."""
    sum: int
    """Of the values sent."""


class Control:
    """Settings of a run, and its progress; one record."""

    rto: int
    """Timer, ps."""
    first_rto: int
    """The same before the first result."""
    trigger: int
    """Later results until the first missing one is asked for, 0: never."""
    rehash: int
    """The PS gives a window position another slot after a gradient with one of these flags."""
    remind: int
    """ps until the PS asks switches for a partial sum, 0: never."""
    has_server: int
    multicast: int
    """Switches copy results."""
    congestion: int
    """FIXED_WINDOW, ONE_WINDOW (ATP) or TWO_WINDOWS (A2TP)."""
    loss: int
    """Chance of a packet on a link, times 2**31; the same for the two below."""
    copies: int
    delays: int
    bytes: int
    seed: int
    ring: int
    """Sequence numbers that are kept, a power of two."""
    double_after: int
    """Retransmissions after which a timer doubles, 0: never."""
    slot_timeout: int
    """ps without a contribution after which the result of another fragment releases a slot, 0:
    never."""
    margin: int
    """Slots for one event."""
    finished: int
    """Workers that finished."""
    now: int
    base_rtt: int
    """A2TP's base round-trip time, ps."""
    contention: int
    """Percentage of contended results that A2TP tolerates."""


PACKET, CELL, TALLY = layout(Packet, CACHE_LINE), layout(Cell, CACHE_LINE), layout(JobTally)
JOB, WORKER, POOL_SLOT, DEGREES = (layout(row) for row in (JobRow, Worker, PoolSlot, Degrees))
SUM, RACK, LAYER, EXPECTED = (layout(row) for row in (Sum, Rack, Layer, Expected))
CONTROL = layout(Control)

GRADIENT, RESULT, REMINDER = range(3)
KINDS = 3
"""Mask of the kind within `Packet.kind`."""
RESENT, COLLIDED, DIRECT, ECHO, FLOATS, CONTENDED = 4, 8, 16, 32, 64, 128
"""Flags: retransmitted, or sent past the switch memory (A2TP); found its slot taken; no switch adds
to it any longer; a packet of this sum was marked by ECN; a GRADIENT in floats, or a RESULT that
asks for them; another fragment wanted the slot of this sum (A2TP)."""
FEEDBACK = ECHO | CONTENDED
"""Flags that a sum takes along to its result."""
