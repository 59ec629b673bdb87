"""NCCL's clear-to-send packets, called grants: which rank shall send, how much, and how often.

The receiver of a connection of NCCL's (or RCCL's) InfiniBand transport writes one row of a table in
the memory of its sender for each buffer that is free: an RC WRITE ONLY of 1 to 8 entries, one for
each receive of a group. Rows have 8 entries and are written in turn. The records are in a separate
table, attached to the packet table, so that captures without grants have no cost.

NCCL has no magic number there. A packet is a grant if its length and all of its captured bytes fit
one of LAYOUTS, with the tests that NCCL's sender itself makes before it uses an entry. No complete
packet fits two layouts. Where bytes are cut off, no rank is read that another layout could put
elsewhere.

Source: `struct ncclIbSendFifo` in NCCL's src/transport/net_ib.cc, and the machine code of 2.19.3,
2.24.3, 2.25.1 and 2.30.4.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ...kernels.kernel import Int, Ints, NamedTuple, Record, Records, inlined, subkernel
from ..wire.packets import HAS_RETH, I64, U8, PacketTable, TableArrays
from .headers import BTH_BYTES, byte

WRITE_ONLY = 0x0A
"""RC WRITE ONLY without immediate."""
_RETH_BYTES = 16
_MOST_ENTRIES = 8
"""NCCL_NET_IB_MAX_RECVS"""
_ALIGNMENT = 32
"""Of the sender's table, in bytes."""


class Layout(NamedTuple):
    """An entry of a grant, little-endian; positions in bytes. All other bytes are 0."""

    versions: str
    entry_bytes: int
    size_bytes: int
    """Of the field `size`, after the 8 bytes of `addr`."""
    rkeys: int
    """Number of `rkeys`, after `size`: one for each device that NCCL may merge, unused ones 0."""
    nreqs: int
    """Position of the number of entries."""
    tag: int
    """Position of the rank."""
    idx: int
    """Position of the number of the message."""


LAYOUTS: Final = (
    Layout("2.12 to 2.19", 32, 4, 1, 16, 20, 24),
    Layout("2.20 to 2.23", 64, 4, 2, 20, 24, 32),
    Layout("2.24 to 2.29", 64, 8, 4, 32, 36, 40),
    Layout("2.30", 64, 8, 8, 48, 52, 56),
)
"""`layout` of a record is an index of it plus 1."""
_LAYOUTS: Final[Ints] = np.array([layout[1:] for layout in LAYOUTS], np.int64)

MOST_GRANT_BYTES: Final = _MOST_ENTRIES * max(layout.entry_bytes for layout in LAYOUTS)

# Values that no real grant exceeds.
_ADDRESS_BITS = 57
_MOST_SIZE = 1 << 40  # of one message, NCCL_MAX_NET_SIZE_BYTES
_MOST_RANKS = 1 << 20
_MOST_MESSAGES = 1 << 40

# Values of `reason`: why a grant has no rank.
RANK_KNOWN, CUT, SEVERAL_RANKS = range(3)
REASONS: Final = (
    "",
    "grants are cut: capture at least 128 bytes of each frame, with IPv6 160",
    "a grouped receive from several ranks",
)


class GrantColumn(NamedTuple):
    """A field of a grant."""

    name: str
    dtype: str
    unit: str
    meaning: str
    unknown: int
    """The value of a grant that does not tell it."""


GRANT_COLUMNS: Final = (
    GrantColumn("rank", "i4", "", "rank that shall send: of the destination", -1),
    GrantColumn("slot_bytes", "i8", "bytes", "size of the buffer, of the first if several", -1),
    GrantColumn("number", "i8", "", "number of the message of its connection, from 1", 0),
    GrantColumn("entries", "u1", "", "buffers of a grouped receive, 1 without a group", 0),
    GrantColumn("layout", "u1", "", "1 NCCL 2.12, 2 NCCL 2.20, 3 NCCL 2.24, 4 NCCL 2.30", 0),
    GrantColumn("reason", "u1", "", "without a rank: 1 cut off, 2 several ranks", 0),
)
"""The fields of the records, in their order; `row` comes first in GRANT_ROW."""
GRANT_COLUMN: Final = {column.name: column for column in GRANT_COLUMNS}

GRANT_ROW: Final = np.dtype(
    [("row", "i8"), *((c.name, c.dtype) for c in GRANT_COLUMNS)], align=True
)
"""One grant: the index of its row in the packet table, then GRANT_COLUMNS."""


class GrantRecord(Record):
    """An element of GRANT_ROW."""


@inlined
def _le32(data: U8, at: Int) -> Int:
    return (
        byte(data, at)
        | (byte(data, at + 1) << 8)
        | (byte(data, at + 2) << 16)
        | (byte(data, at + 3) << 24)
    )


@inlined
def _le64(data: U8, at: Int) -> Int:
    """At most 2**63 - 1; greater values are -1."""
    high = _le32(data, at + 4)
    return -1 if high >> 31 else (high << 32) | _le32(data, at)


