"""What crosses rooms as columns: batches of frames for the decoder, and tables of packets.

Every source of packets (capture file, eBPF ring, generator, replay) produces a `PacketTable`, and
every measure reads it. A table is a batch: a capture is streamed as many tables of limited length,
in constant memory.

Columns of packets are declared only here; decoding, Arrow export and the documentation take names,
dtypes, units and meanings from `COLUMNS`.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...kernels.kernel import Bytes, Ints, NamedTuple, UInt16s, UInt32s

# Link types (https://www.tcpdump.org/linktypes.html) the decoder understands.
LINKTYPE_ETHERNET = 1
LINKTYPE_RAW = 101
LINKTYPE_LINUX_SLL = 113
LINKTYPE_IPV4 = 228
LINKTYPE_IPV6 = 229
LINKTYPE_LINUX_SLL2 = 276
SUPPORTED_LINK_TYPES = frozenset(
    (
        LINKTYPE_ETHERNET,
        LINKTYPE_RAW,
        LINKTYPE_LINUX_SLL,
        LINKTYPE_IPV4,
        LINKTYPE_IPV6,
        LINKTYPE_LINUX_SLL2,
    )
)


class FrameColumns(NamedTuple):
    """The columns of a `FrameBatch` as one argument of a kernel."""

    offset: Ints
    captured: UInt32s
    wire: UInt32s
    time_ns: Ints
    tap: UInt16s
    link_type: UInt16s


def empty_columns(rows: int) -> FrameColumns:
    """Uninitialised rows for a kernel to fill."""
    types = (np.int64, np.uint32, np.uint32, np.int64, np.uint16, np.uint16)
    return FrameColumns._make(np.empty(rows, t) for t in types)


@dataclass(frozen=True, slots=True)
class FrameBatch:
    """Frames in one byte buffer, in capture order.

    Every `offset[i] + captured[i]` is inside `data`; the source of the batch has checked this, and
    the decoder relies on it.
    """

    data: Bytes
    """The buffer: a mapped file, a decompressed window, a ring buffer."""
    offset: Ints
    """Offset of each frame in `data`, bytes."""
    captured: UInt32s
    """Bytes of each frame that `data` holds."""
    wire: UInt32s
    """Bytes of each frame on the wire, as the capture states them."""
    time_ns: Ints
    """Capture time, nanoseconds since the Unix epoch."""
    tap: UInt16s
    """Vantage point of each frame: index into `Taps`."""
    link_type: UInt16s
    """LINKTYPE_ value of each frame."""
    first_frame_number: int
    """Number of the first frame in its capture, from 1; the rest follow."""
    base_offset: int
    """Position of `data[0]` in the uncompressed capture, bytes."""

    def __len__(self) -> int:
        return len(self.offset)

    @property
    def columns(self) -> FrameColumns:
        """Offsets to link types, for kernels."""
        return FrameColumns._make(getattr(self, name) for name in FrameColumns._fields)


U8: TypeAlias = NDArray[np.uint8]
U16: TypeAlias = NDArray[np.uint16]
U32: TypeAlias = NDArray[np.uint32]
I64: TypeAlias = NDArray[np.int64]

FULL_HOP_LIMITS = (64, 128, 255)
"""Initial hop limits of hosts: no router has forwarded such a packet yet, and a tap that sees one
is on the link of its sender."""


class Column(NamedTuple):
    """Declaration of a column of the packet table."""

    name: str
    dtype: np.dtype[Any]
    unit: str
    meaning: str


def column(dtype: type[np.generic], unit: str, meaning: str) -> Any:
    """A dataclass field with its column's dtype, unit and meaning."""
    return field(metadata={"dtype": np.dtype(dtype), "unit": unit, "meaning": meaning})


def derived(dtype: type[np.generic], unit: str, meaning: str) -> Any:
    """A column derived for tracking, never exported; None in tables without such rows."""
    about = {"dtype": np.dtype(dtype), "unit": unit, "meaning": meaning}
    return field(default=None, metadata=about)


# Bits of the `decode_flags` column.
IPV6 = 0x01  # the network header is IPv6 (or the GRH of RoCEv1)
ROCE_V1 = 0x02  # EtherType 0x8915 with a GRH, no UDP
FIRST_FRAGMENT = (
    0x04  # first IP fragment: the payload continues in later fragments, which are not decoded
)
SNAPPED = 0x08  # the headers of this opcode are truncated
HAS_AETH = 0x10  # `aeth` is valid
HAS_RETH = 0x20  # `dma_length` is valid
HAS_DETH = 0x40  # `src_qp` is valid
LENGTH_MISMATCH = 0x80  # IP, UDP and frame length contradict each other

