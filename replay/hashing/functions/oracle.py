"""The random oracle: an unpredictable value for each key and seed.

It is the reference for real hashes: its imbalance is chance. Keys are digested to 64 bits
once; the digest and the seed go through the finaliser of splitmix64 (Steele, Lea, Flood
2014), twice.
"""

from __future__ import annotations

import hashlib

import numpy as np

from ....kernels.kernel import UInt32s, UInt64s, inlined, kernel
from ..keys import KeyBytes
from ..seeded import Fill


def digests(keys: KeyBytes) -> UInt64s:
    """uint64[n]: a digest of each row (BLAKE2b)."""
    width, data = keys.data.shape[1], keys.data.tobytes()
    joined = b"".join(
        hashlib.blake2b(data[row * width : row * width + length], digest_size=8).digest()
        for row, length in enumerate(keys.lengths.tolist())
    )
    return np.frombuffer(joined, np.uint64)


@inlined
def _mixed(x: np.uint64) -> np.uint64:
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.uint64(x ^ (x >> np.uint64(31)))


@kernel
def oracle(digest: UInt64s, seeds: UInt32s, out: UInt32s) -> None:
    """out[s, i] = the value of digest i under seeds[s]."""
    for s in range(len(seeds)):
        key = _mixed(np.uint64(seeds[s]))
        for i in range(len(digest)):
            out[s, i] = np.uint32(_mixed(digest[i] ^ key) >> np.uint64(32))


@kernel
def oracle_at(digest: UInt64s, seeds: UInt32s, out: UInt32s) -> None:
    """The same with a seed for every value: seeds is uint32[r, n] like out."""
    for r in range(out.shape[0]):
        for i in range(len(digest)):
            key = _mixed(np.uint64(seeds[r, i]))
            out[r, i] = np.uint32(_mixed(digest[i] ^ key) >> np.uint64(32))


def prepare(keys: KeyBytes, prepended: bool) -> Fill:
    """The function of these keys; the place of the seed has no effect."""
    digest = digests(keys)

    def fill(seeds: UInt32s, out: UInt32s) -> None:
        (oracle if seeds.ndim == 1 else oracle_at)(digest, seeds, out)

    return fill
