"""A calendar of items (links, timers, hosts), each with at most one due time.

Time is divided into buckets of a wheel (Brown, CACM 1988); an item far in the future waits in its
bucket for later turns of the wheel. Only the current bucket is sorted, by (time, item number): a
few items, or thousands if hosts and links are synchronous. The calendar holds links, not packets,
so it does not grow with queues.
"""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Int, Ints, NamedTuple, inlined, subkernel
from .model import NEVER
from .records import Records, layout, table

BUCKET, AT, COUNT, DUE, SHIFT, BATCH = range(6)
"""Items of `book`: number of the current bucket, next entry of the batch, end of the batch, number
of items with a due time, binary logarithm of a bucket's width in ps; from BATCH on the batch:
sorted entries (time - begin of the bucket) << 32 | item."""
_ITEM_BITS = 32
ITEM_MASK = (1 << _ITEM_BITS) - 1
_PATIENCE = 4096
"""Empty buckets until the earliest item is searched instead."""
_FEW = 48
"""Up to this number of entries insertion sort is faster than counting digits."""
_DIGITS = 256
MANY = 4096
"""With this number of items the packets on their links exceed the caches of the processor."""


class Item:
    """An item of the calendar."""

    when: int
    """Due time (ps, NEVER)."""
    following: int
    """Neighbours in the list of its bucket (-1: none)."""
    before: int


ITEM = layout(Item, 32)


class Wheel(NamedTuple):
    """Items are numbered from 0; below 2^31."""

    heads: Ints
    """int64[buckets], a power of two: first item of each, -1 for none."""
    items: Records
    book: Ints
    """int64[BATCH + 2 items + 1]"""
    scratch: Ints
    """int64[256 + items], scratch space for sorting."""


def new_wheel(items: int, each_ps: float, horizon_ps: int) -> Wheel:
    """each_ps: expected time between events; horizon_ps: how far ahead most events are."""
    at_once = 64 if items > MANY else 8  # a long batch shows early what to prefetch
    shift = max(0, min(28, int(at_once * each_ps).bit_length()))
    buckets = 1 << max(4, min(16, (2 * horizon_ps >> shift).bit_length()))
    book = np.zeros(BATCH + 2 * items + 1, np.int64)
    book[SHIFT] = shift
    book[AT] = book[COUNT] = BATCH
    calendar = table(items, ITEM)
    calendar["following"] = calendar["before"] = -1
    calendar["when"] = NEVER
    scratch = np.zeros(_DIGITS + items, np.int64)
    return Wheel(np.full(buckets, -1, np.int64), calendar, book, scratch)


@inlined
def schedule(wheel: Wheel, item: Int, time: Int) -> None:
    """Make an item due at a time, present or future, unless it is already due earlier."""
    items, book = wheel.items, wheel.book
    if items[item].when <= time:
        return
    bucket = time >> book[SHIFT]
    if items[item].when == NEVER and bucket > book[BUCKET]:
        book[DUE] += 1
        items[item].when = time
        _put_in(wheel, item, bucket)
    else:
        _schedule_soon(wheel, item, time)


@subkernel
def _schedule_soon(wheel: Wheel, item: Int, time: Int) -> None:
    """`schedule` for an item that was due later, or is due in the current bucket."""
    items, book = wheel.items, wheel.book
    shift = book[SHIFT]
    if items[item].when == NEVER:
        book[DUE] += 1
    elif items[item].when >> shift != book[BUCKET]:
        _take_out(wheel, item, items[item].when >> shift)
    # Else its entry stays in the current batch; `next_event` ignores it.
    items[item].when = time
    bucket = time >> shift
    if bucket > book[BUCKET]:
        _put_in(wheel, item, bucket)
    else:
        _insert(wheel, ((time - (book[BUCKET] << shift)) << np.int64(_ITEM_BITS)) | item)


@subkernel
def _insert(wheel: Wheel, entry: Int) -> None:
    """Insert into the sorted rest of the current batch."""
    book = wheel.book
    if book[COUNT] >= len(book):
        _tidy(wheel)
    i = book[COUNT]
    book[COUNT] = i + 1
    while i > book[AT] and book[i - 1] > entry:
        book[i] = book[i - 1]
        i -= 1
    book[i] = entry


@inlined
def _tidy(wheel: Wheel) -> None:
    """Remove void entries of the current batch: at most one entry per item stays."""
    book = wheel.book
    begin, kept, before = book[BUCKET] << book[SHIFT], np.int64(BATCH), np.int64(-1)
    for i in range(book[AT], book[COUNT]):
        entry = book[i]
        due = begin + (entry >> np.int64(_ITEM_BITS))
        if wheel.items[entry & np.int64(ITEM_MASK)].when == due and entry != before:
            book[kept] = entry
            kept += 1
            before = entry
    book[AT] = BATCH
    book[COUNT] = kept


