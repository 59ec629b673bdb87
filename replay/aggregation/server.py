"""The parameter server (PS) of a job: completes sums, sends results, asks for partial sums."""

from __future__ import annotations

import numpy as np

from ...kernels.kernel import Bool, Int, inlined, subkernel
from ..packets.model.wheel import schedule
from ..packets.pauses import free_slot
from .network import new_packet, put
from .state import CONTENDED, FEEDBACK, FLOATS, REMINDER, RESULT, Run, added, saturated


@inlined
def server_item(run: Run, job: Int) -> Int:
    """The calendar's item of a PS."""
    return 1 + len(run.net.links) + len(run.world.workers) + job


@subkernel
def take_gradient(run: Run, slot: Int, time: Int) -> None:
    """A gradient or partial sum arrives at the PS of its job (ATP's rules).

    All values: they replace what is there. A part of them: it is added, unless it has a value that
    is already in the sum, then the whole packet is ignored. A packet of a complete sum is answered
    with the result again. A sum that saturated starts again, of values in floats.
    """
    world, tally = run.world, run.memory.tally
    extra, control = world.extra, world.control
    job, seq, kind = extra[slot].job, extra[slot].seq, extra[slot].kind
    bits, value = extra[slot].bits, extra[slot].value
    free_slot(run.net, slot)
    about = world.jobs[job]
    entry = world.sums[job * control[0].ring + (seq & (control[0].ring - 1))]
    tally[job].server += 1
    if entry.seq > seq + 1:
        tally[job].ignored += 1
        return
    if entry.seq != seq + 1:
        entry.seq = seq + 1
        entry.bits = entry.value = entry.done = entry.collided = entry.marked = 0
        entry.since = entry.index = entry.next = entry.floats = 0
        about.highest = max(about.highest, seq + 1)
    if entry.done:
        tally[job].ignored += 1
        _send_result(run, job, seq, time)
        return
    floats = kind & np.int64(FLOATS)
    if entry.floats and not floats:
        tally[job].ignored += 1
        _send_result(run, job, seq, time)
        return
    all_workers = (np.int64(1) << about.workers) - 1
    if bits == all_workers:
        if entry.bits == 0:
            tally[job].whole += 1
        entry.bits = bits
        entry.value = value
    elif entry.bits & bits:
        tally[job].ignored += 1
    else:
        entry.bits |= bits
        both = entry.value + value
        entry.value = both if floats else added(entry.value, value)
    entry.collided |= kind & control[0].rehash
    entry.marked |= kind & np.int64(FEEDBACK)
    entry.since = time
    if entry.bits == all_workers:
        entry.index = world.server_index[job, seq % about.window]
        if saturated(entry.value) and not floats:
            tally[job].overflows += 1
            entry.floats = 1
            entry.bits = 0
            entry.value = 0
            _send_result(run, job, seq, time)
            return
        entry.done = 1
        contended = entry.marked & np.int64(CONTENDED)
        moves = entry.collided and not contended
        entry.next = _slot_from_now_on(run, job, seq, moves)
        _send_result(run, job, seq, time)
    elif control[0].remind:
        schedule(world.wheel, server_item(run, job), time + control[0].remind)


@inlined
def _slot_from_now_on(run: Run, job: Int, seq: Int, moves: Bool) -> Int:
    """The slot of the window position of a sequence number; another one if it moves."""
    world = run.world
    position = seq % world.jobs[job].window
    old = np.int64(world.server_index[job, position])
    if not moves:
        return old
    slots = world.unused.shape[1]
    for _ in range(slots):
        at = world.jobs[job].next_index
        world.jobs[job].next_index = (at + 1) % slots
        new = np.int64(world.unused[job, at])
        if not world.taken[job, new]:
            world.taken[job, new] = 1
            world.taken[job, old] = 0
            world.server_index[job, position] = new
            return new
    return old


@inlined
def _send_result(run: Run, job: Int, seq: Int, time: Int) -> None:
    """Send the result of a complete sum to every rack, or to every worker; of an incomplete sum,
    that its values are needed in floats."""
    world = run.world
    about, control = world.jobs[job], world.control
    for rack in range(about.first_rack, about.first_rack + about.racks):
        begin, end = world.racks[rack].first, world.racks[rack].end
        if begin < end and control[0].multicast:
            host = world.workers[begin].host
            _answer(run, job, seq, np.int64(-1) - rack, host, time)
        elif begin < end:
            for worker in range(begin, end):
                bit, host = world.workers[worker].bit, world.workers[worker].host
                _answer(run, job, seq, bit, host, time)


@subkernel
def _answer(run: Run, job: Int, seq: Int, to: Int, host: Int, time: Int) -> None:
    world = run.world
    entry = world.sums[job * world.control[0].ring + (seq & (world.control[0].ring - 1))]
    kind = np.int64(RESULT) | entry.marked
    if not entry.done:
        kind |= np.int64(FLOATS)
    slot = new_packet(run, kind, job, seq, to, host)
    world.extra[slot].value = entry.value
    world.extra[slot].index = entry.index
    world.extra[slot].priority = entry.next
    put(run, np.int64(run.ground.access[world.jobs[job].server]), slot, time)


@subkernel
def remind(run: Run, job: Int, time: Int) -> None:
    """Ask the switches for the rest of sums that waited at the PS for the reminder's time."""
    world = run.world
    about, control = world.jobs[job], world.control
    due = np.int64(0)
    begin = max(np.int64(0), about.highest - control[0].ring)
    for seq in range(begin, about.highest):
        entry = world.sums[job * control[0].ring + (seq & (control[0].ring - 1))]
        if entry.seq != seq + 1 or entry.done or entry.bits == 0 or entry.floats:
            continue
        if entry.since + control[0].remind <= time:
            entry.since = time
            for rack in range(about.first_rack, about.first_rack + about.racks):
                _ask(run, job, seq, rack, time)
        wait = entry.since + control[0].remind
        due = wait if due == 0 else min(due, wait)
    if due:
        schedule(world.wheel, server_item(run, job), due)


@inlined
def _ask(run: Run, job: Int, seq: Int, rack: Int, time: Int) -> None:
    world = run.world
    about = world.jobs[job]
    begin, end = world.racks[rack].first, world.racks[rack].end
    host = world.workers[begin].host if begin < end else about.server
    slot = new_packet(run, np.int64(REMINDER), job, seq, np.int64(-1) - rack, host)
    index = world.server_index[job, seq % about.window]
    world.extra[slot].index = index
    run.memory.tally[job].reminders += 1
    put(run, np.int64(run.ground.access[about.server]), slot, time)
