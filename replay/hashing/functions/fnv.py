"""FNV-1a, 32 bits. Source: Fowler, Noll, Vo; RFC 9923."""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Bytes, Ints, UInt32s, inlined, kernel
from ..keys import KeyBytes
from ..seeded import Fill

OFFSET_BASIS = 0x811C9DC5
_PRIME = 0x01000193


@inlined
def _absorb(value: np.uint32, byte: np.uint32) -> np.uint32:
    return np.uint32((value ^ byte) * np.uint32(_PRIME))


@inlined
def _fnv1a(data: Bytes, length: np.int64, i: int, seed: np.uint32, prepended: bool) -> np.uint32:
    value = np.uint32(OFFSET_BASIS)
    if prepended:
        for shift in (24, 16, 8, 0):
            value = _absorb(value, (seed >> np.uint32(shift)) & np.uint32(0xFF))
    else:
        value ^= seed
    for j in range(length):
        value = _absorb(value, np.uint32(data[j, i]))
    return value


@kernel
def fnv1a(data: Bytes, lengths: Ints, seeds: UInt32s, prepended: bool, out: UInt32s) -> None:
    """out[r, i] = FNV-1a of column i under seeds[r, i]: uint8[L, n], int64[n], at most L.

    The seed is XORed into the offset basis or is four big-endian bytes in front.
    """
    for r in range(out.shape[0]):
        for i in range(data.shape[1]):
            out[r, i] = _fnv1a(data, lengths[i], i, seeds[r, i], prepended)


def prepare(keys: KeyBytes, prepended: bool) -> Fill:
    """The function of these keys, to be given seeds."""
    columns = np.ascontiguousarray(keys.data.T)

    def fill(seeds: UInt32s, out: UInt32s) -> None:
        each = np.broadcast_to(seeds if seeds.ndim == 2 else seeds[:, None], out.shape)
        fnv1a(columns, keys.lengths, each, prepended, out)

    return fill
