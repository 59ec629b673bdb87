"""Fields that are decoded on demand: extension headers, and the check of the invariant CRC.

The packet table holds the fields for every analysis; this module reads the others from the frames,
for exports, drill-down and tests. Vectorised, not compiled.

Source: InfiniBand Architecture Specification volume 1, chapter 9.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...kernels.kernel import Int, NamedTuple, inlined, kernel
from ..wire import packets
from ..wire.bth import MRC, TRANSPORT_OF
from ..wire.packets import I64, U8, U16, U32, PacketTable, column
from .headers import HEADER_BYTES, TSETH_BYTES, byte, offsets_of

U64: TypeAlias = NDArray[np.uint64]

# Bits of the `present` column.
RDETH, XRCETH, DETH, RETH, ATOMIC_ETH, AETH, ATOMIC_ACK_ETH, IMM_DT, IETH, FETH = (
    1 << i for i in range(10)
)


@dataclass(frozen=True, slots=True)
class ExtensionTable:
    """Equally long columns, one row per row of the packet table; zero where absent."""

    present: U16 = column(np.uint16, "", "extension headers decoded, see extensions.py")
    rdeth_ee_context: U32 = column(np.uint32, "", "RDETH end-to-end context")
    xrceth_srq: U32 = column(np.uint32, "", "XRCETH shared receive queue number")
    deth_q_key: U32 = column(np.uint32, "", "DETH Q_Key")
    deth_src_qp: U32 = column(np.uint32, "", "DETH source QP number")
    reth_virtual_address: U64 = column(np.uint64, "", "RETH virtual address")
    reth_r_key: U32 = column(np.uint32, "", "RETH R_Key")
    reth_dma_length: U32 = column(np.uint32, "bytes", "RETH DMA length")
    atomic_virtual_address: U64 = column(np.uint64, "", "AtomicETH virtual address")
    atomic_r_key: U32 = column(np.uint32, "", "AtomicETH R_Key")
    atomic_swap_add: U64 = column(np.uint64, "", "AtomicETH swap or add data")
    atomic_compare: U64 = column(np.uint64, "", "AtomicETH compare data")
    aeth_syndrome: U8 = column(np.uint8, "", "AETH syndrome")
    aeth_msn: U32 = column(np.uint32, "", "AETH message sequence number")
    atomic_ack_original: U64 = column(np.uint64, "", "AtomicAckETH original remote data")
    immediate: U32 = column(np.uint32, "", "ImmDt immediate data")
    invalidate_r_key: U32 = column(np.uint32, "", "IETH R_Key to invalidate")
    flush_placement: U8 = column(
        np.uint8, "", "FETH placement type: bit 0 visibility, 1 persistence"
    )
    flush_selectivity: U8 = column(np.uint8, "", "FETH selectivity: 0 range, 1 memory region")

    def __len__(self) -> int:
        return len(self.present)


class _Field(NamedTuple):
    name: str
    at: int
    length: int
    shift: int = 0
    mask: int = 0xFFFF_FFFF_FFFF_FFFF


# Header: its presence bit, the packet table's bit for it if any, and its fields.
_HEADERS: Final[dict[str, tuple[int, int, tuple[_Field, ...]]]] = {
    "RDETH": (RDETH, 0, (_Field("rdeth_ee_context", 1, 3),)),
    "XRCETH": (XRCETH, 0, (_Field("xrceth_srq", 1, 3),)),
    "DETH": (DETH, packets.HAS_DETH, (_Field("deth_q_key", 0, 4), _Field("deth_src_qp", 5, 3))),
    "RETH": (
        RETH,
        packets.HAS_RETH,
        (
            _Field("reth_virtual_address", 0, 8),
            _Field("reth_r_key", 8, 4),
            _Field("reth_dma_length", 12, 4),
        ),
    ),
    "AtomicETH": (
        ATOMIC_ETH,
        0,
        (
            _Field("atomic_virtual_address", 0, 8),
            _Field("atomic_r_key", 8, 4),
            _Field("atomic_swap_add", 12, 8),
            _Field("atomic_compare", 20, 8),
        ),
    ),
    "AETH": (AETH, packets.HAS_AETH, (_Field("aeth_syndrome", 0, 1), _Field("aeth_msn", 1, 3))),
    "AtomicAckETH": (ATOMIC_ACK_ETH, 0, (_Field("atomic_ack_original", 0, 8),)),
    "ImmDt": (IMM_DT, 0, (_Field("immediate", 0, 4),)),
    "IETH": (IETH, 0, (_Field("invalidate_r_key", 0, 4),)),
    "FETH": (
        FETH,
        0,
        (
            _Field("flush_placement", 0, 4, 0, 0xF),
            _Field("flush_selectivity", 0, 4, 4, 0x3),
        ),
    ),
}


_BEHIND_TSETH: Final = ("RETH", "ImmDt")


def decode_extensions(table: PacketTable, data: U8, base_offset: int) -> ExtensionTable:
    """The extension headers of `table`, decoded from frames in `data`.

    `data` and `base_offset` belong to the FrameBatch of the rows: the frame of a row starts at
    data[file_offset - base_offset].
    """
    arrays: dict[str, NDArray[Any]] = {
        f.name: np.zeros(len(table), f.metadata["dtype"]) for f in fields(ExtensionTable)
    }
    bth = table.file_offset - base_offset + table.bth_offset
    stop = _readable_end(table, data, bth)
    stamped = (table.bth_flags & packets.TS != 0) & (TRANSPORT_OF[table.opcode] == MRC)
    for header, (bit, table_bit, members) in _HEADERS.items():
        offset = offsets_of(header)[table.opcode].astype(np.int64)
        if header in _BEHIND_TSETH:
            offset += np.where((offset != 0) & stamped, TSETH_BYTES, 0)
        present = (offset != 0) & (bth + offset + HEADER_BYTES[header] <= stop)
        if table_bit:
            present &= table.decode_flags & table_bit != 0
        rows = np.flatnonzero(present)
        if not len(rows):
            continue
        arrays["present"][rows] |= bit
        begin = bth[rows] + offset[rows]
        for f in members:
            value = _number(data, begin + f.at, f.length)
            arrays[f.name][rows] = value >> np.uint64(f.shift) & np.uint64(f.mask)
    return ExtensionTable(**arrays)


def _number(data: U8, at: I64, length: int) -> U64:
    """`length` bytes from each position, most significant first."""
    value = np.zeros(len(at), np.uint64)
    for i in range(length):
        value = value << np.uint64(8) | data[at + i]
    return value


def _readable_end(table: PacketTable, data: U8, bth: I64) -> I64:
    """End of the captured bytes and of the packet (without Ethernet padding) of each row."""
    v1 = table.decode_flags & packets.ROCE_V1 != 0
    # The UDP length, which includes 8 bytes of UDP header, or the GRH's payload length.
    length_at = np.where(v1, bth - 36, bth - 4)
    stop = bth + _number(data, length_at, 2).astype(np.int64) - np.where(v1, 0, 8)
    captured: I64 = bth - table.bth_offset + table.captured_bytes
    return np.minimum(stop, captured)


# The invariant CRC at the end of every RoCE packet.
#
# CRC-32 of IEEE 802.3 over eight bytes of ones, the IP header (or GRH), UDP header, BTH and all
# bytes up to the ICRC, with the fields that routers may change set to ones. Stored least
# significant byte first.
#
# Source: InfiniBand Architecture Specification volume 1, annex A17 (RoCEv2) and A16 (RoCEv1). The
# CRC is sliced by eight (Kounavis and Berry, Intel, 2005).

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
