"""Links: packets wait by class, are served in turn, and travel along the wire."""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Bool, Int, Ints, inlined
from ....kernels.prefetch import prefetch
from ..model import run_state as rs
from ..model.draws import ECN, JITTER, VICTIM, draw, drawn
from ..model.model import ACK, MARKED, NEVER, TRIMMED, service_ps
from ..model.run_state import Network
from .classes import append, class_of, take_next
from .load_bins import add_load, add_queue
from .pauses import can_start, is_paused, leave, queue_bytes
from .slots import SIZE_MASK, free_slot, link_next, next_of, size_of


@inlined
def start_service(run: Network, link: Int, slot: Int, size: Int, start: Int) -> None:
    """Begin the service of a packet and put it on the wire."""
    links, slots = run.links, run.slots
    rate = links[link, rs.RATE]
    service = service_ps(size, rate)
    if run.counts[rs.LOAD_BIN_PS]:
        add_load(run.loads, run.counts, link, size, start, service)
    arrival = start + service + links[link, rs.DELAY]
    if run.settings[rs.CUT_THROUGH]:
        passed = min(size, run.stats[link, rs.FIXED] >> np.int64(1))
        arrival = start + service_ps(passed, rate) + links[link, rs.DELAY]
    gap = run.settings[rs.GAP_BYTES]
    if gap:
        service = service_ps(size + gap, rate)
    links[link, rs.FREE] = start + service
    links[link, rs.SERVED] = size
    links[link, rs.CARRIED] += size
    run.stats[link, rs.PACKETS] += 1
    run.counts[rs.HOPS] += 1
    slots[slot, rs.NEXT] |= np.int64(rs.NO_SLOT)
    slots[slot, rs.TIME] = NEVER
    if links[link, rs.HEAD_TIME] == NEVER:
        links[link, rs.WIRE_HEAD] = slot
        links[link, rs.HEAD_TIME] = arrival
    else:
        last = links[link, rs.WIRE_TAIL]
        link_next(slots, last, slot)
        slots[last, rs.TIME] = arrival
    links[link, rs.WIRE_TAIL] = slot


@inlined
def take_arrival(links: Ints, slots: Ints, link: Int) -> Int:
    """Take the first packet from a wire, and prefetch the next."""
    slot = links[link, rs.WIRE_HEAD]
    following = next_of(slots, slot)
    prefetch(slots, following, np.int64(0))
    links[link, rs.WIRE_HEAD] = following
    links[link, rs.HEAD_TIME] = slots[slot, rs.TIME]
    return slot


@inlined
def take_waiting(run: Network, link: Int, start: Int) -> Int:
    """Take the next waiting packet, ACKs first; at least one may start."""
    links, slots = run.links, run.slots
    slot = links[link, rs.ACK_HEAD]
    links[link, rs.WAITING_PACKETS] -= 1
    if slot >= 0:
        links[link, rs.ACK_HEAD] = next_of(slots, slot)
        links[link, rs.WAITING_ACKS] -= size_of(slots, slot)
        return slot
    if run.settings[rs.CLASSES] == 1:
        slot = links[link, rs.DATA_HEAD]
        links[link, rs.DATA_HEAD] = next_of(slots, slot)
        size = size_of(slots, slot)
        mark(run, link, slot, links[link, rs.WAITING_DATA])
    else:
        slot = take_next(run, link, start)
        size = size_of(slots, slot)
        of = class_of(run, slots[slot, rs.KEY])
        mark(run, link, slot, queue_bytes(run, link, of) + size)
    links[link, rs.WAITING_DATA] -= size
    if run.settings[rs.PFC]:
        leave(run, slot, size, start)
    return slot


@inlined
def mark(run: Network, link: Int, slot: Int, queued: Int) -> None:
    """ECN for a data packet whose service starts with `queued` bytes, its own bytes included."""
    low = run.settings[rs.ECN_LOW]
    if queued > low and run.stats[link, rs.FIXED] & 1 == 0:
        high = run.settings[rs.ECN_HIGH]
        key = run.slots[slot, rs.KEY]
        random = draw(run.settings[rs.SEED], ECN, key & (np.int64(MARKED) - 1), link)
        share = np.int64(random >> np.uint64(40))  # 24 bits
        if queued > high or share * (high - low) < (queued - low) * run.settings[rs.ECN_MOST]:
            run.slots[slot, rs.KEY] = key | np.int64(MARKED)
            run.stats[link, rs.MARKS] += 1


@inlined
def serve(run: Network, link: Int, limit: Int) -> None:
    """Begin the service of all waiting packets that are due before `limit`."""
    links = run.links
    while links[link, rs.WAITING_PACKETS] > 0 and links[link, rs.FREE] < limit:
        start = links[link, rs.FREE]
        if not can_start(run, link, start):
            break
        slot = take_waiting(run, link, start)
        start_service(run, link, slot, size_of(run.slots, slot), start)


@inlined
def add_jitter(run: Network, link: Int, slot: Int, time: Int) -> None:
    """Keep a host's port idle after the data packet whose service has just started, at `time`."""
    longest = run.settings[rs.JITTER]
    if longest:
        key, size = run.slots[slot, rs.KEY], size_of(run.slots, slot)
        service = service_ps(size, run.links[link, rs.RATE])
        most = ((service * longest) >> np.int64(20)) + 1
        run.links[link, rs.FREE] += drawn(run.settings[rs.SEED], JITTER, key, time, most)


