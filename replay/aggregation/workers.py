"""Workers: they compute, send gradients within their window, and wait for the sums."""

from __future__ import annotations

import numpy as np

from ...kernels.kernel import Bool, Int, inlined, subkernel
from ..packets.links.slots import free_slot
from ..packets.model.draws import drawn, purpose
from ..packets.model.model import NEVER
from ..packets.model.wheel import schedule
from .columns import ECHO, FLOATS, GRADIENT, RESENT, jb, pk, ty, wk
from .network import new_packet, put
from .state import (
    CONGESTION,
    DOUBLE_AFTER,
    FINISHED,
    FIRST_RTO,
    HAS_SERVER,
    ONE_PACKET,
    ONE_WINDOW,
    RING,
    RTO,
    SEED,
    TRIGGER,
    TWO_WINDOWS,
    Run,
    value_of,
)
from .two_windows import begin_windows, beyond_aggregators, note_result

_JITTER = purpose("compute time")
_STEP = 5
"""Packets of an MTU of 1,500 bytes (ATP)."""
LEAST_WINDOW = 1
_MOST_DOUBLED = 10


@inlined
def worker_item(run: Run, worker: Int) -> Int:
    """The calendar's item of a worker."""
    return 1 + len(run.net.links) + worker


@subkernel
def begin_iteration(run: Run, worker: Int, time: Int) -> None:
    """A worker starts to compute its next iteration."""
    workers, control = run.world.workers, run.world.control
    workers[worker, wk.BASE] = time
    workers[worker, wk.LAYER] = 0
    spread = run.world.jobs[workers[worker, wk.JOB], jb.JITTER]
    iteration, slowness = workers[worker, wk.ITERATION], run.world.slowness
    factor = np.int64(1 << 16)
    if spread:
        factor += drawn(control[SEED], _JITTER, worker, iteration, spread)
    own = slowness[worker, min(iteration, slowness.shape[1] - 1)]
    workers[worker, wk.SLOWNESS] = factor * own >> np.int64(16)
    if control[CONGESTION] == TWO_WINDOWS:
        begin_windows(run, worker, time)


@inlined
def _first_layer(run: Run, worker: Int) -> Int:
    """Row of the first layer of a worker's iteration."""
    row, jobs = run.world.workers[worker], run.world.jobs
    about = jobs[row[wk.JOB]]
    return np.int64(about[jb.FIRST_LAYER] + row[wk.ITERATION] * about[jb.LAYERS])


@inlined
def computed_at(run: Run, worker: Int) -> Int:
    """When the next layer of a worker is computed; NEVER if there is none."""
    workers, jobs = run.world.workers, run.world.jobs
    job, layer = workers[worker, wk.JOB], workers[worker, wk.LAYER]
    if workers[worker, wk.FINISHED] >= 0 or layer >= jobs[job, jb.LAYERS]:
        return np.int64(NEVER)
    ps = run.world.layers[_first_layer(run, worker) + layer, 1]
    slow = workers[worker, wk.SLOWNESS]
    late = (ps >> np.int64(16)) * slow + ((ps & np.int64(0xFFFF)) * slow >> np.int64(16))
    return np.int64(workers[worker, wk.BASE] + late)


@inlined
def computed(run: Run, worker: Int, time: Int) -> None:
    """Note the layers that are computed at a time."""
    row = run.world.workers[worker]
    while computed_at(run, worker) <= time:
        row[wk.READY] = run.world.layers[_first_layer(run, worker) + row[wk.LAYER], 0]
        row[wk.LAYER] += 1


@inlined
def _kept_at(run: Run, job: Int, seq: Int) -> Int:
    """The row of a sequence number in `World.expected`."""
    control = run.world.control
    if control[HAS_SERVER]:
        return job * control[RING] + (seq & (control[RING] - 1))
    return job * control[RING] + seq % (2 * run.world.jobs[job, jb.WINDOW])


@inlined
def send_new(run: Run, worker: Int, seq: Int, time: Int) -> None:
    """Send the gradient of a sequence number for the first time."""
    world = run.world
    row, expected = world.workers[worker], world.expected
    job, flags = row[wk.JOB], np.int64(0)
    run.memory.tally[job, ty.SENT] += 1
    if world.control[CONGESTION] == TWO_WINDOWS and beyond_aggregators(run, worker, seq):
        run.memory.tally[job, ty.BYPASSED] += 1
        flags = np.int64(RESENT)
    place = _kept_at(run, job, seq)
    if expected[place, 0] != seq + 1:
        expected[place, 0] = seq + 1
        expected[place, 1] = 0
    expected[place, 1] += _send(run, worker, seq, flags, time)


