"""Packets at switches: gradients meet the memory, results are copied, reminders fetch sums.

Slots of memory are claimed, filled and released, and the time for which they are taken is counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from ...kernels.kernel import Bool, Int, function_at, inlined, subkernel
from ..packets.model.records import Records, array_of
from ..packets.pauses import free_slot
from .network import aim, copied, link_from, put
from .state import (
    BIN_PS,
    CELL,
    COLLIDED,
    DIRECT,
    FEEDBACK,
    FLOATS,
    GRADIENT,
    KINDS,
    PACKET,
    RESENT,
    RESULT,
    SEQ_BITS,
    SLOTS,
    TALLY,
    Memory,
    Run,
    added,
    owner_of,
)

ANSWERED = 2
"""DONE of a slot whose value is the result."""


@inlined
def at_switch(run: Run, scheme: AtSwitch, switch: Int, slot: Int, time: Int) -> None:
    """Handle a packet that arrives at a switch."""
    extra, ground = run.world.extra, run.ground
    job, kind = extra[slot].job, extra[slot].kind & np.int64(KINDS)
    memory = np.int64(ground.memory_of[switch])
    all_workers = np.int64(0) if memory < 0 else ground.masks[memory, job]
    first = memory * run.memory.params[SLOTS]
    if kind == GRADIENT:
        # Switches on the way of another rack's packets let them pass.
        ours = all_workers and extra[slot].bits & ~all_workers == 0
        if ours and not extra[slot].kind & np.int64(DIRECT | COLLIDED | FLOATS):
            fate = scheme(run.memory, extra, slot, first, all_workers, time)
            if fate == ABSORB:
                free_slot(run.net, slot)
                return
            if fate == MULTICAST or fate == REPLY:
                if not _summed(run, switch, slot, fate, first + extra[slot].index, time):
                    return
            else:  # the scheme may have made it a sum of another job
                aim(run, slot, run.world.jobs[extra[slot].job].server)
    elif all_workers and run.world.control[0].has_server:
        cell = first + extra[slot].index
        if kind == RESULT:
            if run.memory.cells[cell].owner == fragment_of(extra, slot):
                release(run.memory, cell, time)
            elif run.memory.cells[cell].owner:
                _expire(run, cell, time)
        elif run.world.racks[-1 - extra[slot].to].switch == switch:
            if run.memory.cells[cell].owner != fragment_of(extra, slot):
                free_slot(run.net, slot)
                return
            extra[slot].kind = np.int64(GRADIENT | DIRECT)
            load(run.memory, extra, slot, cell)
            release(run.memory, cell, time)
            aim(run, slot, run.world.jobs[job].server)
    to = extra[slot].to
    if kind == RESULT and to < 0 and run.world.racks[-1 - to].switch == switch:
        if not run.world.control[0].has_server:
            _keep_result(run, slot, first + extra[slot].index)
        _copy_to_rack(run, slot, -1 - to, time)
        return
    _send_on(run, switch, slot, time)


@inlined
def _expire(run: Run, cell: Int, time: Int) -> None:
    """Release a slot of another fragment after its timeout (ATP): its owner may have crashed."""
    cells, wait = run.memory.cells, run.world.control[0].slot_timeout
    if wait and time - cells[cell].touched > wait:
        job = (cells[cell].owner >> np.int64(SEQ_BITS)) - 1
        run.memory.tally[job].expired += 1
        release(run.memory, cell, time)


@subkernel
def _summed(run: Run, switch: Int, slot: Int, fate: Int, cell: Int, time: Int) -> Bool:
    """SwitchML: a sum is complete. Whether the packet continues. At the root it is the result, for
    all racks or for that of the sender. The switch of another rack answers a retransmission with
    the result if it has it, and sends its sum on to the root if not."""
    world = run.world
    extra = world.extra
    job = extra[slot].job
    about = world.jobs[job]
    root = np.int64(run.ground.host_switch[about.server]) == switch
    if not root and run.memory.cells[cell].done != ANSWERED:
        aim(run, slot, about.server)
        return True
    worker = about.first + extra[slot].to
    extra[slot].kind = np.int64(RESULT)
    own_rack: Int = np.int64(-1)
    if fate == MULTICAST:
        run.memory.tally[job].whole += 1
    for rack in range(about.first_rack, about.first_rack + about.racks):
        begin, end = world.racks[rack].first, world.racks[rack].end
        its_own = begin <= worker < end
        if world.racks[rack].switch == switch:
            own_rack = rack
        elif fate == MULTICAST or its_own:
            copy = copied(run, slot)
            extra[copy].to = np.int64(-1) - rack
            aim(run, copy, world.workers[begin].host)
            _send_on(run, switch, copy, time)
    if fate == MULTICAST:
        _copy_to_rack(run, slot, own_rack, time)
        return False
    if np.int64(run.ground.host_switch[world.workers[worker].host]) == switch:
        aim(run, slot, world.workers[worker].host)
        return True
    free_slot(run.net, slot)
    return False


@inlined
def _send_on(run: Run, switch: Int, slot: Int, time: Int) -> None:
    """Send a packet towards its destination; without a route it ends."""
    link = link_from(run, switch, slot)
    if link >= 0:
        put(run, link, slot, time)
    else:
        free_slot(run.net, slot)


@inlined
def _keep_result(run: Run, slot: Int, cell: Int) -> None:
    """The switch of a rack keeps the result of the root, for workers that ask for it again."""
    cells = run.memory.cells
    if cells[cell].owner == fragment_of(run.world.extra, slot):
        cells[cell].value = run.world.extra[slot].value
        cells[cell].done = ANSWERED


@subkernel
def _copy_to_rack(run: Run, slot: Int, rack: Int, time: Int) -> None:
    """Send a result to all workers of a rack, at their switch."""
    world = run.world
    end = world.racks[rack].end
    for worker in range(world.racks[rack].first, end):
        copy = slot if worker == end - 1 else copied(run, slot)
        host = world.workers[worker].host
        world.extra[copy].to = world.workers[worker].bit
        aim(run, copy, host)
        put(run, np.int64(run.ground.exits[host]), copy, time)


FORWARD, ABSORB, MULTICAST, REPLY = range(4)
"""A gradient at a switch is forwarded to the PS, absorbed, or becomes the result for all workers of
the rack or for its sender."""


def at_switch_signature() -> Any:
    """Of a scheme's function."""
    from numba import types

    integer: Any = types.int64
    parts = [array_of(CELL), array_of(TALLY), integer[:, ::1], integer[::1]]
    memory: Any = types.NamedTuple(parts, Memory)  # type: ignore[no-untyped-call, unused-ignore]
    return integer(memory, array_of(PACKET), *[integer] * 4)


