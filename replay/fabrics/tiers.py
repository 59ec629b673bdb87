"""Tiers of switches without a tier in the description, by distance to hosts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .build import Cables


def tiers_by_distance(
    tiers: Sequence[int | None], wires: Cables, switches: int
) -> NDArray[np.int8]:
    """int8[switches]: given tiers stay; a switch with hosts is a leaf (1), its neighbours 2, ..."""
    distance = np.full(switches, 127, np.int64)
    low, high = np.minimum(wires.a, wires.b), np.maximum(wires.a, wires.b)
    distance[low[(high >= switches) & (low < switches)]] = 1
    between = (high < switches) & (low != high)
    a, b = low[between], high[between]
    while True:
        before = distance.copy()
        np.minimum.at(distance, a, before[b] + 1)
        np.minimum.at(distance, b, before[a] + 1)
        if (distance == before).all():
            break
    given = [distance[i] if tier is None else tier for i, tier in enumerate(tiers)]
    return np.minimum(given, 126).astype(np.int8)