# Bits of the `icrc_state` column.
ICRC_UNCHECKED, ICRC_OK, ICRC_BAD, ICRC_TRUNCATED = range(4)


@dataclass(frozen=True, slots=True)
class PacketTable:
    """Equally long columns, one row per RoCE packet, in capture order.

    A column is zero when the packet does not have its header; the bits of `decode_flags` mark the
    headers present. Multi-byte header fields are in host byte order.
    """

    time_ns: I64 = column(
        np.int64,
        "ns",
        "time since the Unix epoch: capture time, or the mirror's timestamp with --clock hardware",
    )
    frame_number: I64 = column(np.int64, "", "number of the frame in its capture, from 1")
    file_offset: I64 = column(np.int64, "bytes", "offset of the frame in the uncompressed capture")
    captured_bytes: U32 = column(np.uint32, "bytes", "frame bytes the capture holds")
    wire_bytes: U32 = column(np.uint32, "bytes", "frame bytes on the wire, without FCS")
    payload_bytes: U32 = column(
        np.uint32, "bytes", "bytes after the transport headers, without pad and ICRC"
    )
    tap: U16 = column(np.uint16, "", "index of the vantage point in Taps")
    vlan: U16 = column(np.uint16, "", "tag control information of the innermost VLAN tag")
    src: U32 = column(np.uint32, "", "index of the source address in Endpoints")
    dst: U32 = column(np.uint32, "", "index of the destination address in Endpoints")
    flow_label: U32 = column(np.uint32, "", "IPv6 flow label")
    ip_id: U16 = column(np.uint16, "", "IPv4 identification")
    traffic_class: U8 = column(np.uint8, "", "IPv4 TOS or IPv6 traffic class: DSCP << 2 | ECN")
    hop_limit: U8 = column(np.uint8, "", "IPv4 TTL or IPv6 hop limit")
    udp_sport: U16 = column(np.uint16, "", "UDP source port")
    udp_dport: U16 = column(np.uint16, "", "UDP destination port")
    opcode: U8 = column(np.uint8, "", "BTH opcode")
    decode_flags: U8 = column(np.uint8, "", "decoder flags, see packets.py")
    bth_offset: U16 = column(np.uint16, "bytes", "offset of the BTH in the frame")
    partition_key: U16 = column(np.uint16, "", "BTH partition key")
    bth_flags: U32 = column(
        np.uint32,
        "",
        "BTH bytes 1 (SE, M, pad, version), 4 (FECN, BECN) and 8 (AckReq): b1|b4<<8|b8<<16",
    )
    dest_qp: U32 = column(np.uint32, "", "BTH destination QP number")
    psn: U32 = column(np.uint32, "", "BTH packet sequence number")
    aeth: U32 = column(np.uint32, "", "AETH: syndrome << 24 | message sequence number")
    dma_length: U32 = column(np.uint32, "bytes", "RETH DMA length: size of the whole message")
    src_qp: U32 = column(np.uint32, "", "DETH source QP number")
    path_evidence: U32 = column(np.uint32, "", "number of the SRv6 segment list, 0 for none")
    icrc_state: U8 = column(
        np.uint8, "", "0 not checked, 1 good, 2 bad, 3 frame too short to check"
    )
    mrc: NDArray[np.void] | None = None
    """No column: the MRC packets among the rows, `decode.mrc.MRC_ROW` in ascending order of
    their `row`; None when there are none."""
    grants: NDArray[np.void] | None = None
    """No column: NCCL's clear-to-send packets among the rows, `decode.grants.GRANT_ROW` in
    ascending order of their `row`; None when there are none."""
    answered_psn: U32 | None = derived(
        np.uint32, "", "PSN that a SACK or NACK of MRC refers to; `psn` for other packets"
    )
    fingerprint: U32 | None = derived(
        np.uint32,
        "",
        "24-bit hash of an MRC response: distinguishes copies at several taps from other"
        " responses with the same PSN; 0 for other packets",
    )

    def __len__(self) -> int:
        return len(self.time_ns)

    @property
    def subject_psn(self) -> U32:
        """PSN that each packet refers to: acknowledged PSN of MRC responses, else its own."""
        return self.psn if self.answered_psn is None else self.answered_psn

    @property
    def arrays(self) -> TableArrays:
        """The columns as one argument of a kernel."""
        fingerprint = _NO_FINGERPRINTS if self.fingerprint is None else self.fingerprint
        columns = (a for _, a in self.columns())
        return TableArrays._make([*columns, self.subject_psn, fingerprint])

    def columns(self) -> Iterator[tuple[str, NDArray[Any]]]:
        """(name, array) of every column, in declaration order."""
        for c in COLUMNS:
            yield c.name, getattr(self, c.name)

    @classmethod
    def empty(cls, rows: int) -> Self:
        """A table of `rows` uninitialised rows, to be filled by a decoder."""
        return cls(*(np.empty(rows, c.dtype) for c in COLUMNS))

    @classmethod
    def zeros(cls, rows: int) -> Self:
        """A table of `rows` rows of zeros."""
        return cls(*(np.zeros(rows, c.dtype) for c in COLUMNS))

    def slice(self, start: int, stop: int) -> Self:
        """Rows start..stop as views; nothing is copied."""
        return self._picked(slice(start, stop), lambda records: _within(records, start, stop))

    def take(self, rows: NDArray[Any]) -> Self:
        """The rows selected by an index or boolean array, copied."""
        return self._picked(rows, lambda records: _selected(records, len(self), rows))

    def _picked(self, rows: Any, pick: Callable[[NDArray[np.void]], NDArray[np.void]]) -> Self:
        values: list[Any] = [a[rows] for _, a in self.columns()]
        for name in SIDE_RECORDS:
            records = getattr(self, name)
            picked = None if records is None else pick(records)
            values.append(None if picked is None or not len(picked) else picked)
        values += [None if (a := getattr(self, c.name)) is None else a[rows] for c in DERIVED]
        return type(self)(*values)

    @classmethod
    def concatenate(cls, tables: list[PacketTable]) -> Self:
        """All rows of `tables` in order, copied; without derived columns."""
        columns: list[Any] = [np.concatenate([getattr(t, c.name) for t in tables]) for c in COLUMNS]
        return cls(*columns, *(joined(tables, name) for name in SIDE_RECORDS))


