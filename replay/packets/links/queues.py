"""Links: packets wait by class, are served in turn, and travel along the wire."""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Int, Ints, inlined
from ..model.draws import ECN, draw
from ..model.model import ACK, MARKED, NEVER, TRIMMED, service_ps
from ..model.run_state import (
    ACK_HEAD,
    ACK_TAIL,
    BUFFER,
    CARRIED,
    DATA_HEAD,
    DATA_TAIL,
    DELAY,
    DROPS,
    ECN_HIGH,
    ECN_LOW,
    FREE,
    FREE_SLOT,
    FREE_SLOTS,
    GAP_BYTES,
    HEAD_TIME,
    HISTOGRAM_BINS,
    HOPS,
    IN_FLIGHT,
    KEY,
    LAYER,
    LOAD_BIN_PS,
    MARKS,
    MAX_BYTES,
    MAX_PACKETS,
    META,
    NEXT,
    NO_SLOT,
    PACKETS,
    RATE,
    SEED,
    SERVED,
    TIME,
    TRIM_BYTES,
    TRIMS,
    WAITING_ACKS,
    WAITING_DATA,
    WAITING_PACKETS,
    WIRE_HEAD,
    WIRE_TAIL,
    Network,
)
from .load_bins import add_load

_NEXT_MASK = 0xFFFFFFFF
_SIZE_MASK = 0xFFFF


@inlined
def next_of(slots: Ints, slot: Int) -> Int:
    """The slot after this one in its list, -1 behind the last."""
    following = slots[slot, NEXT] & np.int64(_NEXT_MASK)
    return np.int64(-1) if following == np.int64(NO_SLOT) else following


@inlined
def size_of(slots: Ints, slot: Int) -> Int:
    """Bytes of a packet."""
    return (slots[slot, NEXT] >> np.int64(32)) & np.int64(_SIZE_MASK)


@inlined
def link_next(slots: Ints, slot: Int, following: Int) -> None:
    """Make `following` (a slot) the one after this."""
    slots[slot, NEXT] = (slots[slot, NEXT] & ~np.int64(_NEXT_MASK)) | following


@inlined
def free_slot(run: Network, slot: Int) -> None:
    """The packet has left the network."""
    run.slots[slot, NEXT] = run.counts[FREE_SLOT]
    run.counts[FREE_SLOT] = slot
    run.counts[FREE_SLOTS] += 1
    run.counts[IN_FLIGHT] -= 1


@inlined
def new_slot(run: Network, key: Int, meta: Int, size: Int) -> Int:
    """A packet enters the network. The driver has made sure that a slot is free."""
    counts = run.counts
    slot = counts[FREE_SLOT]
    counts[FREE_SLOT] = run.slots[slot, NEXT] & np.int64(_NEXT_MASK)
    counts[FREE_SLOTS] -= 1
    counts[IN_FLIGHT] += 1
    run.slots[slot, KEY] = key
    run.slots[slot, META] = meta
    run.slots[slot, NEXT] = (size << np.int64(32)) | np.int64(NO_SLOT)
    return slot


@inlined
def start_service(run: Network, link: Int, slot: Int, size: Int, start: Int) -> None:
    """Serve a packet from `start` on and put it onto the wire."""
    links, slots = run.links, run.slots
    rate = links[link, RATE]
    service = service_ps(size, rate)
    if run.counts[LOAD_BIN_PS]:
        add_load(run.loads, run.counts, link, size, start, service)
    arrival = start + service + links[link, DELAY]
    gap = run.settings[GAP_BYTES]
    if gap:
        service = service_ps(size + gap, rate)
    links[link, FREE] = start + service
    links[link, SERVED] = size
    links[link, CARRIED] += size
    run.stats[link, PACKETS] += 1
    run.counts[HOPS] += 1
    slots[slot, TIME] = arrival
    slots[slot, NEXT] |= np.int64(NO_SLOT)
    if links[link, HEAD_TIME] == NEVER:
        links[link, WIRE_HEAD] = slot
        links[link, HEAD_TIME] = arrival
    else:
        link_next(slots, links[link, WIRE_TAIL], slot)
    links[link, WIRE_TAIL] = slot


