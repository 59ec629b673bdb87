"""The state of packet strategies: one int64 array of numbers and of tables behind them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...analyzer.errors import UsageError
from ..engine.draws import drawn
from ..fabric import Fabric

WITHOUT_FLAGS = (1 << 57) - 1
"""Of a packet key: message, number and whether it is an ACK; marks on the way do not count."""


def state_of(numbers: Sequence[int], *tables: NDArray[Any]) -> NDArray[np.int64]:
    """int64[]: the numbers, where each table begins, the tables."""
    begins = np.cumsum([len(numbers) + len(tables), *(t.size for t in tables)])
    head = np.array([*numbers, *begins[:-1]], np.int64)
    return np.concatenate([head, *(t.reshape(-1).astype(np.int64) for t in tables)])


def shuffled(n: int, seed: int, purpose: int, what: int) -> list[int]:
    """0 .. n-1 in an order drawn for `what` (Fisher and Yates)."""
    order = list(range(n))
    for i in range(n - 1, 0, -1):
        j = drawn(seed, purpose, what, i, i + 1)
        order[i], order[j] = order[j], order[i]
    return order


def need_choice(name: str, fabric: Fabric) -> None:
    """UsageError when no switch has several links to choose from."""
    if not (np.diff(fabric.forwarding.group_start) > 1).any():
        raise UsageError(f"{name}: no switch of {fabric.name} has a choice of links")
