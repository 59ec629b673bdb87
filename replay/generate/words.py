"""Numbers in frames and in records of a pcap, for kernels."""

from __future__ import annotations

import numpy as np

from ...kernels.kernel import Bytes, Int, inlined


@inlined
def put(frame: Bytes, at: Int, size: Int, value: Int) -> None:
    """`value` in network byte order."""
    for i in range(size):
        frame[at + i] = np.uint8((value >> (8 * (size - 1 - i))) & 0xFF)


@inlined
def put_word(out: Bytes, at: Int, value: Int) -> None:
    """Four bytes in the byte order of the file."""
    for i in range(4):
        out[at + i] = np.uint8((value >> (8 * i)) & 0xFF)


@inlined
def put_checksum(frame: Bytes, at: Int) -> None:
    """The checksum of the IPv4 header at this byte, which has no options."""
    put(frame, at + 10, 2, 0)
    total = np.int64(0)
    for i in range(at, at + 20, 2):
        total += np.int64(frame[i]) << 8 | np.int64(frame[i + 1])
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    put(frame, at + 10, 2, total ^ 0xFFFF)