@inlined
def take_waiting(run: Network, link: Int, start: Int) -> Int:
    """Take the next waiting packet, ACKs first; the link has WAITING_PACKETS > 0."""
    links, slots = run.links, run.slots
    slot = links[link, ACK_HEAD]
    links[link, WAITING_PACKETS] -= 1
    if slot >= 0:
        links[link, ACK_HEAD] = next_of(slots, slot)
        links[link, WAITING_ACKS] -= size_of(slots, slot)
        return slot
    slot = links[link, DATA_HEAD]
    links[link, DATA_HEAD] = next_of(slots, slot)
    mark(run, link, slot, links[link, WAITING_DATA])
    links[link, WAITING_DATA] -= size_of(slots, slot)
    return slot


@inlined
def mark(run: Network, link: Int, slot: Int, queued: Int) -> None:
    """ECN for a data packet whose service starts with so many bytes queued, its own too."""
    low = run.settings[ECN_LOW]
    if queued > low:
        high = run.settings[ECN_HIGH]
        key = run.slots[slot, KEY]
        random = draw(run.settings[SEED], ECN, key & (np.int64(MARKED) - 1), link)
        share = np.int64(random >> np.uint64(40))  # 24 bits
        if queued >= high or share * (high - low) < ((queued - low) << np.int64(24)):
            run.slots[slot, KEY] = key | np.int64(MARKED)
            run.stats[link, MARKS] += 1


@inlined
def serve(run: Network, link: Int, limit: Int) -> None:
    """Start the service of all waiting packets whose turn comes before `limit`."""
    links = run.links
    while links[link, WAITING_PACKETS] > 0 and links[link, FREE] < limit:
        start = links[link, FREE]
        slot = take_waiting(run, link, start)
        start_service(run, link, slot, size_of(run.slots, slot), start)


@inlined
def enqueue(run: Network, link: Int, slot: Int, time: Int) -> None:
    """A packet comes to a link that is served up to and with `time`."""
    links, slots, stats = run.links, run.slots, run.stats
    key, size = slots[slot, KEY], size_of(slots, slot)
    first = key & np.int64(ACK | TRIMMED)
    busy = links[link, FREE] > time
    waiting = links[link, WAITING_PACKETS]
    found = waiting + (np.int64(1) if busy else np.int64(0))
    bin = min(found, run.settings[HISTOGRAM_BINS] - 1)
    run.histogram[links[link, LAYER], bin] += 1
    if not busy:  # then nothing waits either
        if not first:
            mark(run, link, slot, size)
        if stats[link, MAX_PACKETS] == 0:
            stats[link, MAX_PACKETS] = 1
        stats[link, MAX_BYTES] = max(stats[link, MAX_BYTES], size)
        start_service(run, link, slot, size, time)
        return
    if not first:
        if links[link, WAITING_DATA] + size + links[link, SERVED] > run.settings[BUFFER]:
            trim = run.settings[TRIM_BYTES]
            if trim == 0:
                stats[link, DROPS] += 1
                free_slot(run, slot)
                return
            stats[link, TRIMS] += 1
            first = np.int64(TRIMMED)
            slots[slot, KEY] = key | first
            slots[slot, NEXT] = (slots[slot, NEXT] & ~(np.int64(_SIZE_MASK) << np.int64(32))) | (
                trim << np.int64(32)
            )
            size = trim
    if first:
        if links[link, WAITING_ACKS] + size > run.settings[BUFFER]:
            stats[link, DROPS] += 1
            free_slot(run, slot)
            return
        slots[slot, NEXT] |= np.int64(NO_SLOT)
        if links[link, ACK_HEAD] < 0:
            links[link, ACK_HEAD] = slot
        else:
            link_next(slots, links[link, ACK_TAIL], slot)
        links[link, ACK_TAIL] = slot
        links[link, WAITING_ACKS] += size
    else:
        slots[slot, NEXT] |= np.int64(NO_SLOT)
        if links[link, DATA_HEAD] < 0:
            links[link, DATA_HEAD] = slot
        else:
            link_next(slots, links[link, DATA_TAIL], slot)
        links[link, DATA_TAIL] = slot
        links[link, WAITING_DATA] += size
    links[link, WAITING_PACKETS] = waiting + 1
    stats[link, MAX_PACKETS] = max(stats[link, MAX_PACKETS], found + 1)
    queued = links[link, WAITING_DATA] + links[link, WAITING_ACKS] + links[link, SERVED]
    stats[link, MAX_BYTES] = max(stats[link, MAX_BYTES], queued)