@subkernel
def send_again(run: Run, worker: Int, seq: Int, flags: Int, time: Int) -> None:
    """Retransmit the gradient of a sequence number."""
    run.memory.tally[run.world.workers[worker, wk.JOB], ty.RESENT] += 1
    _send(run, worker, seq, flags | np.int64(RESENT), time)


@inlined
def _send(run: Run, worker: Int, seq: Int, flags: Int, time: Int) -> Int:
    """Send the gradient of a sequence number; its value."""
    world = run.world
    row, control = world.workers[worker], world.control
    job, bit = row[wk.JOB], row[wk.BIT]
    about = world.jobs[job]
    slot = new_packet(run, np.int64(GRADIENT) | flags, job, seq, bit, about[jb.SERVER])
    extra = world.extra
    value = value_of(control[SEED], job, seq, bit, about[jb.OVERFLOW])
    extra[slot, pk.BITS] = np.int64(1) << bit
    extra[slot, pk.VALUE] = value
    if control[HAS_SERVER]:
        extra[slot, pk.INDEX] = world.worker_index[worker, seq % about[jb.WINDOW]]
    else:
        half = about[jb.SLOTS] // 2
        extra[slot, pk.INDEX] = about[jb.BASE] + seq // half % 2 * half + seq % half
    layer = _first_layer(run, worker)
    while world.layers[layer, 0] <= seq:
        layer += 1
    extra[slot, pk.PRIORITY] = world.layers[layer, 2]
    put(run, np.int64(run.ground.access[row[wk.HOST]]), slot, time)
    return value


@inlined
def _window(run: Run, worker: Int) -> Int:
    job = run.world.workers[worker, wk.JOB]
    window = run.world.jobs[job, jb.WINDOW]
    if run.world.control[CONGESTION]:
        own = run.world.workers[worker, wk.CONGESTION] // ONE_PACKET
        window = min(window, max(np.int64(LEAST_WINDOW), own))
    return window


@subkernel
def wake(run: Run, worker: Int, time: Int) -> None:
    """What a worker does at a time: layers that are computed, new gradients, its timer."""
    world = run.world
    row = world.workers[worker]
    job = row[wk.JOB]
    computed(run, worker, time)
    end = min(row[wk.READY], row[wk.DONE] + _window(run, worker))
    if row[wk.SENT] < end and row[wk.SENT] == row[wk.DONE]:
        row[wk.DEADLINE] = time + timer(run, worker)
    while row[wk.SENT] < end:
        send_new(run, worker, row[wk.SENT], time)
        row[wk.SENT] += 1
    if row[wk.DONE] < row[wk.SENT]:
        if row[wk.DEADLINE] <= time:
            run.memory.tally[job, ty.TIMEOUTS] += 1
            _resend(run, worker, time)
            row[wk.DEADLINE] = time + timer(run, worker)
        schedule(world.wheel, worker_item(run, worker), row[wk.DEADLINE])
    next_layer = computed_at(run, worker)
    if next_layer != NEVER:
        schedule(world.wheel, worker_item(run, worker), next_layer)


@inlined
def timer(run: Run, worker: Int) -> Int:
    """Time until a worker retransmits."""
    row, control = run.world.workers[worker], run.world.control
    wait = control[RTO] if row[wk.HEARD] else control[FIRST_RTO]
    if control[DOUBLE_AFTER]:
        doubled = row[wk.BY_TIMER] // control[DOUBLE_AFTER]
        wait <<= min(np.int64(_MOST_DOUBLED), doubled)
    return wait


@inlined
def _resend(run: Run, worker: Int, time: Int) -> None:
    """The timer expired: retransmit what is missing, up to the first result that is there."""
    world = run.world
    row, mask = world.workers[worker], world.control[RING] - 1
    later: Int = np.int64(-1)
    for seq in range(row[wk.DONE] + 1, row[wk.SENT]):
        if later < 0 and world.got[worker, seq & mask]:
            later = seq
    end = row[wk.DONE] + 1 if later < 0 else later
    for seq in range(row[wk.DONE], end):
        if not world.got[worker, seq & mask]:
            row[wk.BY_TIMER] += 1
            send_again(run, worker, seq, np.int64(0), time)


