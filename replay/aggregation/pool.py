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
    size = world.jobs[row.job].window
    before = row.ready
    computed(run, worker, time)
    for seq in range(before, min(before + size, row.ready)):
        if slots[seq % size].due == 0:
            _send(run, worker, seq, time)
    if row.deadline and row.deadline <= time:
        _expire(run, worker, time)
    if row.deadline:
        schedule(world.wheel, worker_item(run, worker), row.deadline)
    next_layer = computed_at(run, worker)
    if next_layer != NEVER:
        schedule(world.wheel, worker_item(run, worker), next_layer)


@inlined
def _send(run: Run, worker: Int, seq: Int, time: Int) -> None:
    row = run.world.workers[worker]
    cell = run.world.pool[worker, seq % run.world.jobs[row.job].window]
    send_new(run, worker, seq, time)
    cell.seq, cell.due = seq, time + timer(run, worker)
    if row.deadline == 0:
        row.deadline = cell.due
        schedule(run.world.wheel, worker_item(run, worker), row.deadline)


@inlined
def _expire(run: Run, worker: Int, time: Int) -> None:
    """Retransmit what waited for its timer; DEADLINE is the next one, 0 for none."""
    row, slots = run.world.workers[worker], run.world.pool[worker]
    row.deadline = 0
    for at in range(run.world.jobs[row.job].window):
        if slots[at].due and slots[at].due <= time:
            run.memory.tally[row.job].timeouts += 1
            row.by_timer += 1
            send_again(run, worker, slots[at].seq, np.int64(0), time)
            slots[at].due = time + timer(run, worker)
        due = slots[at].due
        if due and (row.deadline == 0 or due < row.deadline):
            row.deadline = due


@subkernel
def take_pooled(run: Run, worker: Int, slot: Int, time: Int) -> None:
    """A result arrives at a worker."""
    world = run.world
    row, extra = world.workers[worker], world.extra
    job, seq, value = row.job, extra[slot].seq, extra[slot].value
    free_slot(run.net, slot)
    size = world.jobs[job].window
    cell = world.pool[worker, seq % size]
    if cell.seq != seq or cell.due == 0:
        run.memory.tally[job].repeated += 1
        return
    check_sum(run, job, seq, value)
    cell.seq, cell.due = seq + size, 0
    row.done += 1
    row.heard = 1
    if seq + size < row.ready:
        _send(run, worker, seq + size, time)
    if took_last_sum(run, worker, time) and row.finished < 0:
        begin_iteration(run, worker, time)
        wake_pool(run, worker, time)
