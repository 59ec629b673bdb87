"""Hashes that are not linear in their seed: every seed needs new values."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from ...analyzer.errors import UsageError
from ...kernels.kernel import Int32s, UInt32s, UInt64s, kernel
from .bound import BoundHash
from .settings import Reduction

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
