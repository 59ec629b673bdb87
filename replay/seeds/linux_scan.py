"""The search for a Linux router's hash seed among all 2^32.

A router with `fib_multipath_hash_policy` selects next hops with SipHash-2-4; both
64-bit halves of the key are the 32-bit seed twice. Seeds are tried in blocks: one
flow is hashed with all seeds of a block at once (the loops over a block become
vector instructions), the seeds that place the flow elsewhere are dropped, and the
next flow is hashed with the remaining seeds. With k next hops a seed costs about
1 + 1/k + 1/k^2 + ... hashes.
"""

from __future__ import annotations

import numpy as np

from ...kernels.kernel import UInt32s, UInt64s, inlined, kernel

SEEDS = 1 << 32
_BLOCK = 1024
"""Seeds per block: their SipHash states fill most of a first-level cache."""


@inlined
def _rotated(x: np.uint64, bits: int) -> np.uint64:
    return np.uint64((x << np.uint64(bits)) | (x >> np.uint64(64 - bits)))


@inlined
def _round(
    a: np.uint64, b: np.uint64, c: np.uint64, d: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    """One SipRound on the state a, b, c, d (v0 to v3)."""
    a = a + b
    c = c + d
    b = _rotated(b, 13) ^ a
    d = _rotated(d, 16) ^ c
    a = _rotated(a, 32)
    c = c + b
    a = a + d
    b = _rotated(b, 17) ^ c
    d = _rotated(d, 21) ^ a
    c = _rotated(c, 32)
    return a, b, c, d


@inlined
def _begin(
    seeds: UInt32s, count: np.int64, v0: UInt64s, v1: UInt64s, v2: UInt64s, v3: UInt64s
) -> None:
    for i in range(count):
        key = np.uint64(seeds[i])
        key |= key << np.uint64(32)
        v0[i] = key ^ np.uint64(0x736F6D6570736575)
        v1[i] = key ^ np.uint64(0x646F72616E646F6D)
        v2[i] = key ^ np.uint64(0x6C7967656E657261)
        v3[i] = key ^ np.uint64(0x7465646279746573)


@inlined
def _absorb(
    word: np.uint64, count: np.int64, v0: UInt64s, v1: UInt64s, v2: UInt64s, v3: UInt64s
) -> None:
    for i in range(count):
        a, b, c, d = _round(v0[i], v1[i], v2[i], v3[i] ^ word)
        a, b, c, d = _round(a, b, c, d)
        v0[i] = a ^ word
        v1[i] = b
        v2[i] = c
        v3[i] = d


@inlined
def _end(
    count: np.int64, v0: UInt64s, v1: UInt64s, v2: UInt64s, v3: UInt64s, hashes: UInt32s
) -> None:
    for i in range(count):
        a, b, c, d = v0[i], v1[i], v2[i] ^ np.uint64(0xFF), v3[i]
        for _ in range(4):
            a, b, c, d = _round(a, b, c, d)
        hashes[i] = np.uint32((a ^ b ^ c ^ d) & np.uint64(0xFFFFFFFF))


@kernel
def scan_linux(
    first: int, count: int, words: UInt64s, low: UInt32s, high: UInt32s, found: UInt32s
) -> int:
    """The number of seeds in first .. first+count-1 that place every flow where it was captured.

    `words` u64[flows, w]: the hashed bytes as little-endian words, the last word
    with the length in its top byte (SipHash's padding). low .. high: range of the
    multipath value (hash >> 1) for the link of each flow. The first seeds go to `found`.
    """
    v0 = np.empty(_BLOCK, np.uint64)
    v1 = np.empty(_BLOCK, np.uint64)
    v2 = np.empty(_BLOCK, np.uint64)
    v3 = np.empty(_BLOCK, np.uint64)
    seeds = np.empty(_BLOCK, np.uint32)
    hashes = np.empty(_BLOCK, np.uint32)
    fitting = 0
    for begin in range(0, count, _BLOCK):
        left = np.int64(min(_BLOCK, count - begin))
        for i in range(left):
            seeds[i] = np.uint32(first + begin + i)
        for flow in range(words.shape[0]):
            _begin(seeds, left, v0, v1, v2, v3)
            for w in range(words.shape[1]):
                _absorb(words[flow, w], left, v0, v1, v2, v3)
            _end(left, v0, v1, v2, v3, hashes)
            kept = np.int64(0)
            lowest, width = low[flow], high[flow] - low[flow]
            for i in range(left):
                # The kernel turns a hash of 0 into 1; both have the multipath value 0.
                value = hashes[i] >> np.uint32(1)
                seeds[kept] = seeds[i]  # kept <= i: nothing unread is overwritten
                kept += np.int64(np.uint32(value - lowest) <= width)
            left = kept
            if left == 0:
                break
        for i in range(left):
            if fitting < len(found):
                found[fitting] = seeds[i]
            fitting += 1
    return fitting
