"""Slots of switch memory: claimed, filled and released, with the time for which they are taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from ...kernels.kernel import Int, function_at, inlined, subkernel
from ..packets.model.records import Records, array_of
from .columns import CELL, COLLIDED, DIRECT, FEEDBACK, GRADIENT, PACKET, RESENT, TALLY
from .state import BIN_PS, SEQ_BITS, Memory, added, owner_of

FORWARD, ABSORB, MULTICAST, REPLY = range(4)
"""A gradient at a switch is forwarded to the PS, absorbed, or becomes the result for all workers of
the rack or for its sender."""


def at_switch_signature() -> Any:
    """Of a scheme's function."""
    from numba import types

    integer: Any = types.int64
    parts = [array_of(CELL), array_of(TALLY), integer[:, ::1], integer[::1]]
    memory: Any = types.NamedTuple(parts, Memory)  # type: ignore[no-untyped-call, unused-ignore]
    return integer(memory, array_of(PACKET), *[integer] * 4)


scheme_at = function_at(at_switch_signature)
AtSwitch: TypeAlias = Callable[[Memory, Records, Int, Int, Int, Int], Int]
"""at_switch(memory, extra, slot, first, whole, now_ps): one of the fates above, for the gradient in
a row of `extra`, at the switch whose cells begin at `first`; whole: mask of the workers it waits
for. It may change the packet."""


@subkernel
def use(memory: Memory, since: Int, until: Int, done: Int) -> None:
    """Count the time for which a slot was taken."""
    usage, params = memory.usage, memory.params
    if until <= since:
        return
    bins = usage.shape[1]
    while (until - 1) // params[BIN_PS] >= bins:
        for kind in range(2):
            for at in range(bins):
                pair = 2 * at
                usage[kind, at] = (
                    usage[kind, pair] + usage[kind, pair + 1] if pair < bins else np.int64(0)
                )
        params[BIN_PS] *= 2
    width = params[BIN_PS]
    at = since // width
    while since < until:
        end = min(until, (at + 1) * width)
        usage[0, at] += end - since
        if done:
            usage[1, at] += end - since
        since = end
        at += 1


@inlined
def claim(memory: Memory, extra: Records, slot: Int, cell: Int, now_ps: Int) -> None:
    """Write a packet into an empty slot."""
    cells = memory.cells
    cells[cell].owner = owner_of(extra[slot].job, extra[slot].seq)
    cells[cell].bits = extra[slot].bits
    cells[cell].value = extra[slot].value
    cells[cell].priority = extra[slot].priority
    cells[cell].marked = extra[slot].kind & np.int64(FEEDBACK)
    cells[cell].since = cells[cell].touched = now_ps
    cells[cell].done = 0


@inlined
def release(memory: Memory, cell: Int, now_ps: Int) -> None:
    """Empty a slot."""
    cells = memory.cells
    use(memory, cells[cell].since, now_ps, cells[cell].done)
    cells[cell].owner = 0
    cells[cell].bits = 0


@inlined
def load(memory: Memory, extra: Records, slot: Int, cell: Int) -> None:
    """Write the sum of a slot into a packet of the same fragment."""
    cells = memory.cells
    extra[slot].bits = cells[cell].bits
    extra[slot].value = cells[cell].value
    extra[slot].kind |= cells[cell].marked


@inlined
def flush(memory: Memory, extra: Records, slot: Int, cell: Int, now_ps: Int) -> None:
    """A retransmission takes the sum of its slot along and empties the slot. A value that is in the
    slot already is not added; values that overlap only partly stay apart: the slot's are lost, and
    their workers retransmit them."""
    cells = memory.cells
    bits, there = extra[slot].bits, cells[cell].bits
    if bits & there == 0:
        value = added(extra[slot].value, cells[cell].value)
        load(memory, extra, slot, cell)
        extra[slot].bits = bits | there
        extra[slot].value = value
    elif bits & ~there == 0:
        load(memory, extra, slot, cell)
    release(memory, cell, now_ps)


@inlined
def add(memory: Memory, extra: Records, slot: Int, cell: Int, whole: Int, now_ps: Int) -> Int:
    """Add a gradient to an empty slot or to the slot of its fragment (ATP's rule).

    The packet that completes the sum takes it on; a copy of a contribution ends, or takes a
    complete sum on again. A packet whose values overlap partly with the slot's continues alone.
    """
    cells, job = memory.cells, extra[slot].job
    bits, there = extra[slot].bits, cells[cell].bits
    if cells[cell].owner == 0:
        claim(memory, extra, slot, cell, now_ps)
    elif bits & there == 0:
        cells[cell].bits = there | bits
        cells[cell].value = added(cells[cell].value, extra[slot].value)
        cells[cell].marked |= extra[slot].kind & np.int64(FEEDBACK)
        cells[cell].touched = now_ps
    elif bits & ~there:
        return np.int64(FORWARD)
    elif there != whole:
        return np.int64(ABSORB)
    else:
        load(memory, extra, slot, cell)
        return np.int64(FORWARD)
    if cells[cell].bits != whole:
        memory.tally[job].absorbed += 1
        return np.int64(ABSORB)
    cells[cell].done = 1
    memory.tally[job].completed += 1
    load(memory, extra, slot, cell)
    return np.int64(FORWARD)


@inlined
def fragment_of(extra: Records, slot: Int) -> Int:
    """`owner_of` the packet's fragment."""
    return owner_of(extra[slot].job, extra[slot].seq)


@inlined
def is_resent(extra: Records, slot: Int) -> Int:
    """Whether a gradient is a retransmission."""
    return extra[slot].kind & np.int64(RESENT)


@inlined
def collide(memory: Memory, extra: Records, slot: Int) -> None:
    """Mark a gradient that found its slot taken."""
    extra[slot].kind |= np.int64(COLLIDED)
    memory.tally[extra[slot].job].collisions += 1


@inlined
def swap(memory: Memory, extra: Records, slot: Int, cell: Int, now_ps: Int) -> None:
    """Exchange a packet and an incomplete slot: the packet leaves as the evicted partial sum, which
    goes to the PS of its job without further aggregation."""
    cells = memory.cells
    owner, marked = cells[cell].owner, cells[cell].marked
    bits, value, priority = cells[cell].bits, cells[cell].value, cells[cell].priority
    loser = (owner >> np.int64(SEQ_BITS)) - 1
    memory.tally[extra[slot].job].preemptions += 1
    memory.tally[loser].evicted += 1
    release(memory, cell, now_ps)
    claim(memory, extra, slot, cell, now_ps)
    extra[slot].kind = np.int64(GRADIENT | DIRECT) | marked
    extra[slot].job = loser
    extra[slot].seq = owner & ((np.int64(1) << np.int64(SEQ_BITS)) - 1)
    extra[slot].bits = bits
    extra[slot].value = value
    extra[slot].priority = priority
    extra[slot].to = -1
