"""Links: packets wait by class, are served in turn, and travel along the wire.

Loads over time are bytes by the time of their transmission, and longest queues. The bytes of a
packet are spread evenly over its service time, so no link exceeds its rate in an interval. Both
drivers count packet by packet; their order does not matter. `loads` has a column of bytes for every
link, then a column of queues for every link.
"""

from __future__ import annotations

import numpy as np

from ...kernels.kernel import Bool, Int, Ints, inlined, prefetch_item, subkernel
from .model import state as rs
from .model.arrays import ATTACHED
from .model.draws import ECN, JITTER, VICTIM, draw, drawn
from .model.model import ACK, MARKED, NEVER, TRIMMED, service_ps
from .model.records import Records
from .model.rules import Choice, Choose
from .model.state import Network, RunState
from .pauses import (
    SIZE_MASK,
    append,
    can_start,
    class_of,
    free_slot,
    is_paused,
    leave,
    link_next,
    next_of,
    queue_bytes,
    size_of,
    take_next,
)


@inlined
def start_service(run: Network, link: Int, slot: Int, size: Int, start: Int) -> None:
    """Begin the service of a packet and put it on the wire."""
    links, slots = run.links, run.slots
    rate = links[link].rate
    service = service_ps(size, rate)
    if run.counts[0].load_bin_ps:
        add_load(run.loads, run.counts, link, size, start, service)
    arrival = start + service + links[link].delay
    if run.settings[0].cut_through:
        passed = min(size, run.stats[link].fixed >> np.int64(1))
        arrival = start + service_ps(passed, rate) + links[link].delay
    gap = run.settings[0].gap_bytes
    if gap:
        service = service_ps(size + gap, rate)
    links[link].free = start + service
    links[link].served = size
    links[link].carried += size
    run.stats[link].packets += 1
    run.counts[0].hops += 1
    slots[slot].next |= np.int64(rs.NO_SLOT)
    slots[slot].time = NEVER
    if links[link].head_time == NEVER:
        links[link].wire_head = slot
        links[link].head_time = arrival
    else:
        last = links[link].wire_tail
        link_next(slots, last, slot)
        slots[last].time = arrival
    links[link].wire_tail = slot


@inlined
def take_arrival(links: Records, slots: Records, link: Int) -> Int:
    """Take the first packet from a wire, and prefetch the next."""
    slot = links[link].wire_head
    following = next_of(slots, slot)
    prefetch_item(slots, following)
    links[link].wire_head = following
    links[link].head_time = slots[slot].time
    return slot


@inlined
def take_waiting(run: Network, link: Int, start: Int) -> Int:
    """Take the next waiting packet, ACKs first; at least one may start."""
    links, slots = run.links, run.slots
    slot = links[link].ack_head
    links[link].waiting_packets -= 1
    if slot >= 0:
        links[link].ack_head = next_of(slots, slot)
        links[link].waiting_acks -= size_of(slots, slot)
        return slot
    if run.settings[0].classes == 1:
        slot = links[link].data_head
        links[link].data_head = next_of(slots, slot)
        size = size_of(slots, slot)
        mark(run, link, slot, links[link].waiting_data)
    else:
        slot = take_next(run, link, start)
        size = size_of(slots, slot)
        of = class_of(run, slots[slot].key)
        mark(run, link, slot, queue_bytes(run, link, of) + size)
    links[link].waiting_data -= size
    if run.settings[0].pfc:
        leave(run, slot, size, start)
    return slot


@inlined
def mark(run: Network, link: Int, slot: Int, queued: Int) -> None:
    """ECN for a data packet whose service starts with `queued` bytes, its own bytes included."""
    low = run.settings[0].ecn_low
    if queued > low and run.stats[link].fixed & 1 == 0:
        high = run.settings[0].ecn_high
        key = run.slots[slot].key
        random = draw(run.settings[0].seed, ECN, key & (np.int64(MARKED) - 1), link)
        share = np.int64(random >> np.uint64(40))  # 24 bits
        if queued > high or share * (high - low) < (queued - low) * run.settings[0].ecn_most:
            run.slots[slot].key = key | np.int64(MARKED)
            run.stats[link].marks += 1


