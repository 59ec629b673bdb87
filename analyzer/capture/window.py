"""A sliding window over a byte stream, in buffers that are reused when nobody looks at them."""

from __future__ import annotations

import sys
import time

import numpy as np
from numpy.typing import NDArray

from .bytestream import ByteStream

MIN_WINDOW_BYTES = 1 << 20
"""Longer than every record or packet block that is believed."""
MAX_WINDOW_BYTES = 1 << 23
MAX_WAIT_SECONDS = 0.5
"""How long a live stream is collected before what has arrived is handed on."""


class Window:
    """The part of a stream that is in memory: `data[start:end]` is not consumed yet."""

    def __init__(self, stream: ByteStream, capacity: int) -> None:
        self._stream = stream
        self.capacity = max(capacity, MIN_WINDOW_BYTES)
        self._buffers: list[NDArray[np.uint8]] = [np.empty(self.capacity, np.uint8)]
        self.data = self._buffers[0]
        self.start = 0
        self.end = 0
        self.base_offset = 0
        """Position of `data[0]` in the stream."""
        self.at_end = False
        """The stream has ended; nothing comes behind `data[end]`."""

    @property
    def position(self) -> int:
        """Position of the first unconsumed byte in the stream."""
        return self.base_offset + self.start

    def ensure(self, count: int) -> bool:
        """Have at least `count` unconsumed bytes, at most the capacity; False when the stream ends.

        Earlier views of `data` stay valid, but offsets move: `data` may be another buffer.
        """
        while self.end - self.start < count:
            if self.at_end:
                return False
            self._slide()
            self._fill()
        return True

    def refill(self) -> None:
        """Slide and read on when less than half of the window is left, unless that may block."""
        if not self._stream.live and not self.at_end:
            if self.end - self.start < self.capacity // 2:
                self._slide()
                self._fill()

    def skip(self, count: int) -> bool:
        """Consume `count` bytes, however many; False when the stream ends before."""
        while count > self.end - self.start:
            count -= self.end - self.start
            self.start = self.end
            if not self.ensure(1):
                return False
        self.start += count
        return True

    def _slide(self) -> None:
        """Move the unconsumed bytes to the front of a buffer nobody else uses."""
        if self.start == 0:
            return
        source = self.data[self.start : self.end]
        target = self._free_buffer()
        target[: len(source)] = source
        self.data = target
        self.base_offset += self.start
        self.end -= self.start
        self.start = 0

    def _free_buffer(self) -> NDArray[np.uint8]:
        # A frame batch refers to its buffer, directly or through a view, so the reference
        # count tells whether a consumer still reads it. Counted here besides consumers: the
        # list, the loop variable, the argument of getrefcount; for the current buffer also
        # self.data and the view `source` of _slide.
        for buffer in self._buffers:
            own = 5 if buffer is self.data else 3
            if sys.getrefcount(buffer) == own:
                return buffer
        fresh = np.empty(self.capacity, np.uint8)
        self._buffers = [*self._buffers[-1:], fresh]
        return fresh

    def _fill(self) -> None:
        view = memoryview(self.data.data)
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
