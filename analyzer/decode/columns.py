"""The memory behind packet tables: allocated once, used again and again."""

from __future__ import annotations

import sys
from collections import namedtuple
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..packets import COLUMNS, PacketTable

if TYPE_CHECKING:
    Columns = PacketTable
else:
    # Kernels take named tuples, not dataclasses.
    Columns = namedtuple("Columns", [c.name for c in COLUMNS])

_STAGGER_BYTES = 576
"""Columns begin at different places of a page, else all of them share a few cache sets."""


class ColumnPool:
    """Hands out writable columns; takes memory back when nobody refers to it any more.

    A table may be kept for as long as it is needed: its memory is used again
    only once the table and every view of its columns are gone, which the
    reference count of the buffer tells. Not for use by several threads at once.
    """

    def __init__(self, keep: int = 4) -> None:
        self._buffers: list[NDArray[np.uint8]] = []
        self._keep = keep

    def take(self, rows: int) -> Columns:
        """Columns of `rows` rows, uninitialised."""
        buffer = self._free_buffer(_bytes_for(rows))
        arrays: list[NDArray[Any]] = []
        at = 0
        for c in COLUMNS:
            size = rows * c.dtype.itemsize
            arrays.append(buffer[at : at + size].view(c.dtype))
            at += _aligned(size)
        return Columns(*arrays)

    def _free_buffer(self, size: int) -> NDArray[np.uint8]:
        for position in range(len(self._buffers)):
            buffer = self._buffers[position]
            # Referred to by the list, by `buffer` and by the argument of getrefcount only.
            if sys.getrefcount(buffer) <= 3:
                if len(buffer) >= size:
                    return buffer
                del self._buffers[position]
                break
        buffer = np.empty(size, np.uint8)
        if len(self._buffers) < self._keep:
            self._buffers.append(buffer)
        return buffer


def _aligned(size: int) -> int:
    return (size + 63) // 64 * 64 + _STAGGER_BYTES


def _bytes_for(rows: int) -> int:
    return sum(_aligned(rows * c.dtype.itemsize) for c in COLUMNS)


def table_of(columns: Columns, rows: int) -> PacketTable:
    """The first `rows` rows as a packet table; views, nothing is copied."""
    return PacketTable(*(getattr(columns, c.name)[:rows] for c in COLUMNS))