@inlined
def _victim(run: Network, link: Int, slot: Int, size: Int) -> Int:
    """The packet that a full queue drops: the arriving packet, or the last one that waits, which it
    then replaces. All packets that compete for this place have the same chance."""
    links, slots, stats = run.links, run.slots, run.stats
    last = links[link, rs.DATA_TAIL]
    if not run.settings[rs.FAIR_DROPS] or links[link, rs.DATA_HEAD] < 0:
        return slot
    stats[link, rs.LAST] += 1
    rivals, key = stats[link, rs.LAST] & np.int64(rs.NO_SLOT), slots[slot, rs.KEY]
    instead = links[link, rs.WAITING_DATA] + size - size_of(slots, last)
    if instead + links[link, rs.SERVED] > run.settings[rs.BUFFER]:
        return slot
    what = key & (np.int64(MARKED) - 1)
    if drawn(run.settings[rs.SEED], VICTIM, what, stats[link, rs.PACKETS], rivals):
        return slot
    links[link, rs.WAITING_DATA] = instead
    slots[slot, rs.NEXT] |= np.int64(rs.NO_SLOT)
    if links[link, rs.DATA_HEAD] == last:
        links[link, rs.DATA_HEAD] = slot
    else:
        link_next(slots, stats[link, rs.LAST] >> np.int64(32), slot)
    links[link, rs.DATA_TAIL] = slot
    return last


@inlined
def enqueue(run: Network, link: Int, slot: Int, time: Int) -> Int:
    """Add a packet to a link that has been served up to `time`, inclusive. Returns the slot of the
    packet that this drops, already free but unchanged, or -1."""
    links, slots, stats = run.links, run.slots, run.stats
    key, size = slots[slot, rs.KEY], size_of(slots, slot)
    first = key & np.int64(ACK | TRIMMED)
    busy = links[link, rs.FREE] > time
    held: Bool = False
    if not first:
        held = is_paused(run, link, class_of(run, key), time)
    waiting = links[link, rs.WAITING_PACKETS]
    found = waiting + (np.int64(1) if busy else np.int64(0))
    bin = min(found, run.settings[rs.HISTOGRAM_BINS] - 1)
    run.histogram[links[link, rs.LAYER], bin] += 1
    if not busy and not held:  # no packet waits, or only data that is paused
        if not first:
            mark(run, link, slot, size)
        if stats[link, rs.MAX_PACKETS] == 0:
            stats[link, rs.MAX_PACKETS] = 1
        stats[link, rs.MAX_BYTES] = max(stats[link, rs.MAX_BYTES], size)
        start_service(run, link, slot, size, time)
        return np.int64(-1)
    if not first:
        if links[link, rs.WAITING_DATA] + size + links[link, rs.SERVED] > run.settings[rs.BUFFER]:
            slot = _victim(run, link, slot, size)
            trim = min(run.settings[rs.TRIM_BYTES], size_of(slots, slot))
            if trim == 0:
                stats[link, rs.DROPS] += 1
                free_slot(run, slot)
                return slot
            stats[link, rs.TRIMS] += 1
            first = np.int64(TRIMMED)
            slots[slot, rs.KEY] |= first
            others = slots[slot, rs.NEXT] & ~(np.int64(SIZE_MASK) << np.int64(32))
            slots[slot, rs.NEXT] = others | trim << np.int64(32)
            size = trim
    if first:
        if links[link, rs.WAITING_ACKS] + size > run.settings[rs.BUFFER]:
            stats[link, rs.DROPS] += 1
            free_slot(run, slot)
            return slot
        slots[slot, rs.NEXT] |= np.int64(rs.NO_SLOT)
        if links[link, rs.ACK_HEAD] < 0:
            links[link, rs.ACK_HEAD] = slot
        else:
            link_next(slots, links[link, rs.ACK_TAIL], slot)
        links[link, rs.ACK_TAIL] = slot
        links[link, rs.WAITING_ACKS] += size
    else:
        slots[slot, rs.NEXT] |= np.int64(rs.NO_SLOT)
        if run.settings[rs.CLASSES] > 1:
            append(run, link, slot, size)
        else:
            if links[link, rs.DATA_HEAD] < 0:
                links[link, rs.DATA_HEAD] = slot
            else:
                link_next(slots, links[link, rs.DATA_TAIL], slot)
            stats[link, rs.LAST] = (links[link, rs.DATA_TAIL] << np.int64(32)) | 1
            links[link, rs.DATA_TAIL] = slot
        links[link, rs.WAITING_DATA] += size
    links[link, rs.WAITING_PACKETS] = waiting + 1
    stats[link, rs.MAX_PACKETS] = max(stats[link, rs.MAX_PACKETS], found + 1)
    queued = links[link, rs.WAITING_DATA] + links[link, rs.WAITING_ACKS]
    if busy:
        queued += links[link, rs.SERVED]
    stats[link, rs.MAX_BYTES] = max(stats[link, rs.MAX_BYTES], queued)
    if run.counts[rs.LOAD_BIN_PS]:
        add_queue(run.loads, run.counts, link, queued, time)
    return np.int64(-1)
