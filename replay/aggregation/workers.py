"""Workers: they compute, send gradients within their window, and wait for the sums.

**A2TP** has two windows of a worker: packets in flight, and packets that may use switch memory.
Rules: the released code of "A2TP: Aggregator-aware In-network Aggregation for Multi-tenant
Learning" (EuroSys 2023). A period ends with the result of the last packet of its window. Marks of
ECN shrink the first window. Results whose slot another fragment wanted shrink the second one, and
the more the fewer results came within the base round-trip time: a job that waits for a straggler
gives slots up. What exceeds the second window goes to the PS past the switch memory.

**SwitchML**: each slot of a worker's pool has a clock and a timer of its own. The result of a slot
is the permission to send its next chunk, whatever the other slots wait for (self-clocking, no work
stealing), and each packet in flight has its timer, as in the DPDK backend of the released code.
"""

from __future__ import annotations

import numpy as np

from ...kernels.kernel import Bool, Int, inlined, subkernel
from ..packets.model.draws import drawn, purpose
from ..packets.model.model import NEVER
from ..packets.model.wheel import schedule
from ..packets.pauses import free_slot
from .network import new_packet, put
from .state import (
    CONTENDED,
    ECHO,
    FLOATS,
    GRADIENT,
    ONE_PACKET,
    ONE_WINDOW,
    RESENT,
    TWO_WINDOWS,
    Run,
    value_of,
)

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
    workers[worker].base = time
    workers[worker].layer = 0
    spread = run.world.jobs[workers[worker].job].jitter
    iteration, slowness = workers[worker].iteration, run.world.slowness
    factor = np.int64(1 << 16)
    if spread:
        factor += drawn(control[0].seed, _JITTER, worker, iteration, spread)
    slow = slowness[worker, min(iteration, slowness.shape[1] - 1)]
    workers[worker].slowness = factor * slow >> np.int64(16)
    if control[0].congestion == TWO_WINDOWS:
        begin_windows(run, worker, time)


@inlined
def _first_layer(run: Run, worker: Int) -> Int:
    """Row of the first layer of a worker's iteration."""
    row, jobs = run.world.workers[worker], run.world.jobs
    about = jobs[row.job]
    return np.int64(about.first_layer + row.iteration * about.layers)


@inlined
def computed_at(run: Run, worker: Int) -> Int:
    """When the next layer of a worker is computed; NEVER if there is none."""
    workers, jobs = run.world.workers, run.world.jobs
    job, layer = workers[worker].job, workers[worker].layer
    if workers[worker].finished >= 0 or layer >= jobs[job].layers:
        return np.int64(NEVER)
    ps = run.world.layers[_first_layer(run, worker) + layer].ps
    slow = workers[worker].slowness
    late = (ps >> np.int64(16)) * slow + ((ps & np.int64(0xFFFF)) * slow >> np.int64(16))
    return np.int64(workers[worker].base + late)


@inlined
def computed(run: Run, worker: Int, time: Int) -> None:
    """Note the layers that are computed at a time."""
    row = run.world.workers[worker]
    while computed_at(run, worker) <= time:
        row.ready = run.world.layers[_first_layer(run, worker) + row.layer].end
        row.layer += 1


@inlined
def _kept_at(run: Run, job: Int, seq: Int) -> Int:
    """The row of a sequence number in `World.expected`."""
    control = run.world.control
    if control[0].has_server:
        return job * control[0].ring + (seq & (control[0].ring - 1))
    return job * control[0].ring + seq % (2 * run.world.jobs[job].window)


@inlined
def send_new(run: Run, worker: Int, seq: Int, time: Int) -> None:
    """Send the gradient of a sequence number for the first time."""
    world = run.world
    row, expected = world.workers[worker], world.expected
    job, flags = row.job, np.int64(0)
    run.memory.tally[job].sent += 1
    if world.control[0].congestion == TWO_WINDOWS and beyond_aggregators(run, worker, seq):
        run.memory.tally[job].bypassed += 1
        flags = np.int64(RESENT)
    place = _kept_at(run, job, seq)
    if expected[place].seq != seq + 1:
        expected[place].seq = seq + 1
        expected[place].sum = 0
    expected[place].sum += _send(run, worker, seq, flags, time)


