"""Big-endian loads from a byte array, for kernels.

The index is unsigned so that numba emits no test for negative indices; LLVM
then merges the byte loads into one unaligned load with a byte swap. Results
are int64 (uint64 for eight bytes), so that no mix of signedness turns into
float64. The caller has checked that all bytes lie inside the frame.
"""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Int, inlined
from ...wire.packets import U8


@inlined
def byte(data: U8, at: Int) -> Int:
    return np.int64(data[np.uint64(at)])


@inlined
def be16(data: U8, at: Int) -> Int:
    """Two bytes, most significant first."""
    i = np.uint64(at)
    return (np.int64(data[i]) << 8) | np.int64(data[i + np.uint64(1)])


@inlined
def be32(data: U8, at: Int) -> Int:
    """Four bytes, most significant first."""
    i = np.uint64(at)
    value = (
        (np.uint32(data[i]) << np.uint32(24))
        | (np.uint32(data[i + np.uint64(1)]) << np.uint32(16))
        | (np.uint32(data[i + np.uint64(2)]) << np.uint32(8))
        | np.uint32(data[i + np.uint64(3)])
    )
    return np.int64(np.uint32(value))


@inlined
def be64(data: U8, at: Int) -> np.uint64:
    """Eight bytes, most significant first, as uint64."""
    i = np.uint64(at)
    return (
        (np.uint64(data[i]) << np.uint64(56))
        | (np.uint64(data[i + np.uint64(1)]) << np.uint64(48))
        | (np.uint64(data[i + np.uint64(2)]) << np.uint64(40))
        | (np.uint64(data[i + np.uint64(3)]) << np.uint64(32))
        | (np.uint64(data[i + np.uint64(4)]) << np.uint64(24))
        | (np.uint64(data[i + np.uint64(5)]) << np.uint64(16))
        | (np.uint64(data[i + np.uint64(6)]) << np.uint64(8))
        | np.uint64(data[i + np.uint64(7)])
    )
