"""Ring memory as the probes lay it out, filled by hand."""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

SIZE = 1 << 14
CHUNK, LARGEST = 1 << 20, 16 + 256


class HandMadeRing:
    """`size` bytes of records from a position on."""

    def __init__(self, start: int, size: int = SIZE) -> None:
        self.bytes = bytearray(size)
        self.tail = self.head = start

    def put(
        self, time_ns: int, wire: int, tap: int, frame: bytes, captured: int | None = None
    ) -> bool:
        """Append a record; False when there is no room."""
        size = len(self.bytes)
        chunk = min(size, CHUNK)
        begin = self.head
        if chunk - begin % chunk < LARGEST:
            begin += chunk - begin % chunk
        length = len(frame) if captured is None else captured
        record = struct.pack("<QIHH", time_ns, wire, length, tap) + frame
        record += b"\xee" * (-len(record) % 8)
        if begin + len(record) - self.tail > size:
            return False
        at = begin % size
        self.bytes[at : at + len(record)] = record
        self.head = begin + len(record)
        return True

    def words(self) -> NDArray[np.uint32]:
        """The memory."""
        return np.frombuffer(bytes(self.bytes), np.uint32)
