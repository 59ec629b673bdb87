"""The invariant CRC at the end of every RoCE packet.

CRC-32 of IEEE 802.3 over eight bytes of ones, the IP header (or GRH), UDP
header, BTH and all bytes up to the ICRC, with the fields that routers may change set to ones.
Stored least significant byte first.

Source: InfiniBand Architecture Specification volume 1, annex A17 (RoCEv2) and
A16 (RoCEv1). The CRC is sliced by eight (Kounavis and Berry, Intel, 2005).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ....kernels.kernel import Int, inlined, kernel
from ...wire.packets import U8, U32
from .load import byte

SCRATCH_BYTES = 128
"""Size of the masked headers: eight ones, IPv4 with options 60, UDP 8, BTH 12."""


def _tables() -> U32:
    tables = np.zeros((8, 256), np.uint32)
    for i in range(256):
        value = i
        for _ in range(8):
            value = (value >> 1) ^ (0xEDB88320 if value & 1 else 0)
        tables[0, i] = value
    for k in range(1, 8):
        before = tables[k - 1]
        tables[k] = (before >> np.uint32(8)) ^ tables[0, before & np.uint32(0xFF)]
    return tables


TABLES: Final[U32] = _tables()
"""uint32[8, 256]: CRC of a byte followed by 0 to 7 zero bytes."""


@inlined
def _le32(data: U8, at: Int) -> np.uint32:
    i = np.uint64(at)
    return (
        np.uint32(data[i])
        | (np.uint32(data[i + np.uint64(1)]) << np.uint32(8))
        | (np.uint32(data[i + np.uint64(2)]) << np.uint32(16))
        | (np.uint32(data[i + np.uint64(3)]) << np.uint32(24))
    )


@kernel
def crc32_update(crc: np.uint32, data: U8, start: Int, stop: Int) -> np.uint32:
    """The CRC register after data[start:stop]; no initial value, no final complement."""
    eight, low = np.uint32(8), np.uint32(0xFF)
    at = start
    while stop - at >= 8:
        a = np.uint32(crc ^ _le32(data, at))
        b = _le32(data, at + 4)
        crc = (
            TABLES[7, a & low]
            ^ TABLES[6, (a >> eight) & low]
            ^ TABLES[5, (a >> np.uint32(16)) & low]
            ^ TABLES[4, a >> np.uint32(24)]
            ^ TABLES[3, b & low]
            ^ TABLES[2, (b >> eight) & low]
            ^ TABLES[1, (b >> np.uint32(16)) & low]
            ^ TABLES[0, b >> np.uint32(24)]
        )
        at += 8
    while at < stop:
        crc = np.uint32((crc >> eight) ^ TABLES[0, (crc ^ np.uint32(data[np.uint64(at)])) & low])
        at += 1
    return crc


@kernel
def icrc(data: U8, ip: Int, bth: Int, stop: Int, scratch: U8) -> Int:
    """The ICRC of the packet with its IP header (or GRH) at `ip` and its BTH at `bth`.

    `stop` is the position of the ICRC; data[ip:stop] is captured, bth - ip is at
    most 68 and stop - bth at least 12. scratch: uint8[SCRATCH_BYTES].
    """
    for i in range(8):
        scratch[i] = 0xFF
    headers = bth + 12 - ip
    for i in range(headers):
        scratch[8 + i] = data[np.uint64(ip + i)]
    if byte(data, ip) >> 4 == 4:
        scratch[8 + 1] = 0xFF  # TOS
        scratch[8 + 8] = 0xFF  # TTL
        scratch[8 + 10] = 0xFF  # header checksum
        scratch[8 + 11] = 0xFF
        udp = True
    else:
        scratch[8] |= 0x0F  # traffic class and flow label
        for i in range(1, 4):
            scratch[8 + i] = 0xFF
        scratch[8 + 7] = 0xFF  # hop limit
        udp = bth - ip != 40
    if udp:
        scratch[headers - 6] = 0xFF  # UDP checksum, two bytes before the BTH
        scratch[headers - 5] = 0xFF
    scratch[headers] = 0xFF  # BTH byte 4: FECN, BECN and six reserved bits
    crc = crc32_update(np.uint32(0xFFFFFFFF), scratch, 0, 8 + headers)
    crc = crc32_update(crc, data, bth + 12, stop)
    return np.int64(crc ^ np.uint32(0xFFFFFFFF))
