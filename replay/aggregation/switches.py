"""Packets at switches: gradients meet the memory, results are copied, reminders fetch sums."""

from __future__ import annotations

import numpy as np

from ...kernels.kernel import Bool, Int, inlined, subkernel
from ..packets.links.slots import free_slot
from .columns import (
    COLLIDED,
    DIRECT,
    FLOATS,
    GRADIENT,
    KINDS,
    RESULT,
)
from .memory import ABSORB, MULTICAST, REPLY, AtSwitch, fragment_of, load, release
from .network import aim, copied, link_from, put
from .state import SEQ_BITS, SLOTS, Run

ANSWERED = 2
"""DONE of a slot whose value is the result."""


@inlined
def at_switch(run: Run, scheme: AtSwitch, switch: Int, slot: Int, time: Int) -> None:
    """Handle a packet that arrives at a switch."""
    extra, ground = run.world.extra, run.ground
    job, kind = extra[slot].job, extra[slot].kind & np.int64(KINDS)
    memory = np.int64(ground.memory_of[switch])
    whole = np.int64(0) if memory < 0 else ground.masks[memory, job]
    first = memory * run.memory.params[SLOTS]
    if kind == GRADIENT:
        # Switches on the way of another rack's packets let them pass.
        ours = whole and extra[slot].bits & ~whole == 0
        if ours and not extra[slot].kind & np.int64(DIRECT | COLLIDED | FLOATS):
            fate = scheme(run.memory, extra, slot, first, whole, time)
            if fate == ABSORB:
                free_slot(run.net, slot)
                return
            if fate == MULTICAST or fate == REPLY:
                if not _summed(run, switch, slot, fate, first + extra[slot].index, time):
                    return
            else:  # the scheme may have made it a sum of another job
                aim(run, slot, run.world.jobs[extra[slot].job].server)
    elif whole and run.world.control[0].has_server:
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
    here: Int = np.int64(-1)
    if fate == MULTICAST:
        run.memory.tally[job].whole += 1
    for rack in range(about.first_rack, about.first_rack + about.racks):
        begin, end = world.racks[rack].first, world.racks[rack].end
        its_own = begin <= worker < end
        if world.racks[rack].switch == switch:
            here = rack
        elif fate == MULTICAST or its_own:
            copy = copied(run, slot)
            extra[copy].to = np.int64(-1) - rack
            aim(run, copy, world.workers[begin].host)
            _send_on(run, switch, copy, time)
    if fate == MULTICAST:
        _copy_to_rack(run, slot, here, time)
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
