"""Ring memory as the kernel lays it out, filled by hand."""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

SIZE = 1 << 14
BUSY, DISCARDED = 1 << 31, 1 << 30


class HandMadeRing:
    """`size` bytes of records from a position on."""

    def __init__(self, start: int, size: int = SIZE) -> None:
        self.bytes = bytearray(size)
        self.consumer = self.producer = start

    def put(
        self,
        length: int,
        flags: int,
        time_ns: int,
        wire: int,
        captured: int,
        tap: int,
        frame: bytes = b"",
    ) -> bool:
        """Append a record; False when there is no room."""
        total = (8 + length + 7) // 8 * 8
        size = len(self.bytes)
        if self.producer + total - self.consumer > size:
            return False
        record = struct.pack("<II", length | flags, 0)
        record += struct.pack("<QIHH", time_ns, wire, captured, tap)
        record += frame.ljust(length - 16, b"\xee")
        for i, value in enumerate(record):
            self.bytes[(self.producer + i) % size] = value
        self.producer += total
        return True

    def mapped(self) -> NDArray[np.uint8]:
        """The memory twice in a row, as a map of the ring shows it."""
        return np.frombuffer(bytes(self.bytes) * 2, np.uint8)
