"""A calendar of items (links, timers, hosts), each of which is due at most once at a time.

Time is cut into buckets that are kept in a wheel (Brown, CACM 1988); an item far ahead waits in its
bucket for later turns. Only the bucket of the present is sorted, by (time, item number): a few
items at a time. The queue holds links, not packets, so it does not grow with queues.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...analyzer.kernel import Int, inlined, subkernel
from .model import NEVER

BUCKET, AT, COUNT, DUE, SHIFT = range(5)
"""Items of `clock`: number of the present bucket, next entry of `batch`, entries in it, items that
are due at some time, binary logarithm of a bucket's width in ps."""
_ITEM_BITS = 32
_ITEM_MASK = (1 << _ITEM_BITS) - 1
_PATIENCE = 4096
"""Empty buckets before looking for the earliest item instead."""


class Wheel(NamedTuple):
    """Items are numbered from 0; below 2^31."""

    heads: NDArray[np.int32]
    """int32[buckets], a power of two: first item of each, -1 for none."""
    following: NDArray[np.int32]
    """int32[items]: next item of the same bucket."""
    when: NDArray[np.int64]
    """int64[items]: ps, NEVER for items that are not due."""
    batch: NDArray[np.int64]
    """int64[2 items + 1]: sorted entries (time - begin of the bucket) << 32 | item."""
    clock: NDArray[np.int64]


def new_wheel(items: int, between_ps: int, horizon_ps: int) -> Wheel:
    """between_ps: expected time from one event to the next; horizon_ps: how far ahead most are."""
    shift = max(0, min(28, (4 * between_ps).bit_length()))
    buckets = 1 << max(4, min(16, (2 * horizon_ps >> shift).bit_length()))
    clock = np.zeros(5, np.int64)
    clock[SHIFT] = shift
    return Wheel(
        np.full(buckets, -1, np.int32),
        np.full(items, -1, np.int32),
        np.full(items, NEVER, np.int64),
        np.zeros(2 * items + 1, np.int64),
        clock,
    )


@subkernel
def schedule(wheel: Wheel, item: Int, time: Int) -> None:
    """Make an item due at a time, not before the present, unless it is due earlier already."""
    when, clock = wheel.when, wheel.clock
    before = when[item]
    if before <= time:
        return
    shift = clock[SHIFT]
    if before != NEVER:
        # An entry of the present batch stays behind; `next_event` sees that it is void.
        if before >> shift != clock[BUCKET]:
            _take_out(wheel, item, before >> shift)
    else:
        clock[DUE] += 1
    when[item] = time
    bucket = time >> shift
    if bucket > clock[BUCKET]:
        at = bucket & np.int64(len(wheel.heads) - 1)
        wheel.following[item] = wheel.heads[at]
        wheel.heads[at] = item
    else:
        _insert(wheel, ((time - (clock[BUCKET] << shift)) << np.int64(_ITEM_BITS)) | item)


@inlined
def _insert(wheel: Wheel, entry: Int) -> None:
    """Into the sorted rest of the present batch."""
    batch, clock = wheel.batch, wheel.clock
    if clock[COUNT] >= len(batch):
        _tidy(wheel)
    i = clock[COUNT]
    clock[COUNT] = i + 1
    while i > clock[AT] and batch[i - 1] > entry:
        batch[i] = batch[i - 1]
        i -= 1
    batch[i] = entry


@subkernel
def _tidy(wheel: Wheel) -> None:
    """Keep what is still due of the present batch, once: at most one entry per item."""
    batch, clock = wheel.batch, wheel.clock
    begin, kept, before = clock[BUCKET] << clock[SHIFT], np.int64(0), np.int64(-1)
    for i in range(clock[AT], clock[COUNT]):
        entry = batch[i]
        due = begin + (entry >> np.int64(_ITEM_BITS))
        if wheel.when[entry & np.int64(_ITEM_MASK)] == due and entry != before:
            batch[kept] = entry
            kept += 1
            before = entry
    clock[AT] = 0
    clock[COUNT] = kept


@inlined
def _take_out(wheel: Wheel, item: Int, bucket: Int) -> None:
    """From the list of a bucket, in which the item is."""
    at = bucket & np.int64(len(wheel.heads) - 1)
    following = np.int64(wheel.heads[at])
    if following == item:
        wheel.heads[at] = wheel.following[item]
        return
    while following >= 0:
        after = np.int64(wheel.following[following])
        if after == item:
            wheel.following[following] = wheel.following[item]
            return
        following = after


@inlined
def next_event(wheel: Wheel) -> tuple[Int, Int]:
    """(item, time) of the next event by (time, item); the item is no longer due. (-1, NEVER): none.

    The present moves on to that event.
    """
    when, batch, clock = wheel.when, wheel.batch, wheel.clock
    shift = clock[SHIFT]
    while True:
        while clock[AT] < clock[COUNT]:
            entry = batch[clock[AT]]
            clock[AT] += 1
            item = entry & np.int64(_ITEM_MASK)
            time = (clock[BUCKET] << shift) + (entry >> np.int64(_ITEM_BITS))
            if when[item] == time:
                when[item] = NEVER
                clock[DUE] -= 1
                return item, time
        if clock[DUE] == 0:
            return np.int64(-1), np.int64(NEVER)
        _next_bucket(wheel)


@subkernel
def _next_bucket(wheel: Wheel) -> None:
    """Move on to the next bucket with items of this turn and sort them."""
    when, clock, heads, following = wheel.when, wheel.clock, wheel.heads, wheel.following
    shift, mask = clock[SHIFT], np.int64(len(heads) - 1)
    clock[AT] = 0
    clock[COUNT] = 0
    empty = 0
    while clock[COUNT] == 0:
        clock[BUCKET] += 1
        empty += 1
        if empty > _PATIENCE:
            earliest = np.int64(NEVER)
            for i in range(len(when)):
                earliest = min(earliest, when[i])
            clock[BUCKET] = earliest >> shift
            empty = 0
        begin = clock[BUCKET] << shift
        end = begin + (np.int64(1) << shift)
        item = np.int64(heads[clock[BUCKET] & mask])
        last = np.int64(-1)  # of those that stay
        while item >= 0:
            after = np.int64(following[item])
            if when[item] < end:
                if last < 0:
                    heads[clock[BUCKET] & mask] = after
                else:
                    following[last] = after
                _insert(wheel, ((when[item] - begin) << np.int64(_ITEM_BITS)) | item)
            else:
                last = item
            item = after
