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
from ..hashing.functions.siphash import compress, finish, seeded

SEEDS = 1 << 32
_BLOCK = 1024
"""Seeds per block: their SipHash states fill most of a first-level cache."""


@inlined
def _begin(
    seeds: UInt32s, count: np.int64, v0: UInt64s, v1: UInt64s, v2: UInt64s, v3: UInt64s
) -> None:
    for i in range(count):
        key = np.uint64(seeds[i])
        v0[i], v1[i], v2[i], v3[i] = seeded(key << np.uint64(32) | key)


@inlined
def _absorb(
    word: np.uint64, count: np.int64, v0: UInt64s, v1: UInt64s, v2: UInt64s, v3: UInt64s
) -> None:
    for i in range(count):
        state = (v0[i], v1[i], v2[i], v3[i])
        v0[i], v1[i], v2[i], v3[i] = compress(state, word)


@inlined
def _end(
    count: np.int64, v0: UInt64s, v1: UInt64s, v2: UInt64s, v3: UInt64s, hashes: UInt32s
) -> None:
    for i in range(count):
        hashes[i] = np.uint32(finish((v0[i], v1[i], v2[i], v3[i])))


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
