"""Seeds of hash functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import numpy as np

from ...analyzer.errors import UsageError
from ...kernels.kernel import Bytes, Int32s, NamedTuple, UInt32s, UInt64s, kernel
from .bound import BoundHash
from .keys import KeyBytes
from .settings import Reduction

# Hashes that are linear in their seed: one table per key, one XOR per seed.
#
# For a CRC, an XOR fold or Toeplitz, hash(seed, key) = hash(0, key) XOR c(seed),
# where c depends only on the length of the key. Keys are hashed once, and hashing
# zeros gives the contribution of each seed bit.

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


Fill: TypeAlias = Callable[[UInt32s, UInt32s], None]
"""Fills uint32[r, n] from seeds: uint32[r], or uint32[r, n] with a seed for every value."""


class Shape:
    """Converts the raw value of a function to the bits that a switch uses."""

    def __init__(self, raw_bits: int, half: str, rotate: int, offset: int) -> None:
        """half: "" all bits, "lo" the lower 16, "hi" the upper 16. UsageError for bad shifts."""
        self._low = 16 if half == "hi" else 0
        self.width = 16 if half else raw_bits
        """Bits before the offset."""
        self._rotate = rotate
        self._offset = offset
        self.bits = self.width - offset
        if not 0 <= rotate < self.width or not 0 <= offset < self.width:
            raise UsageError(
                f"rotate and offset are 0 to {self.width - 1} for a hash of {self.width} bits"
            )

    def apply(self, values: UInt32s, seed: int = 0) -> None:
        """Shape uint32[r, n] in place; the seed is mixed in (XOR) before the rotation."""
        _shape(values, self._low, self.width, np.uint32(seed), self._rotate, self._offset)


class SeededHash(BoundHash):
    """Values of a kernel, shaped afterwards (halves, rotation, offset)."""

    def __init__(self, units: int, fill: Fill, shape: Shape, reduction: Reduction) -> None:
        self.units = units
        self.bits = shape.bits
        self.reduction = reduction
        self._fill = fill
        self._shape = shape

    def fill(self, seeds: UInt64s, out: UInt32s) -> None:
        self._fill(seeds.astype(np.uint32), out)
        self._shape.apply(out)

    def fill_at(self, seeds: UInt64s, which: Int32s, out: UInt32s) -> None:
        self._fill(seeds.astype(np.uint32)[which], out)
        self._shape.apply(out)


@kernel
def _shape(
    values: UInt32s, low: int, width: int, seed: np.uint32, rotate: int, offset: int
) -> None:
    mask = (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    for r in range(values.shape[0]):
        for i in range(values.shape[1]):
            value = ((np.uint64(values[r, i]) >> np.uint64(low)) ^ np.uint64(seed)) & mask
            turned = (value >> np.uint64(rotate)) | (value << np.uint64(width - rotate))
            values[r, i] = np.uint32((turned & mask) >> np.uint64(offset))


# Seeds of all switches of a fabric, derived from one number.

PerSwitch: TypeAlias = Literal["equal", "different"]


class SeedRange(NamedTuple):
    """Seeds first, first + step, ... below end."""

    first: int
    end: int
    step: int = 1

    @property
    def seeds(self) -> int:
        return max(0, -(-(self.end - self.first) // self.step))

    def part(self, begin: int, end: int) -> UInt64s:
        """uint64: the seeds number begin .. end-1."""
        return np.arange(begin, end, dtype=np.uint64) * np.uint64(self.step) + np.uint64(self.first)


def switch_seeds(seeds: UInt64s, switches: int, per_switch: PerSwitch) -> UInt64s:
    """Seeds for `Walk.run`: uint64[rows] when equal, else uint64[rows, switches].

    Different: switch i has the 32 upper bits of number seed * 2^32 + i of the sequence that
    splitmix64 (Steele, Lea, Flood 2014) gives from 0, so a seed always means the same seeds.
    """
    if per_switch == "equal":
        return seeds
    number = np.arange(switches, dtype=np.uint64)
    x: UInt64s = np.add(seeds[:, None] << np.uint64(32), number)
    x = (x + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: UInt64s = (x ^ (x >> np.uint64(31))) >> np.uint64(32)
    return mixed
