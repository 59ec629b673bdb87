"""The state of packet strategies: one int64 array of numbers, followed by tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...kernels.kernel import Array, Ints
from ..packets.model.draws import SHUFFLE, shuffle_each

WITHOUT_FLAGS = (1 << 57) - 1
"""Mask of a packet key: message, number and the flag ACK, without marks."""


def state_of(numbers: Sequence[int], *tables: Array) -> Ints:
    """int64[]: the numbers, the positions of the tables, the tables."""
    begins = np.cumsum([len(numbers) + len(tables), *(t.size for t in tables)])
    head = np.array([*numbers, *begins[:-1]], np.int64)
    return np.concatenate([head, *(t.reshape(-1).astype(np.int64) for t in tables)])


def shuffled(sizes: Ints, seed: int, what: Ints) -> tuple[Ints, Ints]:
    """(start, order): order[start[i] : start[i + 1]] is 0 .. sizes[i]-1, shuffled for what[i]."""
    start = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    order = np.zeros(int(start[-1]), np.int64)
    shuffle_each(seed, SHUFFLE, np.asarray(what, np.int64), start, order)
    return start, order
