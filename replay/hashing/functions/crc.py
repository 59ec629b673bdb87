"""Cyclic redundancy checks that switches hash with.

Parameters and names: the "Catalogue of parametrised CRC algorithms" (reveng);
which of them switches offer: Broadcom SDK (RTAG7 hash functions), SAI
(sai_hash_algorithm_t), Dell OS9 `hash-algorithm`.
"""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Bytes, Int, Ints, UInt32s, kernel
from ....kernels.named import NamedTuple
from ..keys import KeyBytes


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
