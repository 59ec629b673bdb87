"""A hash bound to its keys: parts that do not depend on the seed are computed once."""

from __future__ import annotations

import itertools
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from ...kernels.kernel import Int32s, UInt16s, UInt32s, UInt64s
from .reduction import PackedGroups, choose_one_group, pack_groups
from .settings import Group, Reduction

_TILE_VALUES = 1 << 15
"""Values per block between hashing and reduction, which stay in the second-level cache."""


class BoundHash(ABC):
    """Hash values of fixed keys under any seeds.

    The `fill` methods run on the calling thread and release the GIL; `values`
    and `choose` use every core. Seeds are 32 bits; higher bits are ignored.
    """

    units: int
    """Number of keys, n."""
    bits: int
    """Width of the values."""
    reduction: Reduction
    """How `choose` turns values into members."""
    is_linear: bool = False
    """value(seed) is value(0) XOR a constant that depends only on the seed and the address
    family: collisions in a group whose size is a power of two do not depend on the seed."""

    @abstractmethod
    def fill(self, seeds: UInt64s, out: UInt32s) -> None:
        """out[s, i] = value of unit i with seeds[s]."""

    @abstractmethod
    def fill_at(self, seeds: UInt64s, which: Int32s, out: UInt32s) -> None:
        """out[r, i] = value of unit i under seeds[which[r, i]], for units that meet
        different switches. `which` is int32[r, n], each from 0 to len(seeds) - 1."""

    def values(self, seeds: ArrayLike) -> UInt32s:
        """uint32[m, n]: the value of every unit with every seed."""
        seed = _seeds(seeds)
        out = np.empty((len(seed), self.units), np.uint32)
        in_parallel(len(seed), self.units, lambda a, b: self.fill(seed[a:b], out[a:b]))
        return out

    def pack(self, groups: Sequence[Group]) -> PackedGroups:
        """Groups for the kernels of `reduction`, fitting this hash."""
        return pack_groups(groups, self.reduction, self.bits)

    def choose(self, seeds: ArrayLike, group: Group) -> UInt16s:
        """uint16[m, n]: index into the group's members for every seed and unit."""
        seed = _seeds(seeds)
        packed = self.pack([group])
        out = np.empty((len(seed), self.units), np.uint16)
        in_parallel(
            len(seed), self.units, lambda a, b: self.choose_into(seed[a:b], packed, out[a:b])
        )
        return out

    def choose_into(self, seeds: UInt64s, packed: PackedGroups, out: UInt16s) -> None:
        """`choose` on the calling thread, for the first of the packed groups."""
        rows = max(1, _TILE_VALUES // max(1, self.units))
        values = np.empty((min(rows, len(seeds)), self.units), np.uint32)
        for a in range(0, len(seeds), rows):
            part = seeds[a : a + rows]
            self.fill(part, values[: len(part)])
            choose_one_group(values[: len(part)], packed, np.int64(0), out[a : a + rows])

    def seed_permutes(self, group: Group) -> bool:
        """Whether a new seed only permutes the members of this group: flows that collide
        with one seed collide with all seeds (one address family)."""
        slots = len(group.weights)
        return (
            self.is_linear
            and group.buckets is None
            and bool((group.weights == group.weights[0]).all())
            and slots & (slots - 1) == 0
            and slots <= 1 << self.bits
        )


def _seeds(seeds: ArrayLike) -> UInt64s:
    return np.atleast_1d(np.asarray(seeds)).astype(np.uint64) & np.uint64(0xFFFF_FFFF)


def in_parallel(rows: int, units: int, work: Callable[[int, int], None]) -> None:
    """work(first, end) over ranges of rows on every core; `work` releases the GIL."""
    threads = min(len(os.sched_getaffinity(0)), rows, 1 + rows * units // 100_000)
    if threads <= 1:
        work(0, rows)
        return
    from concurrent.futures import ThreadPoolExecutor

    edges = [rows * t // threads for t in range(threads + 1)]
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(work, a, b) for a, b in itertools.pairwise(edges)]:
            done.result()