SIDE_RECORDS = ("mrc", "grants")
"""Fields with records of some rows, in their order: structured arrays with an ascending `row`."""


def _within(records: NDArray[np.void], start: int, stop: int) -> NDArray[np.void]:
    """The records of rows start..stop, by their new rows."""
    first, last = np.searchsorted(records["row"], (start, max(start, stop)))
    within = records[first:last].copy()
    within["row"] -= start
    return within


def _selected(records: NDArray[np.void], table_rows: int, rows: NDArray[Any]) -> NDArray[np.void]:
    """The records of the rows that an index or boolean array selects, by their new rows."""
    record_of_row = np.full(table_rows, -1, np.int64)
    record_of_row[records["row"]] = np.arange(len(records))
    record = record_of_row[rows]
    selected = records[record[record >= 0]]
    selected["row"] = np.flatnonzero(record >= 0)
    return selected


def joined(tables: Sequence[PacketTable], name: str) -> NDArray[np.void] | None:
    """The records `name` (of SIDE_RECORDS) of all tables, by rows of the concatenated tables."""
    parts, start = [], 0
    for table in tables:
        records = getattr(table, name)
        if records is not None:
            parts.append(records.copy())
            parts[-1]["row"] += start
        start += len(table)
    return np.concatenate(parts) if parts else None


_DECLARED = [f for f in fields(PacketTable) if f.metadata]
COLUMNS, DERIVED = (
    tuple(Column(f.name, **f.metadata) for f in _DECLARED if (f.default is None) == made)
    for made in (False, True)
)
_NO_FINGERPRINTS = np.zeros(0, np.uint32)

if TYPE_CHECKING:

    class TableArrays(PacketTable):
        """The columns of a packet table and `subject_psn`."""

        fingerprint: U32
        """Empty where the table has none."""

        @classmethod
        def _make(cls, columns: Iterable[NDArray[Any]]) -> Self: ...
        def __iter__(self) -> Iterator[NDArray[Any]]: ...

else:
    # Kernels take named tuples, not dataclasses.
    TableArrays = namedtuple(
        "TableArrays", [*(c.name for c in COLUMNS), "subject_psn", "fingerprint"]
    )

# Masks for `bth_flags`.
SOLICITED_EVENT = 0x80
MIGRATION = 0x40
PAD_COUNT_SHIFT, PAD_COUNT_MASK = 4, 0x3
VERSION_MASK = 0x0F
FECN = 0x80 << 8
BECN = 0x40 << 8
ACK_REQUEST = 0x80 << 16
RTX = 0x20 << 16
"""MRC: the packet is a retransmission."""
TS = 0x10 << 16
"""MRC: a timestamp header (TSETH) follows the METH of a WRITE."""
