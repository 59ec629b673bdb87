"""The state of packet strategies: one int64 array of numbers and of tables behind them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...kernels.kernel import Array, Ints
from ..packets.model.draws import shuffle_each

WITHOUT_FLAGS = (1 << 57) - 1
"""Of a packet key: message, number and whether it is an ACK; marks on the way do not count."""


def state_of(numbers: Sequence[int], *tables: Array) -> Ints:
    """int64[]: the numbers, where each table begins, the tables."""
    begins = np.cumsum([len(numbers) + len(tables), *(t.size for t in tables)])
    head = np.array([*numbers, *begins[:-1]], np.int64)
    return np.concatenate([head, *(t.reshape(-1).astype(np.int64) for t in tables)])


def shuffled(sizes: Ints, seed: int, purpose: int, what: Ints) -> tuple[Ints, Ints]:
    """(start, order): order[start[i] : start[i + 1]] is 0 .. sizes[i]-1 as drawn for what[i]."""
    start = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    order = np.zeros(int(start[-1]), np.int64)
    shuffle_each(seed, purpose, np.asarray(what, np.int64), start, order)
    return start, order