@inlined
def _is_address(data: U8, at: Int) -> bool:
    address = _le64(data, at)
    return bool(address > 0 and address >> _ADDRESS_BITS == 0)


@subkernel
def _fits(data: U8, at: Int, held: Int, entries: Int, layout: Ints) -> bool:
    """Whether an entry at `at`, of which `held` bytes are captured, has this layout."""
    size_bytes, rkeys, nreqs, tag, idx = layout[1], layout[2], layout[3], layout[4], layout[5]
    if held < 8:
        return True
    if not _is_address(data, at):
        return False
    if held >= 8 + size_bytes:
        size = _le64(data, at + 8) if size_bytes == 8 else _le32(data, at + 8)
        if size < 0 or size > (_MOST_SIZE if size_bytes == 8 else 0x7FFFFFFF):
            return False
    used = True
    for i in range(rkeys):
        place = 8 + size_bytes + 4 * i
        if held >= place + 4:
            key = _le32(data, at + place)
            if (key != 0 and not used) or (key == 0 and i == 0):
                return False
            used = key != 0
    if held >= nreqs + 4 and _le32(data, at + nreqs) != entries:
        return False
    if held >= tag + 4 and _le32(data, at + tag) >= _MOST_RANKS:
        return False
    if held >= idx + 8:
        number = _le64(data, at + idx)
        if number < 1 or number > _MOST_MESSAGES:
            return False
    for place in range(tag + 4, min(held, layout[0])):
        if (place < idx or place >= idx + 8) and byte(data, at + place) != 0:
            return False
    return True


@subkernel
def _all_fit(data: U8, body: Int, stop: Int, entries: Int, layout: Ints) -> bool:
    """Whether all captured bytes of a packet have this layout."""
    idx = layout[5]
    for i in range(entries):
        at = body + i * layout[0]
        if not _fits(data, at, stop - at, entries, layout):
            return False
        if stop - at >= idx + 8 and _le64(data, at + idx) != _le64(data, body + idx):
            return False
    return True


@subkernel
def _fill(data: U8, body: Int, stop: Int, entries: Int, layout: Ints, out: Any) -> None:
    """The fields of a packet with this layout."""
    size_bytes, tag, idx = layout[1], layout[4], layout[5]
    out.entries = entries
    if stop - body >= 8 + size_bytes:
        out.slot_bytes = _le64(data, body + 8) if size_bytes == 8 else _le32(data, body + 8)
    if stop - body >= idx + 8:
        out.number = _le64(data, body + idx)
    last = body + (entries - 1) * layout[0]
    if stop - last < tag + 4:
        return
    rank = _le32(data, body + tag)
    out.reason = RANK_KNOWN
    for i in range(1, entries):
        if _le32(data, body + i * layout[0] + tag) != rank:
            out.reason = SEVERAL_RANKS
    if out.reason == RANK_KNOWN:
        out.rank = rank


@subkernel
def _read_rows(
    data: U8, rows: I64, table: TableArrays, base_offset: Int, layouts: Ints, out: Records
) -> Int:
    """Fill `out` with the grants among `rows`, RC WRITE ONLY with a RETH; returns their number."""
    n = 0
    for i in range(len(rows)):
        row = rows[i]
        begin = table.file_offset[row] - base_offset
        reth = begin + np.int64(table.bth_offset[row]) + BTH_BYTES
        length = np.int64(table.payload_bytes[row])
        body = reth + _RETH_BYTES
        stop = min(begin + np.int64(table.captured_bytes[row]), body + length)
        if stop - body < 8 or byte(data, reth + 7) % _ALIGNMENT != 0 or not _is_address(data, body):
            continue
        fitting, layout = 0, 0
        for k in range(len(layouts)):
            entries = length // layouts[k, 0]
            whole = entries * layouts[k, 0] == length and 1 <= entries <= _MOST_ENTRIES
            if whole and _all_fit(data, body, stop, entries, layouts[k]):
                fitting += 1
                layout = k
        if fitting == 0:
            continue
        record = out[n]
        n += 1
        record.row = row
        record.rank = -1
        record.slot_bytes = -1
        record.number = 0
        record.entries = 0
        record.layout = 0
        record.reason = CUT
        if fitting == 1:
            record.layout = layout + 1
            entries = length // layouts[layout, 0]
            _fill(data, body, stop, entries, layouts[layout], record)
    return n


def grant_rows(table: PacketTable, data: U8, base_offset: int) -> Records | None:
    """The grants of a table, GRANT_ROW in its order; None without any.

    `data` and `base_offset` belong to the FrameBatch of the table.
    """
    rows = np.flatnonzero(
        (table.opcode == WRITE_ONLY)
        & (table.decode_flags & HAS_RETH != 0)
        & (table.dma_length <= MOST_GRANT_BYTES)
        & (table.payload_bytes == table.dma_length)
    )
    out = np.empty(len(rows), GRANT_ROW)
    count = _read_rows(data, rows, table.arrays, base_offset, _LAYOUTS, out)
    return out[:count] if count else None
