"""The memory behind packet tables: allocated once, used again and again."""

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
"""Columns begin at different places of a page, else all of them share a few cache sets."""


class _Held:
    """A buffer and the columns in it."""

    __slots__ = ("buffer", "columns", "idle", "rows")

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.buffer = np.empty(_bytes_for(rows), np.uint8)
        arrays: list[NDArray[Any]] = []
        at = 0
        for c in COLUMNS:
            size = rows * c.dtype.itemsize
            arrays.append(self.buffer[at : at + size].view(c.dtype))
            at += _aligned(size)
        self.columns = Columns(*arrays)
        self.idle = self.references()
        """References to the buffer when nobody but this object has any."""

    def references(self) -> int:
        return sys.getrefcount(self.buffer)


class ColumnPool:
    """Hands out writable columns; takes memory back when nobody refers to it any more.

    A table may be kept for as long as it is needed: its memory is used again
    only once the table and every view of its columns are gone, which the
    reference count of the buffer tells. Not for use by several threads at once.
    """

    def __init__(self, keep: int = 4) -> None:
        self._held: list[_Held] = []
        self._keep = keep

    def take(self, rows: int) -> Columns:
        """Columns of `rows` rows or more, uninitialised: hand on no others than `table_of` does."""
        for held in self._held:
            if held.references() <= held.idle:
                if held.rows >= rows:
                    return held.columns
                self._held.remove(held)
                break
        held = _Held(rows)
        if len(self._held) < self._keep:
            self._held.append(held)
        return held.columns


def _aligned(size: int) -> int:
    return (size + 63) // 64 * 64 + _STAGGER_BYTES


def _bytes_for(rows: int) -> int:
    return sum(_aligned(rows * c.dtype.itemsize) for c in COLUMNS)


def table_of(columns: Columns, rows: int) -> PacketTable:
    """The first `rows` rows as a packet table; views, nothing is copied."""
    return PacketTable(*(getattr(columns, c.name)[:rows] for c in COLUMNS))