@inlined
def serve(run: Network, link: Int, limit: Int) -> None:
    """Begin the service of all waiting packets that are due before `limit`."""
    links = run.links
    while links[link].waiting_packets > 0 and links[link].free < limit:
        start = links[link].free
        if not can_start(run, link, start):
            break
        slot = take_waiting(run, link, start)
        start_service(run, link, slot, size_of(run.slots, slot), start)


@inlined
def add_jitter(run: Network, link: Int, slot: Int, time: Int) -> None:
    """Keep a host's port idle after the data packet whose service has just started, at `time`."""
    longest = run.settings[0].jitter
    if longest:
        key, size = run.slots[slot].key, size_of(run.slots, slot)
        service = service_ps(size, run.links[link].rate)
        most = ((service * longest) >> np.int64(20)) + 1
        run.links[link].free += drawn(run.settings[0].seed, JITTER, key, time, most)


@inlined
def _victim(run: Network, link: Int, slot: Int, size: Int) -> Int:
    """The packet that a full queue drops: the arriving packet, or the last one that waits, which it
    then replaces. All packets that compete for this place have the same chance."""
    links, slots, stats = run.links, run.slots, run.stats
    last = links[link].data_tail
    if not run.settings[0].fair_drops or links[link].data_head < 0:
        return slot
    stats[link].last += 1
    rivals, key = stats[link].last & np.int64(rs.NO_SLOT), slots[slot].key
    instead = links[link].waiting_data + size - size_of(slots, last)
    if instead + links[link].served > run.settings[0].buffer:
        return slot
    what = key & (np.int64(MARKED) - 1)
    if drawn(run.settings[0].seed, VICTIM, what, stats[link].packets, rivals):
        return slot
    links[link].waiting_data = instead
    slots[slot].next |= np.int64(rs.NO_SLOT)
    if links[link].data_head == last:
        links[link].data_head = slot
    else:
        link_next(slots, stats[link].last >> np.int64(32), slot)
    links[link].data_tail = slot
    return last


@inlined
def enqueue(run: Network, link: Int, slot: Int, time: Int) -> Int:
    """Add a packet to a link that has been served up to `time`, inclusive. Returns the slot of the
    packet that this drops, already free but unchanged, or -1."""
    links, slots, stats = run.links, run.slots, run.stats
    key, size = slots[slot].key, size_of(slots, slot)
    first = key & np.int64(ACK | TRIMMED)
    busy = links[link].free > time
    held: Bool = False
    if not first:
        held = is_paused(run, link, class_of(run, key), time)
    waiting = links[link].waiting_packets
    ahead = waiting + (np.int64(1) if busy else np.int64(0))
    bin = min(ahead, run.settings[0].histogram_bins - 1)
    run.histogram[links[link].layer, bin] += 1
    if not busy and not held:  # no packet waits, or only data that is paused
        if not first:
            mark(run, link, slot, size)
        if stats[link].max_packets == 0:
            stats[link].max_packets = 1
        stats[link].max_bytes = max(stats[link].max_bytes, size)
        start_service(run, link, slot, size, time)
        return np.int64(-1)
    if not first:
        if links[link].waiting_data + size + links[link].served > run.settings[0].buffer:
            slot = _victim(run, link, slot, size)
            trim = min(run.settings[0].trim_bytes, size_of(slots, slot))
            if trim == 0:
                stats[link].drops += 1
                free_slot(run, slot)
                return slot
            stats[link].trims += 1
            first = np.int64(TRIMMED)
            slots[slot].key |= first
            others = slots[slot].next & ~(np.int64(SIZE_MASK) << np.int64(32))
            slots[slot].next = others | trim << np.int64(32)
            size = trim
    if first:
        if links[link].waiting_acks + size > run.settings[0].buffer:
            stats[link].drops += 1
            free_slot(run, slot)
            return slot
        slots[slot].next |= np.int64(rs.NO_SLOT)
        if links[link].ack_head < 0:
            links[link].ack_head = slot
        else:
            link_next(slots, links[link].ack_tail, slot)
        links[link].ack_tail = slot
        links[link].waiting_acks += size
    else:
        slots[slot].next |= np.int64(rs.NO_SLOT)
        if run.settings[0].classes > 1:
            append(run, link, slot, size)
        else:
            if links[link].data_head < 0:
                links[link].data_head = slot
            else:
                link_next(slots, links[link].data_tail, slot)
            stats[link].last = (links[link].data_tail << np.int64(32)) | 1
            links[link].data_tail = slot
        links[link].waiting_data += size
    links[link].waiting_packets = waiting + 1
    stats[link].max_packets = max(stats[link].max_packets, ahead + 1)
    queued = links[link].waiting_data + links[link].waiting_acks
    if busy:
        queued += links[link].served
    stats[link].max_bytes = max(stats[link].max_bytes, queued)
    if run.counts[0].load_bin_ps:
        add_queue(run.loads, run.counts, link, queued, time)
    return np.int64(-1)


