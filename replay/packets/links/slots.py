"""Slots of packets in flight, and lists that are threaded through them."""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Int, inlined
from ..model import run_state as rs
from ..model.records import Records
from ..model.run_state import Network

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
