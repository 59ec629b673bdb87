"""Hash functions of switches: CRC, FNV, Jenkins, Toeplitz, XOR."""

from __future__ import annotations

import hashlib
from typing import TypeAlias

import numpy as np

from ...analyzer.errors import UsageError
from ...kernels.kernel import Bytes, Int, Ints, NamedTuple, UInt32s, UInt64s, inlined, kernel
from .keys import KeyBytes
from .seeded import Fill

# Cyclic redundancy checks that switches hash with.
#
# Parameters and names: the "Catalogue of parametrised CRC algorithms" (reveng);
# which of them switches offer: Broadcom SDK (RTAG7 hash functions), SAI
# (sai_hash_algorithm_t), Dell OS9 `hash-algorithm`.


class Crc(NamedTuple):
    """One parametrised CRC."""

    bits: int
    polynomial: int
    """The polynomial, highest bit first, without the leading 1."""
    start: int
    """Initial register; a seed is XORed into it."""
    reflected: bool
    """Bytes and register are read lowest bit first."""
    end: int
    """XORed into the final register."""


CRC16_CCITT = Crc(16, 0x1021, 0, False, 0)
"""CRC-16/XMODEM; with a start value of 0xffff it is CRC-16/IBM-3740 ("CCITT-FALSE")."""
CRC16_BISYNC = Crc(16, 0x8005, 0, True, 0)
"""CRC-16/ARC, also called IBM or BISYNC."""
CRC32 = Crc(32, 0x04C11DB7, 0xFFFF_FFFF, True, 0xFFFF_FFFF)
"""CRC-32/ISO-HDLC, the CRC of Ethernet."""
CRC32C = Crc(32, 0x1EDC6F41, 0xFFFF_FFFF, True, 0xFFFF_FFFF)
"""CRC-32/ISCSI (Castagnoli)."""


def crc(parameters: Crc, keys: KeyBytes, seed: int = 0) -> UInt32s:
    """uint32[n]: the CRC of every row; the seed is XORed into the initial register."""
    p = parameters
    start = (p.start ^ seed) & ((1 << p.bits) - 1)
    out = np.empty(len(keys.data), np.uint32)
    run = _reflected if p.reflected else _straight
    run(keys.data, keys.lengths, _table(p), np.uint32(start), np.uint32(p.end), p.bits, out)
    return out


def _table(p: Crc) -> UInt32s:
    """uint32[256]: effect of a byte on the register."""
    mask = (1 << p.bits) - 1
    backwards = int(f"{p.polynomial:0{p.bits}b}"[::-1], 2)
    table = []
    for byte in range(256):
        register = byte if p.reflected else byte << (p.bits - 8)
        for _ in range(8):
            if p.reflected:
                register = (register >> 1) ^ (backwards if register & 1 else 0)
            else:
                top = register >> (p.bits - 1)
                register = ((register << 1) & mask) ^ (p.polynomial if top else 0)
        table.append(register)
    return np.array(table, np.uint32)


@kernel
def _reflected(
    data: Bytes, lengths: Ints, table: UInt32s, start: Int, end: Int, bits: Int, out: UInt32s
) -> None:
    for i in range(len(out)):
        register = start
        for j in range(min(lengths[i], data.shape[1])):
            at = (register ^ np.uint32(data[i, j])) & np.uint32(0xFF)
            register = (register >> np.uint32(8)) ^ table[at]
        out[i] = register ^ end


@kernel
def _straight(
    data: Bytes, lengths: Ints, table: UInt32s, start: Int, end: Int, bits: Int, out: UInt32s
) -> None:
    mask = np.uint32((np.uint64(1) << np.uint64(bits)) - np.uint64(1))
    for i in range(len(out)):
        register = start
        for j in range(min(lengths[i], data.shape[1])):
            at = ((register >> np.uint32(bits - 8)) ^ np.uint32(data[i, j])) & np.uint32(0xFF)
            register = ((register << np.uint32(8)) & mask) ^ table[at]
        out[i] = register ^ end


# FNV-1a, 32 bits. Source: Fowler, Noll, Vo; RFC 9923.

OFFSET_BASIS = 0x811C9DC5
_PRIME = 0x01000193


@inlined
def _absorb(value: np.uint32, byte: np.uint32) -> np.uint32:
    return np.uint32((value ^ byte) * np.uint32(_PRIME))


@inlined
def _fnv1a(data: Bytes, length: np.int64, i: int, seed: np.uint32, prepended: bool) -> np.uint32:
    value = np.uint32(OFFSET_BASIS)
    if prepended:
        for shift in (24, 16, 8, 0):
            value = _absorb(value, (seed >> np.uint32(shift)) & np.uint32(0xFF))
    else:
        value ^= seed
    for j in range(length):
        value = _absorb(value, np.uint32(data[j, i]))
    return value


@kernel
def fnv1a(data: Bytes, lengths: Ints, seeds: UInt32s, prepended: bool, out: UInt32s) -> None:
    """out[r, i] = FNV-1a of column i under seeds[r, i]: uint8[L, n], int64[n], at most L.

    The seed is XORed into the offset basis or is four big-endian bytes in front.
    """
    for r in range(out.shape[0]):
        for i in range(data.shape[1]):
            out[r, i] = _fnv1a(data, lengths[i], i, seeds[r, i], prepended)


def prepare_fnv1a(keys: KeyBytes, prepended: bool) -> Fill:
    """The function of these keys, to be given seeds."""
    columns = np.ascontiguousarray(keys.data.T)

    def fill(seeds: UInt32s, out: UInt32s) -> None:
        each = np.broadcast_to(seeds if seeds.ndim == 2 else seeds[:, None], out.shape)
        fnv1a(columns, keys.lengths, each, prepended, out)

    return fill


# Bob Jenkins's lookup3, and its halves as switches use them for ECMP.
#
# Source: burtleburtle.net/bob/c/lookup3.c (2006, public domain algorithm); SAI
# 1.18 "Jenkins hash algorithm": switches take the lower or upper 16 bits.

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


def prepare_jenkins(keys: KeyBytes, prepended: bool) -> Fill:
    """The function of these keys; a prepended seed is four big-endian bytes."""
    words, lengths = words_of(keys, prepended)

    def fill(seeds: UInt32s, out: UInt32s) -> None:
        each = np.broadcast_to(seeds if seeds.ndim == 2 else seeds[:, None], out.shape)
        hashlittle(words, lengths, each.byteswap() if prepended else each, prepended, out)

    return fill


# Toeplitz, the hash of receive-side scaling.
#
# Source: Microsoft, "RSS hashing functions" and "Verifying the RSS hash
# calculation".

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


# XOR folds: the key cut into pieces of w bits, all XORed together.

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


# The random oracle: an unpredictable value for each key and seed.
#
# It is the reference for real hashes: its imbalance is chance. Keys are digested to 64 bits
# once; the digest and the seed go through the finaliser of splitmix64 (Steele, Lea, Flood
# 2014), twice.


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


def prepare_oracle(keys: KeyBytes, prepended: bool) -> Fill:
    """The function of these keys; the place of the seed has no effect."""
    digest = digests(keys)

    def fill(seeds: UInt32s, out: UInt32s) -> None:
        (oracle if seeds.ndim == 1 else oracle_at)(digest, seeds, out)

    return fill
