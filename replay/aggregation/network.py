"""Packets of aggregation on the links of the packet engine."""

from __future__ import annotations

import numpy as np

from ...kernels.kernel import Bool, Int, inlined, subkernel
from ..packets.model.arrays import ATTACHED
from ..packets.model.draws import drawn, purpose
from ..packets.model.model import MARKED, NEVER
from ..packets.model.wheel import schedule
from ..packets.pauses import free_slot, new_slot
from ..packets.queues import enqueue, serve
from .state import ECHO, Run, owner_of

_ROUTE, _LOSS, _COPY, _DELAY = (
    purpose(f"aggregation {what}") for what in ("route", "loss", "copy", "delay")
)
_KEY = (1 << 56) - 1
"""Bits of a packet's key without the flags of the engine."""
_CERTAIN = 1 << 31
"""Chances are out of this number."""


@inlined
def put(run: Run, link: Int, slot: Int, time: Int) -> None:
    """Queue a packet at a link; a full buffer drops it."""
    serve(run.net, link, time + 1)
    enqueue(run.net, link, slot, time)
    if run.net.links[link].head_time != NEVER:
        schedule(run.world.wheel, 1 + link, run.net.links[link].head_time)


@inlined
def new_packet(run: Run, kind: Int, job: Int, seq: Int, to: Int, host: Int) -> Int:
    """The slot of a new packet to a host, without values."""
    extra = run.world.extra
    key = owner_of(job, seq) & np.int64(_KEY)
    slot = new_slot(run.net, key, np.int64(host) << np.int64(32), run.world.control[0].bytes)
    extra[slot].kind = kind
    extra[slot].job = job
    extra[slot].seq = seq
    extra[slot].bits = 0
    extra[slot].value = 0
    extra[slot].index = 0
    extra[slot].priority = 0
    extra[slot].to = to
    return slot


@inlined
def copied(run: Run, slot: Int) -> Int:
    """The slot of a copy of a packet."""
    slots, extra = run.net.slots, run.world.extra
    copy = new_slot(run.net, slots[slot].key, slots[slot].meta, run.world.control[0].bytes)
    extra[copy] = extra[slot]
    return copy


@inlined
def aim(run: Run, slot: Int, host: Int) -> None:
    """Set the destination of a packet."""
    run.net.slots[slot].meta = np.int64(host) << np.int64(32)


@inlined
def note_mark(run: Run, slot: Int, from_host: Int) -> None:
    """Keep the ECN mark of a link in the packet's flags. Queues of NICs mark nothing."""
    key = run.net.slots[slot].key
    if key & np.int64(MARKED):
        run.net.slots[slot].key = key & ~np.int64(MARKED)
        if not from_host:
            run.world.extra[slot].kind |= np.int64(ECHO)


@subkernel
def link_from(run: Run, switch: Int, slot: Int) -> Int:
    """The link from a switch towards the destination of a packet, -1 without a route. All packets
    of a job between two switches take one of the equal-cost paths."""
    ground = run.ground
    host = run.net.slots[slot].meta >> np.int64(32)
    edge = np.int64(ground.host_edge[host])
    group = np.int64(ground.route[switch, edge]) if edge >= 0 else np.int64(-1)
    if group == ATTACHED:
        return np.int64(ground.exits[host])
    if group < 0:
        return np.int64(-1)
    begin = ground.group_start[group]
    size = ground.group_start[group + 1] - begin
    job = run.world.extra[slot].job
    return np.int64(
        ground.members[begin + drawn(run.world.control[0].seed, _ROUTE, job, switch, size)]
    )


@inlined
def _happens(run: Run, chance: Int, use: Int, link: Int, slot: Int, time: Int) -> Bool:
    if chance == 0:
        return False
    extra = run.world.extra
    owner = owner_of(extra[slot].job, extra[slot].seq)
    what = (owner & np.int64(_KEY)) ^ (extra[slot].to << np.int64(20))
    return (
        drawn(run.world.control[0].seed, use, what, (time << np.int64(16)) ^ link, _CERTAIN)
        < chance
    )


@subkernel
def disturbed(run: Run, link: Int, slot: Int, time: Int) -> Bool:
    """Lose, copy or hold back a packet that arrives over a link; whether it goes no further now. A
    copy, or a packet that is held back, takes the link again, behind what waits there."""
    control = run.world.control
    if _happens(run, control[0].loss, _LOSS, link, slot, time):
        run.net.stats[link].drops += 1
        free_slot(run.net, slot)
        return True
    if _happens(run, control[0].copies, _COPY, link, slot, time):
        put(run, link, copied(run, slot), time)
    if _happens(run, control[0].delays, _DELAY, link, slot, time):
        put(run, link, slot, time)
        return True
    return False
