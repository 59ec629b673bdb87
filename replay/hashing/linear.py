"""Hashes that are linear in their seed: one table per key, one XOR per seed.

For a CRC, an XOR fold or Toeplitz, hash(seed, key) = hash(0, key) XOR c(seed),
where c depends only on the length of the key. Keys are hashed once, and hashing
zeros gives the contribution of each seed bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from ...kernels.kernel import Bytes, Int32s, UInt32s, UInt64s, kernel
from .bound import BoundHash
from .keys import KeyBytes
from .settings import Reduction

Evaluate: TypeAlias = Callable[[KeyBytes, int], UInt32s]
"""Values of rows of bytes under one seed, uint32[n]."""

SEED_BITS = 32


class LinearHash(BoundHash):
    """Values from a base per unit and a contribution per seed bit."""

    is_linear = True

    def __init__(self, keys: KeyBytes, evaluate: Evaluate, bits: int, reduction: Reduction) -> None:
        self.units = len(keys.data)
        self.evaluate = evaluate
        """The function itself, under one seed."""
        self.bits = bits
        self.reduction = reduction
        lengths, kinds = np.unique(keys.lengths, return_inverse=True)
        self.kind = kinds.astype(np.uint8)
        """uint8[n]: row of `basis` of a unit (by address family)."""
        self.base = np.ascontiguousarray(evaluate(keys, 0))
        """uint32[n]: the values under seed 0."""
        zeros = KeyBytes(np.zeros((len(lengths), keys.data.shape[1]), np.uint8), lengths)
        origin = evaluate(zeros, 0)
        columns = [evaluate(zeros, 1 << bit) ^ origin for bit in range(SEED_BITS)]
        self.basis = np.stack(columns, axis=1).astype(np.uint32)
        """uint32[kinds, 32]: value that each bit of the seed XORs into the hash. A seed is
        recovered from observed values by Gaussian elimination over these columns."""

    def contributions(self, seeds: UInt64s) -> UInt32s:
        """uint32[m, kinds]: what each seed XORs into the values."""
        out = np.empty((len(seeds), len(self.basis)), np.uint32)
        _combine(seeds, self.basis, out)
        return out

    def fill(self, seeds: UInt64s, out: UInt32s) -> None:
        contributions = self.contributions(seeds)
        if len(self.basis) == 1:
            _xor_all(self.base, contributions[:, 0], out)
        else:
            _xor_by_kind(self.base, self.kind, contributions, out)

    def fill_at(self, seeds: UInt64s, which: Int32s, out: UInt32s) -> None:
        _xor_at(self.base, self.kind, self.contributions(seeds), which, out)


@kernel
def _combine(seeds: UInt64s, basis: UInt32s, out: UInt32s) -> None:
    for s in range(len(seeds)):
        for c in range(basis.shape[0]):
            value = np.uint32(0)
            for bit in range(SEED_BITS):
                if (seeds[s] >> np.uint64(bit)) & np.uint64(1):
                    value ^= basis[c, bit]
            out[s, c] = value


@kernel
def _xor_all(base: UInt32s, contribution: UInt32s, out: UInt32s) -> None:
    for s in range(len(contribution)):
        for i in range(len(base)):
            out[s, i] = base[i] ^ contribution[s]


@kernel
def _xor_by_kind(base: UInt32s, kind: Bytes, contributions: UInt32s, out: UInt32s) -> None:
    for s in range(contributions.shape[0]):
        for i in range(len(base)):
            out[s, i] = base[i] ^ contributions[s, kind[i]]


@kernel
def _xor_at(
    base: UInt32s, kind: Bytes, contributions: UInt32s, which: Int32s, out: UInt32s
) -> None:
    for r in range(which.shape[0]):
        for i in range(len(base)):
            out[r, i] = base[i] ^ contributions[which[r, i], kind[i]]