@inlined
def _put_in(wheel: Wheel, item: Int, bucket: Int) -> None:
    """Add an item to the list of its bucket."""
    items = wheel.items
    at = bucket & np.int64(len(wheel.heads) - 1)
    first = wheel.heads[at]
    items[item].following = first
    items[item].before = -1
    if first >= 0:
        items[first].before = item
    wheel.heads[at] = item


@inlined
def _take_out(wheel: Wheel, item: Int, bucket: Int) -> None:
    """Remove an item from the list of its bucket."""
    items = wheel.items
    before, after = items[item].before, items[item].following
    if before < 0:
        wheel.heads[bucket & np.int64(len(wheel.heads) - 1)] = after
    else:
        items[before].following = after
    if after >= 0:
        items[after].before = before


@inlined
def next_event(wheel: Wheel) -> tuple[Int, Int]:
    """(item, time) of the next event by (time, item); (-1, NEVER): none.

    The item is then no longer due, and its time is the present.
    """
    items, book = wheel.items, wheel.book
    shift = book[SHIFT]
    while True:
        while book[AT] < book[COUNT]:
            entry = book[book[AT]]
            book[AT] += 1
            item = entry & np.int64(ITEM_MASK)
            time = (book[BUCKET] << shift) + (entry >> np.int64(_ITEM_BITS))
            if items[item].when == time:
                items[item].when = NEVER
                book[DUE] -= 1
                return item, time
        if book[DUE] == 0:
            return np.int64(-1), np.int64(NEVER)
        _next_bucket(wheel)


@subkernel
def _next_bucket(wheel: Wheel) -> None:
    """Go to the next bucket with items of this turn of the wheel, and sort them."""
    items, book, heads = wheel.items, wheel.book, wheel.heads
    shift, mask = book[SHIFT], np.int64(len(heads) - 1)
    book[AT] = BATCH
    book[COUNT] = BATCH
    empty = 0
    while book[COUNT] == BATCH:
        book[BUCKET] += 1
        empty += 1
        if empty > _PATIENCE:
            earliest = np.int64(NEVER)
            for i in range(len(items)):
                earliest = min(earliest, items[i].when)
            book[BUCKET] = earliest >> shift
            empty = 0
        begin = book[BUCKET] << shift
        end = begin + (np.int64(1) << shift)
        at = book[BUCKET] & mask
        item, last = heads[at], np.int64(-1)  # last: of the items that stay
        while item >= 0:
            after = items[item].following
            if items[item].when < end:
                if last < 0:
                    heads[at] = after
                else:
                    items[last].following = after
                if after >= 0:
                    items[after].before = last
                entry = ((items[item].when - begin) << np.int64(_ITEM_BITS)) | item
                book[book[COUNT]] = entry
                book[COUNT] += 1
            else:
                last = item
            item = after
    _sort(wheel)


@inlined
def _sort(wheel: Wheel) -> None:
    """Sort the whole batch, in which every item occurs once."""
    book = wheel.book
    if book[COUNT] - BATCH > _FEW:
        bits = 1
        while len(wheel.items) >> bits:
            bits += 1
        _sort_digits(wheel, np.int64(0), np.int64(bits))
        _sort_digits(wheel, np.int64(_ITEM_BITS), _ITEM_BITS + book[SHIFT])
        return
    for i in range(BATCH + 1, book[COUNT]):
        entry, j = book[i], i
        while j > BATCH and book[j - 1] > entry:
            book[j] = book[j - 1]
            j -= 1
        book[j] = entry


@inlined
def _sort_digits(wheel: Wheel, lowest: Int, end: Int) -> None:
    """Stable counting sorts by byte, of the bits from `lowest` to below `end`."""
    book, scratch = wheel.book, wheel.scratch
    count = book[COUNT] - BATCH
    for shift in range(lowest, end, 8):
        for digit in range(_DIGITS):
            scratch[digit] = 0
        for i in range(count):
            entry = book[BATCH + i]
            scratch[_DIGITS + i] = entry
            scratch[(entry >> shift) & (_DIGITS - 1)] += 1
        before = np.int64(BATCH)
        for digit in range(_DIGITS):
            place = scratch[digit]
            scratch[digit] = before
            before += place
        for i in range(count):
            entry = scratch[_DIGITS + i]
            digit = (entry >> shift) & (_DIGITS - 1)
            book[scratch[digit]] = entry
            scratch[digit] += 1
