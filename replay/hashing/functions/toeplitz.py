"""Toeplitz, the hash of receive-side scaling.

Source: Microsoft, "RSS hashing functions" and "Verifying the RSS hash
calculation".
"""

from __future__ import annotations

import numpy as np

from ....analyzer.errors import UsageError
from ....kernels.kernel import Bytes, Ints, UInt32s, kernel
from ..keys import KeyBytes

MICROSOFT_KEY = bytes.fromhex(
    "6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa"
)
"""The key of Microsoft's verification suite, the default of many adapters."""
SYMMETRIC_KEY = bytes.fromhex("6d5a") * 20
"""Woo and Park (2012): both directions of a flow hash alike."""


def key_of(text: str) -> bytes:
    """The key named microsoft or symmetric, or given in hexadecimal."""
    if text in ("microsoft", "symmetric"):
        return MICROSOFT_KEY if text == "microsoft" else SYMMETRIC_KEY
    try:
        key = bytes.fromhex(text.replace(":", ""))
    except ValueError:
        key = b""
    if len(key) < 8:
        raise UsageError(f"Toeplitz key {text!r}: use microsoft, symmetric or 8 hex bytes or more")
    return key


def toeplitz(keys: KeyBytes, key: bytes, seed: int = 0) -> UInt32s:
    """uint32[n]: Toeplitz hash of every row, XORed with the seed.

    A key shorter than the row and four bytes is repeated.
    """
    needed = keys.data.shape[1] + 4
    repeated = np.frombuffer(key * -(-needed // len(key)), np.uint8)
    out = np.empty(len(keys.data), np.uint32)
    _toeplitz(keys.data, keys.lengths, repeated, np.uint32(seed & 0xFFFF_FFFF), out)
    return out


@kernel
def _toeplitz(data: Bytes, lengths: Ints, key: Bytes, start: np.uint32, out: UInt32s) -> None:
    for i in range(len(out)):
        value = np.uint64(start)
        window = np.uint64(0)
        for j in range(4):
            window = (window << np.uint64(8)) | np.uint64(key[j])
        for j in range(min(lengths[i], data.shape[1])):
            window = (window << np.uint64(8)) | np.uint64(key[j + 4])
            for bit in range(8):
                if (data[i, j] >> np.uint8(7 - bit)) & np.uint8(1):
                    value ^= (window >> np.uint64(8 - bit)) & np.uint64(0xFFFFFFFF)
        out[i] = np.uint32(value)
