"""Reusable memory for the columns of packet tables."""

from __future__ import annotations

import sys
from collections import namedtuple
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..wire.packets import COLUMNS, PacketTable

if TYPE_CHECKING:
    Columns = PacketTable
else:
    # Kernels take named tuples, not dataclasses.
    Columns = namedtuple("Columns", [c.name for c in COLUMNS])

_STAGGER_BYTES = 576
"""Columns start at different page offsets, otherwise all share a few cache sets."""
_MOST_HELD = 4
"""Buffers that a pool keeps."""


class _Held:
    """A buffer and the columns in it."""

    __slots__ = ("buffer", "columns", "idle", "rows")

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.buffer = np.empty(sum(_aligned(rows * c.dtype.itemsize) for c in COLUMNS), np.uint8)
        arrays: list[NDArray[Any]] = []
        at = 0
        for c in COLUMNS:
            size = rows * c.dtype.itemsize
            arrays.append(self.buffer[at : at + size].view(c.dtype))
            at += _aligned(size)
        self.columns = Columns(*arrays)
        self.idle = self.references()
        """Reference count of the buffer when only this object refers to it."""

    def references(self) -> int:
        return sys.getrefcount(self.buffer)


class ColumnPool:
    """Provides writable columns; reuses their memory when nothing refers to it any longer.

    A table may be kept as long as needed: its memory is reused only after the table and every view
    of its columns are gone, detected by the reference count of the buffer. Not thread-safe.
    """

    def __init__(self) -> None:
        self._held: list[_Held] = []

    def take(self, rows: int) -> Columns:
        """Columns of at least `rows` rows, uninitialised; pass on only those of `table_of`."""
        for held in self._held:
            if held.references() <= held.idle:
                if held.rows >= rows:
                    return held.columns
                self._held.remove(held)
                break
        held = _Held(rows)
        if len(self._held) < _MOST_HELD:
            self._held.append(held)
        return held.columns


def _aligned(size: int) -> int:
    return (size + 63) // 64 * 64 + _STAGGER_BYTES


def table_of(columns: Columns, rows: int) -> PacketTable:
    """The first `rows` rows as a packet table; views, nothing is copied."""
    return PacketTable(*(getattr(columns, c.name)[:rows] for c in COLUMNS))
