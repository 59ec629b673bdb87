"""Packet blocks for capture files."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from ...analyzer.wire.packets import I64


@dataclass(frozen=True, slots=True)
class Blocks:
    """Packet blocks in order of time."""

    data: memoryview
    """Their bytes; valid until the next blocks are written."""
    frames: I64
    """Number of blocks of each interface, int64[interfaces]."""

    def split(self, size: int) -> tuple[Blocks, Blocks]:
        """The blocks that begin in the first `size` bytes, and the others."""
        frames, end = np.zeros_like(self.frames), 0
        while end < min(size, len(self.data)):
            block, interface = struct.unpack_from("<4xII", self.data, end)
            end += block
            frames[interface] += 1
        return Blocks(self.data[:end], frames), Blocks(self.data[end:], self.frames - frames)

    def whole(self, size: int) -> Blocks:
        """The whole blocks in the first `size` bytes."""
        frames, end = np.zeros_like(self.frames), 0
        while end + 12 <= size:
            block, interface = struct.unpack_from("<4xII", self.data, end)
            if end + block > size:
                break
            end += block
            frames[interface] += 1
        return Blocks(self.data[:end], frames)