@subkernel
def send_again(run: Run, worker: Int, seq: Int, flags: Int, time: Int) -> None:
    """Retransmit the gradient of a sequence number."""
    run.memory.tally[run.world.workers[worker].job].resent += 1
    _send(run, worker, seq, flags | np.int64(RESENT), time)


@inlined
def _send(run: Run, worker: Int, seq: Int, flags: Int, time: Int) -> Int:
    """Send the gradient of a sequence number; its value."""
    world = run.world
    row, control = world.workers[worker], world.control
    job, bit = row.job, row.bit
    about = world.jobs[job]
    slot = new_packet(run, np.int64(GRADIENT) | flags, job, seq, bit, about.server)
    extra = world.extra
    value = value_of(control[0].seed, job, seq, bit, about.overflow)
    extra[slot].bits = np.int64(1) << bit
    extra[slot].value = value
    if control[0].has_server:
        extra[slot].index = world.worker_index[worker, seq % about.window]
    else:
        half = about.slots // 2
        extra[slot].index = about.base + seq // half % 2 * half + seq % half
    layer = _first_layer(run, worker)
    while world.layers[layer].end <= seq:
        layer += 1
    extra[slot].priority = world.layers[layer].priority
    put(run, np.int64(run.ground.access[row.host]), slot, time)
    return value


@inlined
def _window(run: Run, worker: Int) -> Int:
    job = run.world.workers[worker].job
    window = run.world.jobs[job].window
    if run.world.control[0].congestion:
        congestion_window = run.world.workers[worker].congestion // ONE_PACKET
        window = min(window, max(np.int64(LEAST_WINDOW), congestion_window))
    return window


@subkernel
def wake(run: Run, worker: Int, time: Int) -> None:
    """What a worker does at a time: layers that are computed, new gradients, its timer."""
    world = run.world
    row = world.workers[worker]
    job = row.job
    computed(run, worker, time)
    end = min(row.ready, row.done + _window(run, worker))
    if row.sent < end and row.sent == row.done:
        row.deadline = time + timer(run, worker)
    while row.sent < end:
        send_new(run, worker, row.sent, time)
        row.sent += 1
    if row.done < row.sent:
        if row.deadline <= time:
            run.memory.tally[job].timeouts += 1
            _resend(run, worker, time)
            row.deadline = time + timer(run, worker)
        schedule(world.wheel, worker_item(run, worker), row.deadline)
    next_layer = computed_at(run, worker)
    if next_layer != NEVER:
        schedule(world.wheel, worker_item(run, worker), next_layer)


@inlined
def timer(run: Run, worker: Int) -> Int:
    """Time until a worker retransmits."""
    row, control = run.world.workers[worker], run.world.control
    wait = control[0].rto if row.heard else control[0].first_rto
    if control[0].double_after:
        doubled = row.by_timer // control[0].double_after
        wait <<= min(np.int64(_MOST_DOUBLED), doubled)
    return wait


@inlined
def _resend(run: Run, worker: Int, time: Int) -> None:
    """The timer expired: retransmit what is missing, up to the first result that is there."""
    world = run.world
    row, mask = world.workers[worker], world.control[0].ring - 1
    later: Int = np.int64(-1)
    for seq in range(row.done + 1, row.sent):
        if later < 0 and world.got[worker, seq & mask]:
            later = seq
    end = row.done + 1 if later < 0 else later
    for seq in range(row.done, end):
        if not world.got[worker, seq & mask]:
            row.by_timer += 1
            send_again(run, worker, seq, np.int64(0), time)