@inlined
def take_result(run: Run, worker: Int, slot: Int, time: Int) -> None:
    """A result arrives at a worker."""
    world = run.world
    extra, control = world.extra, world.control
    row, mask = world.workers[worker], control[RING] - 1
    job, seq, kind = row[wk.JOB], extra[slot, pk.SEQ], extra[slot, pk.KIND]
    value, index = extra[slot, pk.VALUE], extra[slot, pk.PRIORITY]
    tally, about = run.memory.tally, world.jobs[job]
    free_slot(run.net, slot)
    if seq < row[wk.DONE] or world.got[worker, seq & mask]:
        tally[job, ty.REPEATED] += 1
        return
    row[wk.HEARD] = 1
    if kind & np.int64(FLOATS):
        row[wk.DEADLINE] = time + timer(run, worker)
        send_again(run, worker, seq, np.int64(FLOATS), time)
        return
    check_sum(run, job, seq, value)
    world.got[worker, seq & mask] = 1
    world.worker_index[worker, seq % about[jb.WINDOW]] = index
    lost = False
    if seq != row[wk.DONE]:
        row[wk.LATER] += 1
        trigger = control[TRIGGER]
        lost = bool(trigger and row[wk.LATER] >= trigger and row[wk.ASKED] != row[wk.DONE] + 1)
        if lost:
            row[wk.ASKED] = row[wk.DONE] + 1
            send_again(run, worker, row[wk.DONE], np.int64(0), time)
    if control[CONGESTION] == ONE_WINDOW:
        _adjust(run, worker, seq, lost or bool(kind & np.int64(ECHO)))
    while world.got[worker, row[wk.DONE] & mask]:
        world.got[worker, row[wk.DONE] & mask] = 0
        row[wk.DONE] += 1
        row[wk.LATER] = 0
    row[wk.DEADLINE] = time + timer(run, worker)
    if control[CONGESTION] == TWO_WINDOWS:
        note_result(run, worker, seq, kind, time)
    if took_last_sum(run, worker, time):
        if row[wk.FINISHED] >= 0:
            return
        begin_iteration(run, worker, time)
    wake(run, worker, time)


@inlined
def check_sum(run: Run, job: Int, seq: Int, value: Int) -> None:
    """Count a result, and whether it is another value than the sum of what the workers sent."""
    expected = run.world.expected[_kept_at(run, job, seq)]
    run.memory.tally[job, ty.RESULTS] += 1
    if expected[0] != seq + 1 or expected[1] != value:
        run.memory.tally[job, ty.WRONG] += 1


@inlined
def took_last_sum(run: Run, worker: Int, time: Int) -> Bool:
    """Whether a worker has all sums of its iteration; FINISHED if it was the last one."""
    world = run.world
    row = world.workers[worker]
    about = world.jobs[row[wk.JOB]]
    if row[wk.DONE] != world.layers[_first_layer(run, worker) + about[jb.LAYERS] - 1, 0]:
        return False
    world.ends[worker, row[wk.ITERATION]] = time
    row[wk.ITERATION] += 1
    if row[wk.ITERATION] == about[jb.ITERATIONS]:
        row[wk.FINISHED] = time
        world.control[FINISHED] += 1
    return True


@inlined
def _adjust(run: Run, worker: Int, seq: Int, congested: bool) -> None:
    """ATP's congestion control: slow start by one MTU per result, then by one per window; a mark or
    a loss halves the window, once per window."""
    row, about = run.world.workers[worker], run.world.jobs[run.world.workers[worker, wk.JOB]]
    most = about[jb.WINDOW] * ONE_PACKET
    if congested:
        if seq >= row[wk.HALVED]:
            row[wk.CONGESTION] = max(LEAST_WINDOW * ONE_PACKET, row[wk.CONGESTION] // 2)
            row[wk.HALVED] = row[wk.SENT]
        return
    if row[wk.HALVED] == 0:  # slow start lasts until the first mark or loss
        row[wk.CONGESTION] += _STEP * ONE_PACKET
    else:
        row[wk.CONGESTION] += _STEP * ONE_PACKET * ONE_PACKET // max(row[wk.CONGESTION], ONE_PACKET)
    row[wk.CONGESTION] = min(most, row[wk.CONGESTION])
