"""Some flows of the state of an analysis stay, the others leave memory.

Every object with state per flow has a method `keep(kept)`. Afterwards flow `kept.flows[i]` has the
number i, and the object is as if the other flows had never been seen. Arrays keep their length:
memory behind the kept flows is zero and untouched, so it costs nothing until flows come.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...kernels.kernel import Array, Bools, Bytes, Int32s, Ints
from ...kernels.named import NamedTuple

_PIECE, _FLOWS_OF_A_PIECE = 1 << 16, 1 << 12
"""Records, and flows, that are copied at once."""


class Kept(NamedTuple):
    """Which flows stay, and their new numbers."""

    flows: Ints
    """int64[kept flows]: present numbers, ascending."""
    number: Int32s
    """int32[present flows]: the new number of each flow, -1 for those that leave."""

    def of(self, known: int) -> Ints:
        """The kept flows below `known`: those of an array that has not grown to all flows."""
        return self.flows[: int(np.searchsorted(self.flows, known))]

    def holds(self, flows: Array) -> Bools:
        """Which of these flow numbers stay. Negative numbers (no flow) do not."""
        found: Bools = (flows >= 0) & (self.number[flows] >= 0)
        return found


def kept_flows(stays: Bools) -> Kept:
    """stays: bool[flows]."""
    flows = np.flatnonzero(stays)
    number = np.full(len(stays), -1, np.int32)
    number[flows] = np.arange(len(flows), dtype=np.int32)
    return Kept(flows, number)


def untouched(array: Any) -> Any:
    """Zeros of the same form; memory costs nothing until it is written (`zeros_like` writes it)."""
    return np.zeros(array.shape, array.dtype)


def longer(array: Any, length: int, used: int | None = None) -> Any:
    """`array` with at least `length` rows: its first `used`, by default all, then zeros."""
    if length <= len(array):
        return array
    new = np.zeros((length, *array.shape[1:]), array.dtype)
    kept = array[:used]  # rows after the end may count as used already
    new[: len(kept)] = kept
    return new


def roomier(array: Any, length: int) -> Any:
    """The same, and twice as long or more if it grows: adding rows one by one stays cheap."""
    return array if length <= len(array) else longer(array, max(length, 2 * len(array), 64))


def rows_of(array: Any, kept: Kept, per: int = 1, fill: int = 0) -> Any:
    """`array` with `per` rows per flow: those of the kept flows first, then rows of `fill`."""
    flows = kept.of(len(array) // per)
    new = untouched(array) if fill == 0 else np.full_like(array, fill)
    for piece in range(0, len(flows), _FLOWS_OF_A_PIECE):
        rows = (flows[piece : piece + _FLOWS_OF_A_PIECE, None] * per + np.arange(per)).reshape(-1)
        new[piece * per : piece * per + len(rows)] = array[rows]
    return new


def places_of(references: Any) -> Ints:
    """Records of a pool that are in use; `references` hold 1 + their place, 0 for none.

    The references are rewritten: the records in use move to the front of the pool, in this order.
    """
    used = references > 0
    places: Ints = references[used].astype(np.int64) - 1
    references[used] = np.arange(1, len(places) + 1)
    return places


def front_of(pool: Any, places: Ints) -> Any:
    """`pool` with these records first, and zeros behind them."""
    new = untouched(pool)
    for piece in range(0, len(places), _PIECE):
        some = places[piece : piece + _PIECE]
        new[piece : piece + len(some)] = pool[some]
    return new


def move_tables(pool: Any, first: Ints, bits: Bytes, new: Any, to: Ints) -> None:
    """Copy tables of 1 << bits records, 0: no table; a record has a multiple of eight bytes.

    first, to: places of their first records in `pool` and in `new`, which is zero. All tables of
    one size at once, in pieces: a copy per table takes most of the time of an ending. Records of
    zeros are not written: most of a table is memory that was never touched.
    """
    for size in np.unique(bits[bits > 0]).tolist():
        tables, within = np.flatnonzero(bits == size), np.arange(1 << size)
        step = max(_PIECE >> size, 1)
        for piece in range(0, len(tables), step):
            some = tables[piece : piece + step]
            records = pool[(first[some][:, None] + within).reshape(-1)]
            there = (to[some][:, None] + within).reshape(-1)
            held = records.view(np.uint64).reshape(len(there), -1).any(axis=1)
            new[there[held]] = records[held]
