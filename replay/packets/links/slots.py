"""Slots of packets in flight, and lists that are threaded through them."""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Int, Ints, inlined
from ..model import run_state as rs
from ..model.run_state import Network

NEXT_MASK = 0xFFFFFFFF
SIZE_MASK = 0xFFFF


@inlined
def next_of(slots: Ints, slot: Int) -> Int:
    """The next slot in the list, -1 after the last."""
    following = slots[slot, rs.NEXT] & np.int64(NEXT_MASK)
    return np.int64(-1) if following == np.int64(rs.NO_SLOT) else following


@inlined
def size_of(slots: Ints, slot: Int) -> Int:
    """Bytes of a packet."""
    return (slots[slot, rs.NEXT] >> np.int64(32)) & np.int64(SIZE_MASK)


@inlined
def link_next(slots: Ints, slot: Int, following: Int) -> None:
    """Set the next slot in the list."""
    slots[slot, rs.NEXT] = (slots[slot, rs.NEXT] & ~np.int64(NEXT_MASK)) | following


@inlined
def free_slot(run: Network, slot: Int) -> None:
    """Free the slot of a packet that has left the network."""
    run.slots[slot, rs.NEXT] = run.counts[rs.FREE_SLOT]
    run.counts[rs.FREE_SLOT] = slot
    run.counts[rs.FREE_SLOTS] += 1
    run.counts[rs.IN_FLIGHT] -= 1


@inlined
def new_slot(run: Network, key: Int, meta: Int, size: Int) -> Int:
    """A slot for a packet that enters the network; the driver ensures that a slot is free."""
    counts = run.counts
    slot = counts[rs.FREE_SLOT]
    counts[rs.FREE_SLOT] = run.slots[slot, rs.NEXT] & np.int64(NEXT_MASK)
    counts[rs.FREE_SLOTS] -= 1
    counts[rs.IN_FLIGHT] += 1
    run.slots[slot, rs.KEY] = key
    run.slots[slot, rs.META] = meta
    run.slots[slot, rs.NEXT] = (size << np.int64(32)) | np.int64(rs.NO_SLOT)
    return slot
