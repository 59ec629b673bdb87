"""Equal values of a column: their order, by counting instead of sorting."""

from __future__ import annotations

import numpy as np

from ...kernels.kernel import Array, Int32s, Ints, kernel


def ordinals(values: Array) -> Ints:
    """int64[n]: number of equal values before each value; values from 0 on."""
    numbers = np.ascontiguousarray(values, np.int32)
    out = np.empty(len(numbers), np.int64)
    _count(numbers, np.zeros(int(numbers.max(initial=-1)) + 1, np.int64), out)
    return out


def rows_by(values: Array) -> Ints:
    """int64[n]: the rows in the order of their values, equal values in their own order."""
    numbers = np.ascontiguousarray(values, np.int32)
    counts = np.bincount(numbers)
    place, rows = np.empty(len(numbers), np.int64), np.empty(len(numbers), np.int64)
    _count(numbers, np.cumsum(counts) - counts, place)
    rows[place] = np.arange(len(numbers))
    return rows


@kernel
def _count(values: Int32s, following: Ints, out: Ints) -> None:
    """out[i]: following[values[i]], which then grows by 1."""
    for i in range(len(values)):
        out[i] = following[values[i]]
        following[values[i]] += 1