scheme_at = function_at(at_switch_signature)
AtSwitch: TypeAlias = Callable[[Memory, Records, Int, Int, Int, Int], Int]
"""at_switch(memory, extra, slot, first, all_workers, now_ps): one of the fates above, for the
gradient in a row of `extra`, at the switch whose cells begin at `first`; all_workers: mask of the
workers it waits for. It may change the packet."""


@subkernel
def use(memory: Memory, since: Int, until: Int, done: Int) -> None:
    """Count the time for which a slot was taken."""
    usage, params = memory.usage, memory.params
    if until <= since:
        return
    bins = usage.shape[1]
    while (until - 1) // params[BIN_PS] >= bins:
        for kind in range(2):
            for at in range(bins):
                pair = 2 * at
                usage[kind, at] = (
                    usage[kind, pair] + usage[kind, pair + 1] if pair < bins else np.int64(0)
                )
        params[BIN_PS] *= 2
    width = params[BIN_PS]
    at = since // width
    while since < until:
        end = min(until, (at + 1) * width)
        usage[0, at] += end - since
        if done:
            usage[1, at] += end - since
        since = end
        at += 1


@inlined
def claim(memory: Memory, extra: Records, slot: Int, cell: Int, now_ps: Int) -> None:
    """Write a packet into an empty slot."""
    cells = memory.cells
    cells[cell].owner = owner_of(extra[slot].job, extra[slot].seq)
    cells[cell].bits = extra[slot].bits
    cells[cell].value = extra[slot].value
    cells[cell].priority = extra[slot].priority
    cells[cell].marked = extra[slot].kind & np.int64(FEEDBACK)
    cells[cell].since = cells[cell].touched = now_ps
    cells[cell].done = 0