@inlined
def take_result(run: Run, worker: Int, slot: Int, time: Int) -> None:
    """A result arrives at a worker."""
    world = run.world
    extra, control = world.extra, world.control
    row, mask = world.workers[worker], control[0].ring - 1
    job, seq, kind = row.job, extra[slot].seq, extra[slot].kind
    value, index = extra[slot].value, extra[slot].priority
    tally, about = run.memory.tally, world.jobs[job]
    free_slot(run.net, slot)
    if seq < row.done or world.got[worker, seq & mask]:
        tally[job].repeated += 1
        return
    row.heard = 1
    if kind & np.int64(FLOATS):
        row.deadline = time + timer(run, worker)
        send_again(run, worker, seq, np.int64(FLOATS), time)
        return
    check_sum(run, job, seq, value)
    world.got[worker, seq & mask] = 1
    world.worker_index[worker, seq % about.window] = index
    lost = False
    if seq != row.done:
        row.later += 1
        trigger = control[0].trigger
        lost = bool(trigger and row.later >= trigger and row.asked != row.done + 1)
        if lost:
            row.asked = row.done + 1
            send_again(run, worker, row.done, np.int64(0), time)
    if control[0].congestion == ONE_WINDOW:
        _adjust(run, worker, seq, lost or bool(kind & np.int64(ECHO)))
    while world.got[worker, row.done & mask]:
        world.got[worker, row.done & mask] = 0
        row.done += 1
        row.later = 0
    row.deadline = time + timer(run, worker)
    if control[0].congestion == TWO_WINDOWS:
        note_result(run, worker, seq, kind, time)
    if took_last_sum(run, worker, time):
        if row.finished >= 0:
            return
        begin_iteration(run, worker, time)
    wake(run, worker, time)


@inlined
def check_sum(run: Run, job: Int, seq: Int, value: Int) -> None:
    """Count a result, and whether it is another value than the sum of what the workers sent."""
    expected = run.world.expected[_kept_at(run, job, seq)]
    run.memory.tally[job].results += 1
    if expected.seq != seq + 1 or expected.sum != value:
        run.memory.tally[job].wrong += 1


@inlined
def took_last_sum(run: Run, worker: Int, time: Int) -> Bool:
    """Whether a worker has all sums of its iteration; FINISHED if it was the last one."""
    world = run.world
    row = world.workers[worker]
    about = world.jobs[row.job]
    if row.done != world.layers[_first_layer(run, worker) + about.layers - 1].end:
        return False
    world.ends[worker, row.iteration] = time
    row.iteration += 1
    if row.iteration == about.iterations:
        row.finished = time
        world.control[0].finished += 1
    return True


