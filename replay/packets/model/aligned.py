"""Arrays aligned to cache lines: a row of eight numbers is in one line, not in two."""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Array, Ints

_LINE_BYTES = 64


def aligned(rows: int, columns: int, value: int = 0) -> Ints:
    """int64[rows, columns] filled with a value, its memory aligned to cache lines."""
    size = rows * columns * 8
    room = np.empty(size + _LINE_BYTES, np.uint8)
    skip = -room.ctypes.data % _LINE_BYTES
    table: Array = room[skip : skip + size].view(np.int64).reshape(rows, columns)
    table[:] = value
    return table