@inlined
def release(memory: Memory, cell: Int, now_ps: Int) -> None:
    """Empty a slot."""
    cells = memory.cells
    use(memory, cells[cell].since, now_ps, cells[cell].done)
    cells[cell].owner = 0
    cells[cell].bits = 0


@inlined
def load(memory: Memory, extra: Records, slot: Int, cell: Int) -> None:
    """Write the sum of a slot into a packet of the same fragment."""
    cells = memory.cells
    extra[slot].bits = cells[cell].bits
    extra[slot].value = cells[cell].value
    extra[slot].kind |= cells[cell].marked


@inlined
def flush(memory: Memory, extra: Records, slot: Int, cell: Int, now_ps: Int) -> None:
    """A retransmission takes the sum of its slot along and empties the slot. A value that is in the
    slot already is not added; values that overlap only partly stay apart: the slot's are lost, and
    their workers retransmit them."""
    cells = memory.cells
    bits, there = extra[slot].bits, cells[cell].bits
    if bits & there == 0:
        value = added(extra[slot].value, cells[cell].value)
        load(memory, extra, slot, cell)
        extra[slot].bits = bits | there
        extra[slot].value = value
    elif bits & ~there == 0:
        load(memory, extra, slot, cell)
    release(memory, cell, now_ps)


@inlined
def add(memory: Memory, extra: Records, slot: Int, cell: Int, all_workers: Int, now_ps: Int) -> Int:
    """Add a gradient to an empty slot or to the slot of its fragment (ATP's rule).

    The packet that completes the sum takes it on; a copy of a contribution ends, or takes a
    complete sum on again. A packet whose values overlap partly with the slot's continues alone.
    """
    cells, job = memory.cells, extra[slot].job
    bits, there = extra[slot].bits, cells[cell].bits
    if cells[cell].owner == 0:
        claim(memory, extra, slot, cell, now_ps)
    elif bits & there == 0:
        cells[cell].bits = there | bits
        cells[cell].value = added(cells[cell].value, extra[slot].value)
        cells[cell].marked |= extra[slot].kind & np.int64(FEEDBACK)
        cells[cell].touched = now_ps
    elif bits & ~there:
        return np.int64(FORWARD)
    elif there != all_workers:
        return np.int64(ABSORB)
    else:
        load(memory, extra, slot, cell)
        return np.int64(FORWARD)
    if cells[cell].bits != all_workers:
        memory.tally[job].absorbed += 1
        return np.int64(ABSORB)
    cells[cell].done = 1
    memory.tally[job].completed += 1
    load(memory, extra, slot, cell)
    return np.int64(FORWARD)


@inlined
def fragment_of(extra: Records, slot: Int) -> Int:
    """`owner_of` the packet's fragment."""
    return owner_of(extra[slot].job, extra[slot].seq)


@inlined
def is_resent(extra: Records, slot: Int) -> Int:
    """Whether a gradient is a retransmission."""
    return extra[slot].kind & np.int64(RESENT)


@inlined
def collide(memory: Memory, extra: Records, slot: Int) -> None:
    """Mark a gradient that found its slot taken."""
    extra[slot].kind |= np.int64(COLLIDED)
    memory.tally[extra[slot].job].collisions += 1


@inlined
def swap(memory: Memory, extra: Records, slot: Int, cell: Int, now_ps: Int) -> None:
    """Exchange a packet and an incomplete slot: the packet leaves as the evicted partial sum, which
    goes to the PS of its job without further aggregation."""
    cells = memory.cells
    owner, marked = cells[cell].owner, cells[cell].marked
    bits, value, priority = cells[cell].bits, cells[cell].value, cells[cell].priority
    loser = (owner >> np.int64(SEQ_BITS)) - 1
    memory.tally[extra[slot].job].preemptions += 1
    memory.tally[loser].evicted += 1
    release(memory, cell, now_ps)
    claim(memory, extra, slot, cell, now_ps)
    extra[slot].kind = np.int64(GRADIENT | DIRECT) | marked
    extra[slot].job = loser
    extra[slot].seq = owner & ((np.int64(1) << np.int64(SEQ_BITS)) - 1)
    extra[slot].bits = bits
    extra[slot].value = value
    extra[slot].priority = priority
    extra[slot].to = -1