@inlined
def way_on(
    run: RunState,
    choose: Choose,
    state: Ints,
    group: Int,
    switch: Int,
    edge: Int,
    meta: Int,
    key: Int,
    time: Int,
) -> Int:
    """The chosen link of `group`, or the link to the host if group is ATTACHED; -1 for none.

    meta: of the packet's slot (destination host << 32 | label). key: for random choices. If the
    strategy reads queues, the links of the group have been served up to `time`, inclusive.
    The position that a strategy chooses is taken modulo the size of the group: a host may have
    chosen it for a larger group, before links failed.
    """
    label = meta & np.int64(0xFFFFFFFF)
    if group >= 0:
        first = run.group_start[group]
        size = run.group_start[group + 1] - first
        member: Int = np.int64(0)
        if size > 1 or run.settings[0].sees_all:
            at = Choice(run.members, first, size, switch, edge, key, label, time)
            member = choose(state, run.links, at)
            if member < 0 or member >= size:
                member %= size
        return np.int64(run.members[first + member])
    if group == ATTACHED:
        host = meta >> np.int64(32)
        for port in range(run.host_switch.shape[1]):
            if run.host_switch[host, port] == switch:
                out = np.int64(run.exits[host, port])
                if run.settings[0].sees_all:
                    none = np.int64(0)
                    at = Choice(run.members, out, none, switch, edge, key, label, time)
                    choose(state, run.links, at)
                return out
    return np.int64(-1)


def filled(loads: Ints) -> Ints:
    """The intervals up to the last interval with a byte."""
    return loads[: int(np.flatnonzero(loads.any(1)).max(initial=-1)) + 1]


@subkernel
def add_load(loads: Ints, counts: Records, link: Int, size: Int, start: Int, service: Int) -> None:
    """Count `size` bytes, at most 65,535, served from `start` on for `service` ps.

    The rounding of bytes does not depend on the intervals, so neither the order of packets nor the
    time at which intervals are joined changes the result.
    """
    last = start + max(service - 1, np.int64(0))
    while last // counts[0].load_bin_ps >= len(loads):
        _join(loads, counts)
    length = counts[0].load_bin_ps
    at, before = start // length, np.int64(0)
    while at < last // length:
        sent = size * ((at + 1) * length - start) // service
        loads[at, link] += sent - before
        before = sent
        at += 1
    loads[at, link] += size - before


@subkernel
def add_queue(loads: Ints, counts: Records, link: Int, queued: Int, time: Int) -> None:
    """A packet that has to wait makes the queue of a link `queued` bytes long at `time`."""
    while time // counts[0].load_bin_ps >= len(loads):
        _join(loads, counts)
    at, column = time // counts[0].load_bin_ps, loads.shape[1] // 2 + link
    loads[at, column] = max(loads[at, column], queued)


@subkernel
def _join(loads: Ints, counts: Records) -> None:
    """Join pairs of intervals."""
    half = len(loads) // 2
    for at in range(len(loads)):
        for link in range(loads.shape[1]):
            if at < half:
                first, second = loads[2 * at, link], loads[2 * at + 1, link]
                carried = link < loads.shape[1] // 2
                loads[at, link] = first + second if carried else max(first, second)
            else:
                loads[at, link] = 0
    counts[0].load_bin_ps *= 2
