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
from ..packets.model.records import Records
from ..packets.model.run_state import Net
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
