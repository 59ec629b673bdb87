"""Some flows of the state of an analysis stay, the others leave memory.

Every object with state per flow has a method `keep(kept)`. Afterwards flow `kept.flows[i]` has the
number i, and the object is as if the other flows had never been seen. Arrays keep their length:
memory behind the kept flows is zero and untouched, so it costs nothing until flows come.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...kernels.kernel import Array, Bools, Int32s, Ints
from ...kernels.named import NamedTuple


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


def rows_of(array: Any, kept: Kept, per: int = 1, fill: int = 0) -> Any:
    """`array` with `per` rows per flow: those of the kept flows first, then rows of `fill`."""
    flows = kept.of(len(array) // per)
    rows = (flows[:, None] * per + np.arange(per)).reshape(-1)
    new = untouched(array) if fill == 0 else np.full_like(array, fill)
    new[: len(rows)] = array[rows]
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
    new[: len(places)] = pool[places]
    return new