@inlined
def _adjust(run: Run, worker: Int, seq: Int, congested: bool) -> None:
    """ATP's congestion control: slow start by one MTU per result, then by one per window; a mark or
    a loss halves the window, once per window."""
    row, about = run.world.workers[worker], run.world.jobs[run.world.workers[worker].job]
    most = about.window * ONE_PACKET
    if congested:
        if seq >= row.halved:
            row.congestion = max(LEAST_WINDOW * ONE_PACKET, row.congestion // 2)
            row.halved = row.sent
        return
    if row.halved == 0:  # slow start lasts until the first mark or loss
        row.congestion += _STEP * ONE_PACKET
    else:
        row.congestion += _STEP * ONE_PACKET * ONE_PACKET // max(row.congestion, ONE_PACKET)
    row.congestion = min(most, row.congestion)


_NEW = 1 / 8
"""Weight of a period in the moving averages of marks and contention."""
_NEW_PROMPT = 1 / 64
_PROMPT_ENDS = 5
"""Base round-trip times after which a period has no share of prompt results (the code: 100 us)."""


@subkernel
def begin_windows(run: Run, worker: Int, time: Int) -> None:
    """A worker begins an iteration with the windows of the last one."""
    row = run.world.workers[worker]
    _begin_period(run, worker, row.done - 1, time)
    row.measured = 1  # the first period of an iteration has no share of prompt results


@inlined
def _begin_period(run: Run, worker: Int, last: Int, time: Int) -> None:
    row = run.world.workers[worker]
    row.period_end = last + row.congestion // ONE_PACKET
    row.period_at = time
    row.period_done = row.done
    row.credit = row.aggregators
    row.measured = 0
    row.echoes = row.contentions = 0


@inlined
def beyond_aggregators(run: Run, worker: Int, seq: Int) -> Bool:
    """Whether the next gradient of a worker exceeds its window of aggregators. The packets whose
    results a period waits for were counted when they were sent; after a pause none is counted, as
    in the code, which sends the first window of a tensor before it counts."""
    row = run.world.workers[worker]
    if seq <= row.period_end:
        return False
    if row.credit == 0:
        return True
    row.credit -= 1
    return False


@subkernel
def note_result(run: Run, worker: Int, seq: Int, kind: Int, time: Int) -> None:
    """A worker has a result; the last one of a period sets the windows of the next."""
    world = run.world
    row, degrees, base = world.workers[worker], world.degrees[worker], world.control[0].base_rtt
    row.echoes += (kind & np.int64(ECHO)) != 0
    row.contentions += (kind & np.int64(CONTENDED)) != 0
    since = time - row.period_at
    if not row.measured and base < since < _PROMPT_ENDS * base:
        window = row.congestion // ONE_PACKET
        degrees.prompt_now = min(1.0, (row.done - row.period_done) / window)
        row.measured = 1
    if seq >= row.period_end:
        _set_windows(run, worker)
        _begin_period(run, worker, seq, time)


@inlined
def _set_windows(run: Run, worker: Int) -> None:
    world = run.world
    row, degrees = world.workers[worker], world.degrees[worker]
    window, aggregators = row.congestion // ONE_PACKET, row.aggregators
    most = world.jobs[row.job].window
    degrees.prompt += (degrees.prompt_now - degrees.prompt) * _NEW_PROMPT
    degrees.prompt_now = 1.0
    degrees.marked += (row.echoes / window - degrees.marked) * _NEW
    degrees.contended += (row.contentions / aggregators - degrees.contended) * _NEW
    tolerated = world.control[0].contention / 100.0
    excess = degrees.contended - tolerated
    if row.contentions and excess > 0:
        cut = excess**degrees.prompt / (2.0 - tolerated)
        aggregators = np.int64(aggregators * max(0.0, 1.0 - cut))
    else:
        aggregators += 1
    if row.echoes:
        window = np.int64(window * (1.0 - min(1.0, degrees.marked) / 2.0))
    else:
        window += 1
    window = min(max(window, np.int64(1)), most)
    row.congestion = window * ONE_PACKET
    row.aggregators = min(max(aggregators, np.int64(1)), window)


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
            _send_pooled(run, worker, seq, time)
    if row.deadline and row.deadline <= time:
        _expire_pooled(run, worker, time)
    if row.deadline:
        schedule(world.wheel, worker_item(run, worker), row.deadline)
    next_layer = computed_at(run, worker)
    if next_layer != NEVER:
        schedule(world.wheel, worker_item(run, worker), next_layer)


@inlined
def _send_pooled(run: Run, worker: Int, seq: Int, time: Int) -> None:
    row = run.world.workers[worker]
    cell = run.world.pool[worker, seq % run.world.jobs[row.job].window]
    send_new(run, worker, seq, time)
    cell.seq, cell.due = seq, time + timer(run, worker)
    if row.deadline == 0:
        row.deadline = cell.due
        schedule(run.world.wheel, worker_item(run, worker), row.deadline)


@inlined
def _expire_pooled(run: Run, worker: Int, time: Int) -> None:
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
        _send_pooled(run, worker, seq + size, time)
    if took_last_sum(run, worker, time) and row.finished < 0:
        begin_iteration(run, worker, time)
        wake_pool(run, worker, time)
