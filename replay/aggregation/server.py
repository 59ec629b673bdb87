"""The parameter server (PS) of a job: completes sums, sends results, asks for partial sums."""

from __future__ import annotations

import numpy as np

from ...kernels.kernel import Bool, Int, inlined, subkernel
from ..packets.links.slots import free_slot
from ..packets.model.wheel import schedule
from .columns import CONTENDED, FEEDBACK, FLOATS, REMINDER, RESULT, jb, pk, sm, ty, wk
from .network import new_packet, put
from .state import MULTICAST, REHASH, REMIND, RING, Run, added, saturated


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
    job, seq, kind = extra[slot, pk.JOB], extra[slot, pk.SEQ], extra[slot, pk.KIND]
    bits, value = extra[slot, pk.BITS], extra[slot, pk.VALUE]
    free_slot(run.net, slot)
    about = world.jobs[job]
    entry = world.sums[job * control[RING] + (seq & (control[RING] - 1))]
    tally[job, ty.SERVER] += 1
    if entry[sm.SEQ] > seq + 1:
        tally[job, ty.IGNORED] += 1
        return
    if entry[sm.SEQ] != seq + 1:
        for column in range(len(entry)):
            entry[column] = 0
        entry[sm.SEQ] = seq + 1
        about[jb.HIGHEST] = max(about[jb.HIGHEST], seq + 1)
    if entry[sm.DONE]:
        tally[job, ty.IGNORED] += 1
        _send_result(run, job, seq, time)
        return
    floats = kind & np.int64(FLOATS)
    if entry[sm.FLOATS] and not floats:
        tally[job, ty.IGNORED] += 1
        _send_result(run, job, seq, time)
        return
    whole = (np.int64(1) << about[jb.WORKERS]) - 1
    if bits == whole:
        if entry[sm.BITS] == 0:
            tally[job, ty.WHOLE] += 1
        entry[sm.BITS] = bits
        entry[sm.VALUE] = value
    elif entry[sm.BITS] & bits:
        tally[job, ty.IGNORED] += 1
    else:
        entry[sm.BITS] |= bits
        both = entry[sm.VALUE] + value
        entry[sm.VALUE] = both if floats else added(entry[sm.VALUE], value)
    entry[sm.COLLIDED] |= kind & control[REHASH]
    entry[sm.MARKED] |= kind & np.int64(FEEDBACK)
    entry[sm.SINCE] = time
    if entry[sm.BITS] == whole:
        entry[sm.INDEX] = world.server_index[job, seq % about[jb.WINDOW]]
        if saturated(entry[sm.VALUE]) and not floats:
            tally[job, ty.OVERFLOWS] += 1
            entry[sm.FLOATS] = 1
            entry[sm.BITS] = 0
            entry[sm.VALUE] = 0
            _send_result(run, job, seq, time)
            return
        entry[sm.DONE] = 1
        contended = entry[sm.MARKED] & np.int64(CONTENDED)
        moves = entry[sm.COLLIDED] and not contended
        entry[sm.NEXT] = _slot_from_now_on(run, job, seq, moves)
        _send_result(run, job, seq, time)
    elif control[REMIND]:
        schedule(world.wheel, server_item(run, job), time + control[REMIND])


@inlined
def _slot_from_now_on(run: Run, job: Int, seq: Int, moves: Bool) -> Int:
    """The slot of the window position of a sequence number; another one if it moves."""
    world = run.world
    position = seq % world.jobs[job, jb.WINDOW]
    old = np.int64(world.server_index[job, position])
    if not moves:
        return old
    slots = world.unused.shape[1]
    for _ in range(slots):
        at = world.jobs[job, jb.NEXT_INDEX]
        world.jobs[job, jb.NEXT_INDEX] = (at + 1) % slots
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
    for rack in range(about[jb.FIRST_RACK], about[jb.FIRST_RACK] + about[jb.RACKS]):
        begin, end = world.racks[rack, 1], world.racks[rack, 2]
        if begin < end and control[MULTICAST]:
            host = world.workers[begin, wk.HOST]
            _answer(run, job, seq, np.int64(-1) - rack, host, time)
        elif begin < end:
            for worker in range(begin, end):
                bit, host = world.workers[worker, wk.BIT], world.workers[worker, wk.HOST]
                _answer(run, job, seq, bit, host, time)


@subkernel
def _answer(run: Run, job: Int, seq: Int, to: Int, host: Int, time: Int) -> None:
    world = run.world
    entry = world.sums[job * world.control[RING] + (seq & (world.control[RING] - 1))]
    kind = np.int64(RESULT) | entry[sm.MARKED]
    if not entry[sm.DONE]:
        kind |= np.int64(FLOATS)
    slot = new_packet(run, kind, job, seq, to, host)
    world.extra[slot, pk.VALUE] = entry[sm.VALUE]
    world.extra[slot, pk.INDEX] = entry[sm.INDEX]
    world.extra[slot, pk.PRIORITY] = entry[sm.NEXT]
    put(run, np.int64(run.ground.access[world.jobs[job, jb.SERVER]]), slot, time)


@subkernel
def remind(run: Run, job: Int, time: Int) -> None:
    """Ask the switches for the rest of sums that waited at the PS for the reminder's time."""
    world = run.world
    about, control = world.jobs[job], world.control
    due = np.int64(0)
    begin = max(np.int64(0), about[jb.HIGHEST] - control[RING])
    for seq in range(begin, about[jb.HIGHEST]):
        entry = world.sums[job * control[RING] + (seq & (control[RING] - 1))]
        if entry[sm.SEQ] != seq + 1 or entry[sm.DONE] or entry[sm.BITS] == 0 or entry[sm.FLOATS]:
            continue
        if entry[sm.SINCE] + control[REMIND] <= time:
            entry[sm.SINCE] = time
            for rack in range(about[jb.FIRST_RACK], about[jb.FIRST_RACK] + about[jb.RACKS]):
                _ask(run, job, seq, rack, time)
        wait = entry[sm.SINCE] + control[REMIND]
        due = wait if due == 0 else min(due, wait)
    if due:
        schedule(world.wheel, server_item(run, job), due)


@inlined
def _ask(run: Run, job: Int, seq: Int, rack: Int, time: Int) -> None:
    world = run.world
    about = world.jobs[job]
    begin, end = world.racks[rack, 1], world.racks[rack, 2]
    host = world.workers[begin, wk.HOST] if begin < end else about[jb.SERVER]
    slot = new_packet(run, np.int64(REMINDER), job, seq, np.int64(-1) - rack, host)
    index = world.server_index[job, seq % about[jb.WINDOW]]
    world.extra[slot, pk.INDEX] = index
    run.memory.tally[job, ty.REMINDERS] += 1
    put(run, np.int64(run.ground.access[about[jb.SERVER]]), slot, time)
