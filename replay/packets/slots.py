"""Packets that wait: slots, lists of slots, and queues of classes.

Lists are threaded through the slots of packets in flight. Where a link has several classes of data,
the class that sends next is chosen here.
"""

from __future__ import annotations

import numpy as np

from ...kernels.kernel import Int, inlined, subkernel
from .model import state as rs
from .model.model import message_of
from .model.records import Records
from .model.state import Network

NEXT_MASK = 0xFFFFFFFF
SIZE_MASK = 0xFFFF


@inlined
def next_of(slots: Records, slot: Int) -> Int:
    """The next slot in the list, -1 after the last."""
    following = slots[slot].next & np.int64(NEXT_MASK)
    return np.int64(-1) if following == np.int64(rs.NO_SLOT) else following


@inlined
def size_of(slots: Records, slot: Int) -> Int:
    """Bytes of a packet."""
    return (slots[slot].next >> np.int64(32)) & np.int64(SIZE_MASK)


@inlined
def link_next(slots: Records, slot: Int, following: Int) -> None:
    """Set the next slot in the list."""
    slots[slot].next = (slots[slot].next & ~np.int64(NEXT_MASK)) | following


@inlined
def free_slot(run: Network, slot: Int) -> None:
    """Free the slot of a packet that has left the network."""
    run.slots[slot].next = run.counts[0].free_slot
    run.counts[0].free_slot = slot
    run.counts[0].free_slots += 1
    run.counts[0].in_flight -= 1


@inlined
def new_slot(run: Network, key: Int, meta: Int, size: Int) -> Int:
    """A slot for a packet that enters the network; the driver ensures that a slot is free."""
    counts = run.counts
    slot = counts[0].free_slot
    counts[0].free_slot = run.slots[slot].next & np.int64(NEXT_MASK)
    counts[0].free_slots -= 1
    counts[0].in_flight += 1
    run.slots[slot].key = key
    run.slots[slot].meta = meta
    run.slots[slot].next = (size << np.int64(32)) | np.int64(rs.NO_SLOT)
    return slot


@inlined
def class_of(run: Network, key: Int) -> Int:
    """Class of a data packet, 0 if there is only one."""
    if run.settings[0].classes == 1:
        return np.int64(0)
    return np.int64(run.classes.of_message[message_of(key)])


@inlined
def row_of(run: Network, link: Int, of: Int) -> Int:
    """The row of a class at a link, in `queues` and in the rows of pauses."""
    return link * run.settings[0].classes + of


@inlined
def is_held(run: Network, row: Int, time: Int) -> bool:
    """Whether data of a class must not start at a time: it is paused, or its sender has yet to
    obey a frame of this time."""
    rows = run.pauses.rows
    return rows[row].paused != 0 or rows[row].frame_time <= time


@subkernel
def open_classes(run: Network, link: Int, time: Int) -> Int:
    """Mask of the classes of which packets wait at a link and that are not paused."""
    mask = np.int64(0)
    for of in range(run.settings[0].classes):
        row = row_of(run, link, np.int64(of))
        if run.classes.queues[row].head >= 0:
            if run.settings[0].pfc == 0 or not is_held(run, row, time):
                mask |= np.int64(1) << of
    return mask


@subkernel
def next_class(run: Network, link: Int, may: Int, at_host: Int) -> Int:
    """The class that sends next, of those in the mask `may`; -1 for none.

    At a host the class is chosen before its packet is known: a class may send while it has bytes
    left, and owes the excess.
    """
    queues, turns, rules = run.classes.queues, run.classes.turns, run.classes.rules
    classes = run.settings[0].classes
    if may == 0:
        return np.int64(-1)
    for of in range(classes):
        if rules[of].quantum == 0 and may >> of & 1:
            return np.int64(of)
    while True:
        of = turns[link].turn
        row = row_of(run, link, of)
        if may >> of & 1:
            if turns[link].credited == 0:
                queues[row].deficit += rules[of].quantum
                turns[link].credited = 1
            need: Int = np.int64(1)
            if at_host == 0:
                need = size_of(run.slots, queues[row].head)
            if queues[row].deficit >= need:
                return of
        turns[link].turn = (of + 1) % classes
        turns[link].credited = 0


@subkernel
def charge(run: Network, link: Int, of: Int, size: Int, empty: Int) -> None:
    """Charge a class for a packet of `size` bytes. A class without packets (empty) saves
    nothing."""
    queues, turns = run.classes.queues, run.classes.turns
    if run.classes.rules[of].quantum == 0:
        return
    row = row_of(run, link, of)
    queues[row].deficit -= size
    if empty:
        queues[row].deficit = min(np.int64(0), queues[row].deficit)
        turns[link].turn = (of + 1) % run.settings[0].classes
        turns[link].credited = 0


@subkernel
def append(run: Network, link: Int, slot: Int, size: Int) -> None:
    """Append a data packet to the queue of its class."""
    queues, row = run.classes.queues, row_of(run, link, class_of(run, run.slots[slot].key))
    if queues[row].head < 0:
        queues[row].head = slot
    else:
        link_next(run.slots, queues[row].tail, slot)
    queues[row].tail = slot
    queues[row].bytes += size


@subkernel
def take_next(run: Network, link: Int, time: Int) -> Int:
    """Take the packet that is next; at least one class is open."""
    queues = run.classes.queues
    of = next_class(run, link, open_classes(run, link, time), np.int64(0))
    row = row_of(run, link, of)
    slot = queues[row].head
    size = size_of(run.slots, slot)
    queues[row].head = next_of(run.slots, slot)
    queues[row].bytes -= size
    charge(run, link, of, size, np.int64(queues[row].head < 0))
    return slot
