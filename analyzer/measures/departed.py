"""The names of flows that were removed from memory, to know those that come back: eight bytes per
flow."""

from __future__ import annotations

import numpy as np

from ...kernels.kernel import Array, Records

_SRC, _DST = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
_MIX = np.uint64(0xFF51AFD7ED558CCD)
_HALF = np.uint64(32)


class Departed:
    """Sorted 64-bit hashes of (source, destination, destination QPN).

    Two different flows share one with a chance of flows^2 / 2^65: then one that is new counts as
    one that came back.
    """

    def __init__(self) -> None:
        self._names: Array = np.zeros(0, np.uint64)

    def __len__(self) -> int:
        return len(self._names)

    def add(self, flows: Records) -> None:
        """Take in FLOW records that leave."""
        self._names = np.union1d(self._names, _hashes(flows))

    def returned(self, flows: Records) -> int:
        """How many of these FLOW records are of flows that left before."""
        hashes = _hashes(flows)
        at = np.searchsorted(self._names, hashes)
        known = at < len(self._names)
        return int(np.count_nonzero(self._names[at[known]] == hashes[known]))


def _hashes(flows: Records) -> Array:
    src, dst, qp = (flows[name].astype(np.uint64) for name in ("src", "dst", "dest_qp"))
    mixed = (src * _SRC) ^ ((dst + np.uint64(1)) * _DST)
    mixed = (mixed ^ (mixed >> _HALF)) * _MIX + qp
    mixed = (mixed ^ (mixed >> _HALF)) * _MIX
    return mixed ^ (mixed >> _HALF)
