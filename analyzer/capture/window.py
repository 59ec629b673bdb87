"""A sliding window over a byte stream, in buffers that are reused when no view refers to them."""

from __future__ import annotations

import time
import weakref

import numpy as np
from numpy.typing import NDArray

from .bytestream import ByteStream

MIN_WINDOW_BYTES = 1 << 20
"""Larger than every plausible record or packet block."""
MAX_WINDOW_BYTES = 1 << 22
"""Two windows and the decoded columns fit the last-level cache; larger windows are slower."""
MAX_WAIT_SECONDS = 0.5
"""Longest time that bytes of a live stream are collected before they are passed on."""


class _Buffer:
    """Memory lent out as arrays; detects whether an array is still alive."""

    def __init__(self, capacity: int) -> None:
        self.memory = np.empty(capacity, np.uint8)
        self._lent: weakref.ref[NDArray[np.uint8]] | None = None

    def lend(self) -> NDArray[np.uint8]:
        """An array of the whole memory; slices of it refer to this array and keep it alive."""
        lent: NDArray[np.uint8] = np.frombuffer(self.memory.data, np.uint8)
        self._lent = weakref.ref(lent)
        return lent

    def free(self) -> bool:
        """Whether no array refers to the memory any longer."""
        return self._lent is None or self._lent() is None


class Window:
    """The part of a stream in memory: `data[start:end]` is not consumed yet."""

    def __init__(self, stream: ByteStream, capacity: int) -> None:
        self._stream = stream
        self.capacity = max(capacity, MIN_WINDOW_BYTES)
        self._buffer = _Buffer(self.capacity)
        self._other: _Buffer | None = None
        self.data = self._buffer.lend()
        self.start = 0
        self.end = 0
        self.base_offset = 0
        """Position of `data[0]` in the stream."""
        self.at_end = False
        """The stream has ended at `data[end]`."""

    @property
    def position(self) -> int:
        """Position of the first unconsumed byte in the stream."""
        return self.base_offset + self.start

    def ensure(self, count: int) -> bool:
        """Provide `count` unconsumed bytes, at most the capacity; False when the stream ends.

        Earlier views of `data` stay valid, but offsets change: `data` may be another buffer.
        """
        while self.end - self.start < count:
            if self.at_end:
                return False
            self._slide()
            self._fill()
        return True

    def refill(self) -> None:
        """Slide and read more when less than half of the window is left, unless that may block."""
        if not self._stream.live and not self.at_end:
            if self.end - self.start < self.capacity // 2:
                self._slide()
                self._fill()

    def skip(self, count: int) -> bool:
        """Consume any number of bytes; False when the stream ends before."""
        while count > self.end - self.start:
            count -= self.end - self.start
            self.start = self.end
            if not self.ensure(1):
                return False
        self.start += count
        return True

    def _slide(self) -> None:
        """Move the unconsumed bytes to the front, in another buffer if this one is in use."""
        if self.start == 0:
            return
        rest = self._buffer.memory[self.start : self.end]
        del self.data
        if not self._buffer.free():
            spare = self._other
            self._other = self._buffer
            self._buffer = spare if spare and spare.free() else _Buffer(self.capacity)
        self._buffer.memory[: len(rest)] = rest
        self.data = self._buffer.lend()
        self.base_offset += self.start
        self.end -= self.start
        self.start = 0

    def _fill(self) -> None:
        view = self._buffer.memory.data
        began = time.monotonic()
        while self.end < self.capacity:
            got = self._stream.read_into(view[self.end :])
            if not got:
                self.at_end = True
                return
            self.end += got
            if self._stream.live and (
                self._stream.silent() or time.monotonic() - began > MAX_WAIT_SECONDS
            ):
                return
