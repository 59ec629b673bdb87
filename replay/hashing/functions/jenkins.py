"""Bob Jenkins's lookup3, and its halves as switches use them for ECMP.

Source: burtleburtle.net/bob/c/lookup3.c (2006, public domain algorithm); SAI
1.18 "Jenkins hash algorithm": switches take the lower or upper 16 bits.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from ....kernels.kernel import Ints, UInt32s, inlined, kernel
from ..keys import KeyBytes
from ..seeded import Fill

START = 0xDEADBEEF
Triple: TypeAlias = tuple[np.uint32, np.uint32, np.uint32]


@inlined
def _left(x: np.uint32, bits: int) -> np.uint32:
    return np.uint32((x << np.uint32(bits)) | (x >> np.uint32(32 - bits)))


@inlined
def _mix(a: np.uint32, b: np.uint32, c: np.uint32) -> Triple:
    """Between two blocks of twelve bytes."""
    a = np.uint32(a - c) ^ _left(c, 4)
    c = np.uint32(c + b)
    b = np.uint32(b - a) ^ _left(a, 6)
    a = np.uint32(a + c)
    c = np.uint32(c - b) ^ _left(b, 8)
    b = np.uint32(b + a)
    a = np.uint32(a - c) ^ _left(c, 16)
    c = np.uint32(c + b)
    b = np.uint32(b - a) ^ _left(a, 19)
    a = np.uint32(a + c)
    c = np.uint32(c - b) ^ _left(b, 4)
    b = np.uint32(b + a)
    return a, b, c


@inlined
def _final(a: np.uint32, b: np.uint32, c: np.uint32) -> np.uint32:
    """After the last block: the hash."""
    c = np.uint32((c ^ b) - _left(b, 14))
    a = np.uint32((a ^ c) - _left(c, 11))
    b = np.uint32((b ^ a) - _left(a, 25))
    c = np.uint32((c ^ b) - _left(b, 16))
    a = np.uint32((a ^ c) - _left(c, 4))
    b = np.uint32((b ^ a) - _left(a, 14))
    return np.uint32((c ^ b) - _left(b, 24))


@inlined
def jhash_2words(a: np.uint32, b: np.uint32, initval: np.uint32) -> np.uint32:
    """Linux include/linux/jhash.h: lookup3 of two words."""
    start = np.uint32(initval + np.uint32(START + 8))
    return _final(np.uint32(a + start), np.uint32(b + start), start)


@inlined
def _hashlittle(
    words: UInt32s, length: np.int64, i: int, seed: np.uint32, prepended: bool
) -> np.uint32:
    first = seed if prepended else np.uint32(0)
    start = np.uint32(np.uint32(START) + np.uint32(length))
    if not prepended:
        start = np.uint32(start + seed)
    a, b, c = start, start, start
    at = 0
    while length > 12:
        a = np.uint32(a + (words[at, i] ^ first))
        b = np.uint32(b + words[at + 1, i])
        c = np.uint32(c + words[at + 2, i])
        a, b, c = _mix(a, b, c)
        first = np.uint32(0)
        length -= 12
        at += 3
    if length > 0:
        a = np.uint32(a + (words[at, i] ^ first))
        b = np.uint32(b + words[at + 1, i])
        c = np.uint32(c + words[at + 2, i])
        c = _final(a, b, c)
    return c


def words_of(keys: KeyBytes, prepended: bool) -> tuple[UInt32s, Ints]:
    """The rows as `hashlittle` reads them, uint32[words, n], and their lengths.

    `prepended`: with four zero bytes in front, the place of the seed.
    """
    front = 4 if prepended else 0
    size = front + keys.data.shape[1]
    blocks = np.zeros((len(keys.data), -(-size // 12) * 12), np.uint8)
    blocks[:, front:size] = keys.data
    return np.ascontiguousarray(blocks.view("<u4").T), keys.lengths + front


@kernel
def hashlittle(
    words: UInt32s, lengths: Ints, seeds: UInt32s, prepended: bool, out: UInt32s
) -> None:
    """out[r, i] = lookup3's hashlittle of key i, from `words_of`, under seeds[r, i].

    The seed is the start value (`initval`) or, with `prepended`, the first word
    as it lies in memory.
    """
    for r in range(out.shape[0]):
        for i in range(words.shape[1]):
            out[r, i] = _hashlittle(words, lengths[i], i, seeds[r, i], prepended)


def prepare(keys: KeyBytes, prepended: bool) -> Fill:
    """The function of these keys; a prepended seed is four big-endian bytes."""
    words, lengths = words_of(keys, prepended)

    def fill(seeds: UInt32s, out: UInt32s) -> None:
        each = np.broadcast_to(seeds if seeds.ndim == 2 else seeds[:, None], out.shape)
        hashlittle(words, lengths, each.byteswap() if prepended else each, prepended, out)

    return fill
