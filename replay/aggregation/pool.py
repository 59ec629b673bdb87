"""Workers of SwitchML: each slot of their pool has a clock and a timer of its own.

The result of a slot is the permission to send its next chunk, whatever the other slots wait for
(self-clocking, no work stealing), and each packet in flight has its timer, as in the DPDK backend
of the released code.
"""

from __future__ import annotations

import numpy as np

from ...kernels.kernel import Int, inlined, subkernel
from ..packets.links.slots import free_slot
from ..packets.model.model import NEVER
from ..packets.model.wheel import schedule
from .columns import jb, pk, pl, ty, wk
from .state import Run
from .workers import (
    begin_iteration,
    check_sum,
    computed,
    computed_at,
    send_again,
    send_new,
    timer,
    took_last_sum,
    worker_item,
)


@subkernel
def wake_pool(run: Run, worker: Int, time: Int) -> None:
    """What a worker does at a time: layers that are computed, idle slots, expired timers."""
    world = run.world
    row, slots = world.workers[worker], world.pool[worker]
    size = world.jobs[row[wk.JOB], jb.WINDOW]
    before = row[wk.READY]
    computed(run, worker, time)
    for seq in range(before, min(before + size, row[wk.READY])):
        if slots[seq % size, pl.DUE] == 0:
            _send(run, worker, seq, time)
    if row[wk.DEADLINE] and row[wk.DEADLINE] <= time:
        _expire(run, worker, time)
    if row[wk.DEADLINE]:
        schedule(world.wheel, worker_item(run, worker), row[wk.DEADLINE])
    next_layer = computed_at(run, worker)
    if next_layer != NEVER:
        schedule(world.wheel, worker_item(run, worker), next_layer)


@inlined
def _send(run: Run, worker: Int, seq: Int, time: Int) -> None:
    row = run.world.workers[worker]
    cell = run.world.pool[worker, seq % run.world.jobs[row[wk.JOB], jb.WINDOW]]
    send_new(run, worker, seq, time)
    cell[pl.SEQ], cell[pl.DUE] = seq, time + timer(run, worker)
    if row[wk.DEADLINE] == 0:
        row[wk.DEADLINE] = cell[pl.DUE]
        schedule(run.world.wheel, worker_item(run, worker), row[wk.DEADLINE])


@inlined
def _expire(run: Run, worker: Int, time: Int) -> None:
    """Retransmit what waited for its timer; DEADLINE is the next one, 0 for none."""
    row, slots = run.world.workers[worker], run.world.pool[worker]
    row[wk.DEADLINE] = 0
    for at in range(run.world.jobs[row[wk.JOB], jb.WINDOW]):
        if slots[at, pl.DUE] and slots[at, pl.DUE] <= time:
            run.memory.tally[row[wk.JOB], ty.TIMEOUTS] += 1
            row[wk.BY_TIMER] += 1
            send_again(run, worker, slots[at, pl.SEQ], np.int64(0), time)
            slots[at, pl.DUE] = time + timer(run, worker)
        due = slots[at, pl.DUE]
        if due and (row[wk.DEADLINE] == 0 or due < row[wk.DEADLINE]):
            row[wk.DEADLINE] = due


@subkernel
def take_pooled(run: Run, worker: Int, slot: Int, time: Int) -> None:
    """A result arrives at a worker."""
    world = run.world
    row, extra = world.workers[worker], world.extra
    job, seq, value = row[wk.JOB], extra[slot, pk.SEQ], extra[slot, pk.VALUE]
    free_slot(run.net, slot)
    size = world.jobs[job, jb.WINDOW]
    cell = world.pool[worker, seq % size]
    if cell[pl.SEQ] != seq or cell[pl.DUE] == 0:
        run.memory.tally[job, ty.REPEATED] += 1
        return
    check_sum(run, job, seq, value)
    cell[pl.SEQ], cell[pl.DUE] = seq + size, 0
    row[wk.DONE] += 1
    row[wk.HEARD] = 1
    if seq + size < row[wk.READY]:
        _send(run, worker, seq + size, time)
    if took_last_sum(run, worker, time) and row[wk.FINISHED] < 0:
        begin_iteration(run, worker, time)
        wake_pool(run, worker, time)
