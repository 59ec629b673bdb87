"""Every extension header field of the rows of a packet table, on demand.

The packet table holds the fields for every analysis; this module reads the others from the frames,
for exports, drill-down and tests. Vectorised, not compiled.

Source: InfiniBand Architecture Specification volume 1, chapter 9.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ....kernels.named import NamedTuple
from ...wire import packets
from ...wire.opcodes import MRC, TRANSPORT_OF
from ...wire.packets import I64, U8, U16, U32, PacketTable, column
from .layout import HEADER_BYTES, TSETH_BYTES, offsets_of

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
