"""Hosts of jobs."""

from __future__ import annotations

import numpy as np

from ...analyzer.errors import UsageError
from ...kernels.kernel import Int32s, Ints
from ..fabrics.fabric import Fabric

PACKED, SPREAD, DRAWN = "packed", "spread", "random"
PLACEMENTS = (PACKED, SPREAD, DRAWN)


class FreeHosts:
    """The hosts that no job has yet; hosts without a link are never free."""

    def __init__(self, fabric: Fabric) -> None:
        attached = (fabric.attachments.switch >= 0).any(1)
        self._leaf: Ints = fabric.attachments.switch.max(1).astype(np.int64)
        self._free: Ints = np.flatnonzero(attached)
        self._fabric = fabric

    def __len__(self) -> int:
        return len(self._free)

    def take(self, count: int, how: str, name: str, seed: int) -> Int32s:
        """Hosts for the ranks of a job: in port order (packed), leaf by leaf in turn (spread), or
        drawn (random). UsageError if there are too few."""
        free = self._free
        if count > len(free):
            raise UsageError(
                f"--jobs: {name} has {count:,} workers, but {self._fabric.name} has "
                f"{len(free):,} free hosts"
            )
        if how == SPREAD:
            leaf = self._leaf[free]
            order = np.argsort(leaf, kind="stable")
            starts = np.searchsorted(leaf[order], leaf[order])
            turn = np.empty(len(free), np.int64)
            turn[order] = np.arange(len(free)) - starts
            free = free[np.lexsort((leaf, turn))]
        elif how == DRAWN:
            free = np.random.default_rng(seed).permutation(free)
        chosen = free[:count]
        self._free = np.setdiff1d(self._free, chosen)
        return chosen.astype(np.int32)
