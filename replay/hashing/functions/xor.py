"""XOR folds: the key cut into pieces of w bits, all XORed together."""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import UInt32s
from ..keys import KeyBytes

FOLD_BITS = (1, 2, 4, 8, 16, 32)


def fold(keys: KeyBytes, bits: int, seed: int = 0) -> UInt32s:
    """uint32[n]: XOR of all big-endian pieces of `bits` bits and of the seed's low bits.

    The last piece of a key is padded with zero bits. Source: Dell OS9
    `hash-algorithm` (xor1 to xor16), SAI_HASH_ALGORITHM_XOR.
    """
    size = max(1, bits // 8)
    columns = -(-keys.data.shape[1] // size) * size
    padded = np.zeros((len(keys.data), columns), np.uint8)
    padded[:, : keys.data.shape[1]] = keys.data
    pieces = padded.view(f">u{size}").astype(np.uint32)
    value = np.bitwise_xor.reduce(pieces, axis=1, dtype=np.uint32)
    for half in (4, 2, 1):
        if bits <= half:
            value = (value >> np.uint32(half)) ^ (value & np.uint32((1 << half) - 1))
    folded: UInt32s = value ^ np.uint32(seed & ((1 << bits) - 1))
    return folded
