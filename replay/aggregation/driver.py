"""The driver: one event per packet and link, per waking worker and per reminder.

Links are those of the packet engine and are served as in its event-driven driver: a link has one
event, the arrival of the first packet on its wire.
"""

from __future__ import annotations

import numpy as np

from ...kernels.kernel import Int, Ints, kernel
from ..packets.links.queues import serve, take_arrival
from ..packets.links.slots import free_slot
from ..packets.model.model import NEVER
from ..packets.model.wheel import next_event, schedule
from .columns import GRADIENT, KINDS
from .memory import scheme_at
from .network import disturbed, note_mark
from .pool import take_pooled, wake_pool
from .server import remind, take_gradient
from .state import Run
from .switches import at_switch
from .workers import begin_iteration, take_result, wake, worker_item

DONE, MORE, GROW = range(3)
"""All workers finished, or no event is left before the end; stopped after `most_hops`; more slots
are needed."""


@kernel
def start(run: Run, begin_ps: Ints) -> None:
    """Begin the first iteration of all workers. begin_ps: int64[workers]."""
    for worker in range(len(run.world.workers)):
        begin_iteration(run, worker, begin_ps[worker])
        schedule(run.world.wheel, worker_item(run, worker), begin_ps[worker])


@kernel
def run_jobs(run: Run, scheme_address: Int, until_ps: Int, most_hops: Int) -> Int:
    """Handle events until all workers finished. Returns DONE, MORE or GROW."""
    scheme = scheme_at(scheme_address)
    net, world, ground = run.net, run.world, run.ground
    links, slots, counts, control = net.links, net.slots, net.counts, world.control
    switches, first_worker = len(ground.memory_of), 1 + len(links)
    first_server = first_worker + len(world.workers)
    pooled = control[0].has_server == 0
    stop = counts[0].hops + most_hops
    while control[0].finished < len(world.workers):
        if counts[0].free_slots < control[0].margin:
            return GROW
        if counts[0].hops >= stop:
            return MORE
        item, time = next_event(world.wheel)
        if item < 0:
            return DONE
        if time > until_ps:
            return DONE
        control[0].now = time
        if item >= first_server:
            remind(run, item - first_server, time)
            continue
        if item >= first_worker:
            if pooled:
                wake_pool(run, item - first_worker, time)
            else:
                wake(run, item - first_worker, time)
            continue
        link = item - 1
        slot: Int = np.int64(-1)
        if links[link].head_time == time:
            slot = take_arrival(links, slots, link)
        if links[link].waiting_packets > 0:
            serve(net, link, time + 1)
        if links[link].head_time != NEVER:
            schedule(world.wheel, item, links[link].head_time)
        elif links[link].waiting_packets > 0:
            schedule(world.wheel, item, max(time, links[link].free))
        if slot < 0 or disturbed(run, link, slot, time):
            continue
        node = np.int64(ground.target[link])
        if node < switches:
            note_mark(run, slot, np.int64(ground.from_host[link]))
            at_switch(run, scheme, node, slot, time)
        elif world.extra[slot].kind & np.int64(KINDS) == GRADIENT:
            note_mark(run, slot, np.int64(0))
            take_gradient(run, slot, time)
        else:
            note_mark(run, slot, np.int64(0))
            to = world.extra[slot].to
            if to < 0:  # a reminder that no switch answered
                free_slot(net, slot)
            else:
                worker = world.jobs[world.extra[slot].job].first + to
                if pooled:
                    take_pooled(run, worker, slot, time)
                else:
                    take_result(run, worker, slot, time)
    return DONE
