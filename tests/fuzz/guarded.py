"""Memory that ends at a page without any right: the first byte read beyond it is a SIGSEGV.

Kernels have no bounds checks. An over-read of ordinary memory finds other bytes and continues.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np

from rocescope.analyzer.capture import source
from rocescope.analyzer.capture.bytestream import MIN_WINDOW_BYTES, ByteStream, Window
from rocescope.analyzer.wire.packets import FrameBatch

PAGE = mmap.PAGESIZE
_NO_RIGHTS = 0
_LIBC = ctypes.CDLL(None, use_errno=True)


def guarded(array: Any) -> Any:
    """A copy of an array of one dimension; the page behind its last byte cannot be read."""
    size = array.nbytes
    whole = -(-size // PAGE) * PAGE
    memory = mmap.mmap(-1, whole + PAGE)
    bytes_of = np.frombuffer(memory, np.uint8)
    behind = ctypes.c_void_p(int(bytes_of.ctypes.data) + whole)
    if _LIBC.mprotect(behind, ctypes.c_size_t(PAGE), _NO_RIGHTS):
        raise OSError(ctypes.get_errno(), "mprotect")
    copy = bytes_of[whole - size : whole].view(array.dtype)
    copy[:] = array
    return copy


def guarded_columns(table: Any) -> Any:
    """A packet table with every column guarded."""
    columns = {
        field.name: guarded(column)
        for field in fields(table)
        if isinstance(column := getattr(table, field.name), np.ndarray) and column.ndim == 1
    }
    return replace(table, **columns)


def frames_alone(frames: FrameBatch) -> Iterator[FrameBatch]:
    """Each frame as a batch whose data end with its last captured byte."""
    for i in range(len(frames)):
        begin = int(frames.offset[i])
        columns = {name: value[i : i + 1] for name, value in frames.columns._asdict().items()}
        yield FrameBatch(
            data=guarded(frames.data[begin : begin + int(frames.captured[i])]),
            **columns | {"offset": np.zeros(1, np.int64)},
            first_frame_number=frames.first_frame_number + i,
            base_offset=frames.base_offset + begin,
        )


class GuardedWindow(Window):
    """A whole stream in guarded memory."""

    def __init__(self, stream: ByteStream, capacity: int) -> None:
        self._stream = stream
        self.capacity = max(capacity, MIN_WINDOW_BYTES)
        parts, buffer = [], bytearray(MIN_WINDOW_BYTES)
        while got := stream.read_into(memoryview(buffer)):
            parts.append(bytes(buffer[:got]))
        self.data = guarded(np.frombuffer(b"".join(parts), np.uint8))
        self.start, self.end, self.base_offset = 0, len(self.data), 0
        self.at_end = True


def guard_captures() -> None:
    """Every capture opened from now on is read into guarded memory."""
    source.Window = GuardedWindow  # type: ignore[misc]
