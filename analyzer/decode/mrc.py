"""Multipath headers: MRC, SRv6 segments, and which header has the entropy value.

They are in a separate table with one record per MRC packet, attached to the packet table, so that
captures without MRC have no cost.

Layouts and how certain each field is: docs/mrc.md. This module follows companion material of MRC
1.0; where implementations disagree, it stores the packet's values and `measures/mrc.py` decides.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...kernels.kernel import (
    Int,
    NamedTuple,
    Record,
    Records,
    UInt64s,
    allocating,
    inlined,
    subkernel,
)
from ..wire import bth as opcodes
from ..wire.bth import MRC, OPCODE_CLASS, REQUEST, TRANSPORT_OF
from ..wire.packets import (
    HAS_RETH,
    I64,
    ROCE_V1,
    TS,
    U8,
    U32,
    VERSION_MASK,
    PacketTable,
    TableArrays,
)
from ..wire.registry import OTHER, SegmentArrays, SegmentLists, has_room, intern
from .headers import (
    BTH_BYTES,
    DESTINATION_OPTIONS,
    HEADER_LENGTH,
    HOP_BY_HOP,
    ICRC_BYTES,
    MAX_EXTENSION_HEADERS,
    ROUTING,
    be16,
    be32,
    be64,
    byte,
)

# SRv6: the remaining segments of a packet as evidence of its path.
#
# The outer IPv6 destination address of a packet holds its path as a carrier of compressed segments
# (uSIDs): a locator block, then one uSID per hop. Each hop shifts its own uSID out and zeros in, so
# a tap sees the remaining ones. A segment routing header (SRH) may hold further segments. The
# number of the list (`wire.registry`) is the packet's `path_evidence`.
#
# Sources: RFC 8754 (SRH), RFC 9800 (compressed SIDs).

U64: TypeAlias = UInt64s

_MAX_SEGMENTS = 16
_RECENT_BITS = 9
_SEGMENT_ROUTING = 4


@inlined
def _first_usid(high: np.uint64, low: np.uint64, block_bits: Int, usid_bits: Int) -> np.uint64:
    """The active uSID of a carrier; block_bits is 8 to 96."""
    if block_bits < 64:
        rest = high << np.uint64(block_bits) | low >> np.uint64(64 - block_bits)
    elif block_bits == 64:
        rest = low
    else:
        rest = low << np.uint64(block_bits - 64)
    return np.uint64(rest >> np.uint64(64 - usid_bits))


@inlined
def _routing_header(data: U8, at: Int, end: Int) -> Int:
    """Position of the complete SRH after the IPv6 header at `at`; -1 without one."""
    protocol, place = byte(data, at + 6), at + 40
    for _ in range(MAX_EXTENSION_HEADERS):
        known = protocol == HOP_BY_HOP or protocol == ROUTING or protocol == DESTINATION_OPTIONS
        if not known or end - place < 8:
            return -1
        length = (byte(data, place + 1) + 1) * 8
        if end - place < length:
            return -1
        if protocol == ROUTING:
            return place if byte(data, place + 2) == _SEGMENT_ROUTING else -1
        protocol = byte(data, place)
        place += length
    return -1


@inlined
def _appended(
    number: Int, high: np.uint64, low: np.uint64, arrays: SegmentArrays, recent: U64
) -> Int:
    """The number of the list `number` with one more segment; OTHER when the table is full.

    recent: uint64[1 << _RECENT_BITS, 4], recent lists: number of the list without its last segment,
    that segment (two halves), its own number.
    """
    h = (low ^ high ^ np.uint64(number)) * np.uint64(0x9E3779B97F4A7C15)
    slot = (h ^ (h >> np.uint64(32))) >> np.uint64(64 - _RECENT_BITS)
    if recent[slot, 2] == low and recent[slot, 1] == high and recent[slot, 0] == np.uint64(number):
        if recent[slot, 3] != 0:
            return np.int64(recent[slot, 3])
    if number == OTHER or not has_room(arrays.segments, 1) or not has_room(arrays.lists, 1):
        return np.int64(OTHER)
    segment = intern(high, low, arrays.segments)
    longer = intern(np.uint64(number), np.uint64(segment), arrays.lists) + 1
    recent[slot, 0] = number
    recent[slot, 1] = high
    recent[slot, 2] = low
    recent[slot, 3] = longer
    return longer


@inlined
def _path_of(
    data: U8, at: Int, end: Int, block_bits: Int, usid_bits: Int, a: SegmentArrays, recent: U64
) -> Int:
    """The number of the segment list of the IPv6 header at `at`; 0 when it has none."""
    if at < 0 or end - at < 40 or byte(data, at) >> 4 != 6:
        return 0
    high, low = be64(data, at + 24), be64(data, at + 32)
    srh = _routing_header(data, at, end)
    if srh < 0:
        if _first_usid(high, low, block_bits, usid_bits) == np.uint64(0):
            return 0  # an ordinary tunnel
        return _appended(0, high, low, a, recent)
    number = _appended(0, high, low, a, recent)
    # Segment list [0] is the last one; `segments left` is the index of the active one.
    held = min(byte(data, srh + 1) * 8 // 16, byte(data, srh + 4) + 1, _MAX_SEGMENTS)
    for i in range(min(byte(data, srh + 3), held) - 1, -1, -1):
        place = srh + 8 + 16 * i
        number = _appended(number, be64(data, place), be64(data, place + 8), a, recent)
    return number


@allocating
def _number_paths(
    data: U8,
    outer_ipv6: I64,
    begin: I64,
    captured: U32,
    block_bits: int,
    usid_bits: int,
    arrays: SegmentArrays,
    out: U32,
) -> None:
    recent = np.zeros((1 << _RECENT_BITS, 4), np.uint64)
    for i in range(len(out)):
        u = np.uint64(i)
        end = begin[u] + np.int64(captured[u])
        out[u] = _path_of(data, outer_ipv6[u], end, block_bits, usid_bits, arrays, recent)


def number_paths(
    lists: SegmentLists, data: U8, outer_ipv6: I64, begin: I64, captured: U32, out: U32
) -> None:
    """Set `path_evidence` of each packet to the number of its segment list.

    outer_ipv6: position in `data` of the outermost IPv6 header, -1 without one;
    begin, captured: start of the inner packet and its captured bytes.
    """
    # A packet adds at most _MAX_SEGMENTS segments and lists; the tables are grown before.
    lists.make_room(_MAX_SEGMENTS * len(out))
    _number_paths(data, outer_ipv6, begin, captured, *lists.usid, lists.arrays, out)


MRC_UDP_PORT = 4971
"""The default port in implementations of MRC 1.0; 4791 is equally common (docs/mrc.md)."""

_UDP_BYTES = 8
_METH, _TSETH, _RETH = BTH_BYTES, BTH_BYTES + 4, BTH_BYTES + 4
_SMALLEST_WRITE = _UDP_BYTES + BTH_BYTES + 4
"""UDP length of a WRITE trimmed after its METH; the trim length of MRC is not public."""
_ONLY, _ONLY_IMMEDIATE = 0xCA, 0xCB

# Bits of `present`.
METH, TSETH, RETH, SETH, CC_STATE, NETH, PETH, ERTH, EETH = (1 << i for i in range(9))

# Values of `feedback` (SETH.m).
NO_FEEDBACK, SKIP_ONCE, ALWAYS_SKIP = range(3)

# Values of `operation` (ERTH.op).
PORT_STATUS_UPDATE, EV_PROBE = range(2)

TRIMMED, TRIMMED_LASTHOP = 0x01, 0x02
NACK_REASONS: Final = {
    TRIMMED: "TRIMMED",
    TRIMMED_LASTHOP: "TRIMMED_LASTHOP",
    0x06: "NO_BITMAP",
    0x07: "NO_PKT_BUFFER",
    0x0A: "NO_RESOURCE",
    0x0B: "PSN_OOR_WINDOW",
    0x19: "UNEXP_EVENT",
}
TIMESTAMP_NS = 128
"""Default resolution of 16-bit timestamps, which wrap after 8.388608 ms."""
RCVD_BYTES_UNIT = 256
MPR_UNIT = 128


class MrcColumn(NamedTuple):
    """A field of an MRC packet and how certain its meaning is."""

    name: str
    dtype: str
    unit: str
    meaning: str
    source: str
    """Its sources, tags as in docs/mrc.md."""


MRC_COLUMNS: Final = (
    MrcColumn("present", "u2", "", "MRC headers decoded, see decode/mrc.py", ""),
    MrcColumn("ev", "u4", "", "entropy value: flow label bits 15..0 << 16 | UDP source port", "MA"),
    MrcColumn("msn", "u2", "", "METH message sequence number", "KS EMU NS3 JS"),
    MrcColumn("rqmsn", "u2", "", "METH receive queue MSN (WRITE with immediate)", "KS EMU NS3 JS"),
    MrcColumn("timestamp", "u2", "128 ns", "timestamp sent or reflected", "CN NS3"),
    MrcColumn("timestamp_flags", "u2", "", "TSR (bit 15) and ftype (bits 3..0)", "EMU NS3"),
    MrcColumn("virtual_address", "u8", "", "RETH virtual address", "KS EMU NS3 JS"),
    MrcColumn("r_key", "u4", "", "RETH R_Key", "KS EMU NS3 JS"),
    MrcColumn("entropy", "u4", "", "entropy value reflected by a SACK or NACK", "KS EMU NS3 JS"),
    MrcColumn(
        "psn", "u4", "", "SACK: the cumulative PSN; NACK: the offending one", "KS EMU NS3 JS"
    ),
    MrcColumn(
        "psn_offset", "i2", "", "SACK: triggering PSN minus the cumulative PSN", "KS EMU NS3 JS"
    ),
    MrcColumn("feedback", "u1", "", "SETH.m: 1 SKIP_ONCE, 2 ALWAYS_SKIP", "KS EMU NS3 JS"),
    MrcColumn("probe_response", "u1", "", "SETH.pr: answers a probe", "KS EMU NS3 JS"),
    MrcColumn("probe_id", "u2", "", "of probes and their responses", "JS CN"),
    MrcColumn("spdcid", "u2", "", "named after UET's PDC ids, content unverified", "EMU"),
    MrcColumn("dpdcid", "u2", "", "named after UET's PDC ids, content unverified", "EMU"),
    MrcColumn("cc_type", "u1", "", "congestion control type: 0 NSCC", "KS EMU NS3 JS"),
    MrcColumn("mpr", "u1", "128 PSNs", "maximum PSN range; 0 unless negotiated", "API EMU"),
    MrcColumn(
        "sack_offset", "i2", "", "first PSN of the bitmap minus the cumulative PSN", "EMU NS3 JS"
    ),
    MrcColumn("sack_bitmap", "u8", "", "received PSNs, bit 0 the first", "EMU NS3"),
    MrcColumn("ooo_count", "u2", "packets", "received above the cumulative PSN", "KS EMU NS3 JS"),
    MrcColumn("restore_cwnd", "u1", "", "CC_STATE restore_cwnd", "KS EMU NS3 JS"),
    MrcColumn("cwnd_penalty", "u1", "", "CC_STATE rcv_cwnd_pen, 0 none to 127", "KS EMU NS3 JS"),
    MrcColumn("rcvd_bytes", "u4", "256 bytes", "running count of the receiver, 24 bits", "EMU NS3"),
    MrcColumn("reason", "u1", "", "NETH nack_reason", "EMU NS3 JS"),
    MrcColumn("operation", "u1", "", "ERTH.op: 0 port status update, 1 EV probe", "EMU JS"),
    MrcColumn("port_mask", "u4", "", "ERTH port_status_mask: bit set = reachable", "API EMU JS"),
    MrcColumn("trimmed", "u1", "", "1 when a switch trimmed the payload", "inferred"),
)
"""The fields of the records, in their order; `row` comes first in MRC_ROW."""

MRC_ROW: Final = np.dtype([("row", "i8"), *((c.name, c.dtype) for c in MRC_COLUMNS)], align=True)
"""One MRC packet: the index of its row in the packet table, then MRC_COLUMNS."""


class MrcRecord(Record):
    """An element of MRC_ROW."""


def _expected_udp_bytes(opcode: int) -> int:
    if opcodes.TRANSPORT_OF[opcode] != opcodes.MRC:
        return 0
    if opcodes.OPCODE_CLASS[opcode] & opcodes.REQUEST:
        return _SMALLEST_WRITE
    return _UDP_BYTES + int(HEADER_LENGTH[opcode]) + ICRC_BYTES


_UDP_LENGTH: Final[U8] = np.array([_expected_udp_bytes(op) for op in range(256)], np.uint8)
"""uint8[256]: UDP length of MRC control packets, minimum of WRITEs; 0 for other opcodes."""
_IS_WRITE: Final[U8] = (
    (opcodes.TRANSPORT_OF == opcodes.MRC) & (opcodes.OPCODE_CLASS & opcodes.REQUEST != 0)
).astype(np.uint8)


@inlined
def plausible(opcode: Int, version: Int, udp_length: Int) -> bool:
    """Whether a BTH with this opcode and TVer in a datagram of this length looks like MRC.

    The lengths distinguish MRC from other uses of the manufacturers' block.
    """
    expected = np.int64(_UDP_LENGTH[opcode])
    if expected == 0 or version != 0:
        return False
    if _IS_WRITE[opcode]:
        return bool(udp_length >= expected)
    return bool(udp_length == expected)


@inlined
def looks_like_mrc(data: U8, udp: Int, end: Int) -> bool:
    """Whether the UDP datagram at `udp` looks like MRC. Reads only before `end`."""
    if end - udp < _UDP_BYTES + BTH_BYTES:
        return False
    bth = udp + _UDP_BYTES
    return plausible(byte(data, bth), byte(data, bth + 1) & VERSION_MASK, be16(data, udp + 4))


@inlined
def _read_request(data: U8, bth: Int, stop: Int, timestamped: bool, out: MrcRecord) -> None:
    """METH, TSETH and RETH of a WRITE."""
    if bth + _METH + 4 <= stop:
        out.present |= METH
        out.rqmsn = be16(data, bth + _METH)
        out.msn = be16(data, bth + _METH + 2)
    reth = bth + _RETH
    if timestamped:
        reth += 4
        if bth + _TSETH + 4 <= stop:
            out.present |= TSETH
            out.timestamp = be16(data, bth + _TSETH)
            out.timestamp_flags = be16(data, bth + _TSETH + 2)
    if reth + 16 <= stop:
        out.present |= RETH
        out.virtual_address = be64(data, reth)
        out.r_key = be32(data, reth + 8)


@inlined
def _signed16(value: Int) -> Int:
    return value - 0x10000 if value & 0x8000 else value


@inlined
def _read_sack(data: U8, at: Int, stop: Int, out: MrcRecord) -> None:
    """SETH, 28 bytes, and CC_STATE, 8 bytes."""
    if at + 28 > stop:
        return
    out.present |= SETH
    out.feedback = (byte(data, at + 1) >> 5) & 3
    out.probe_response = (byte(data, at + 1) >> 1) & 1
    if out.probe_response:
        out.probe_id = be16(data, at + 2)
    else:
        out.psn_offset = _signed16(be16(data, at + 2))
    out.entropy = be32(data, at + 4)
    out.spdcid = be16(data, at + 8)
    out.dpdcid = be16(data, at + 10)
    out.psn = be32(data, at + 12) & 0xFFFFFF
    out.cc_type = byte(data, at + 16) >> 4
    out.mpr = byte(data, at + 17)
    out.sack_offset = _signed16(be16(data, at + 18))
    out.sack_bitmap = be64(data, at + 20)
    if at + 36 > stop:
        return
    out.present |= CC_STATE
    out.timestamp = be16(data, at + 28)
    out.ooo_count = be16(data, at + 30) & 0x7FFF
    out.restore_cwnd = byte(data, at + 32) >> 7
    out.cwnd_penalty = byte(data, at + 32) & 0x7F
    out.rcvd_bytes = be32(data, at + 32) & 0xFFFFFF


@inlined
def _read_control(data: U8, opcode: Int, bth: Int, stop: Int, out: MrcRecord) -> None:
    """The header of a SACK, NACK, probe, endpoint request or endpoint response."""
    at = bth + BTH_BYTES
    if opcode == opcodes.MRC_SACK:
        _read_sack(data, at, stop, out)
    elif opcode == opcodes.MRC_NACK and at + 20 <= stop:
        out.present |= NETH
        out.reason = byte(data, at + 2)
        out.entropy = be32(data, at + 4)
        out.spdcid = be16(data, at + 8)
        out.dpdcid = be16(data, at + 10)
        out.psn = be32(data, at + 12) & 0xFFFFFF
        out.cc_type = byte(data, at + 16) >> 4
        out.timestamp = be16(data, at + 18)
    elif opcode == opcodes.MRC_PROBE and at + 16 <= stop:
        out.present |= PETH
        out.probe_id = be16(data, at + 4)
        out.spdcid = be16(data, at + 8)
        out.dpdcid = be16(data, at + 10)
        out.timestamp = be16(data, at + 12)
        out.timestamp_flags = be16(data, at + 14)
    elif opcode == opcodes.MRC_ENDPOINT_REQUEST and at + 16 <= stop:
        out.present |= ERTH
        out.operation = byte(data, at + 1) & 3
        out.port_mask = be32(data, at + 4)
        out.timestamp = be16(data, at + 12)
        out.timestamp_flags = be16(data, at + 14)
        out.probe_id = be16(data, bth + 10)
    elif opcode == opcodes.MRC_ENDPOINT_RESPONSE and at + 36 <= stop:
        # Implementations place its op at different bits: the probe_id in the PSN identifies the
        # request.
        out.present |= EETH
        out.timestamp = be16(data, at + 28)
        out.probe_id = be16(data, bth + 10)


@subkernel
def _read_rows(
    data: U8, rows: I64, table: TableArrays, base_offset: Int, trimmed_dscp: U8, out: Records
) -> Int:
    """Fill `out` with the MRC packets among `rows`; returns their number.

    Each row has a BTH and, before it, a UDP header within the captured bytes.
    """
    n = 0
    for i in range(len(rows)):
        row = rows[i]
        opcode = np.int64(table.opcode[row])
        begin = table.file_offset[row] - base_offset
        bth = begin + np.int64(table.bth_offset[row])
        udp_length = be16(data, bth - 4)
        flags = np.int64(table.bth_flags[row])
        if not plausible(opcode, flags & VERSION_MASK, udp_length):
            continue
        packet_stop = bth - _UDP_BYTES + udp_length
        stop = min(begin + np.int64(table.captured_bytes[row]), packet_stop)
        record = out[n]
        n += 1
        record.row = row
        label = np.int64(table.flow_label[row]) & 0xFFFF
        record.ev = (label << 16) | np.int64(table.udp_sport[row])
        if _IS_WRITE[opcode]:
            _read_request(data, bth, stop, bool(flags & TS), record)
            headers = np.int64(HEADER_LENGTH[opcode]) + (4 if flags & TS else 0)
            is_only = opcode == _ONLY or opcode == _ONLY_IMMEDIATE
            has_reth = np.int64(table.decode_flags[row]) & HAS_RETH
            if (
                trimmed_dscp[table.traffic_class[row] >> 2]
                or bth + headers > packet_stop
                or (is_only and has_reth and table.payload_bytes[row] < table.dma_length[row])
            ):
                record.trimmed = 1
        elif opcode != opcodes.MRC_ACK:
            _read_control(data, opcode, bth, stop, record)
    return n


def mrc_rows(table: PacketTable, data: U8, base_offset: int, trimmed_dscp: U8) -> Records | None:
    """The MRC packets of a table, MRC_ROW in its order; None without any.

    `data` and `base_offset` belong to the FrameBatch of the table.
    trimmed_dscp: uint8[64], not 0 for the DSCPs that mark trimmed packets.
    """
    rows = np.flatnonzero(
        (opcodes.TRANSPORT_OF[table.opcode] == opcodes.MRC) & (table.decode_flags & ROCE_V1 == 0)
    ).astype(np.int64)
    out = np.zeros(len(rows), MRC_ROW)
    count = _read_rows(data, rows, table.arrays, base_offset, trimmed_dscp, out)
    return out[:count] if count else None


# MRC in SRv6: detects whether the inner or outer header has the entropy value's flow label.
#
# Readers of MRC 1.0 differ. With an inner label of 0 the outer one may apply: a SACK with the
# entropy value of its packet decides.

FlowLabelOf: TypeAlias = Literal["auto", "inner", "outer"]

_MAX_PACKETS = 1 << 16
"""Packets and SACKs of a batch that are compared."""
_MAX_BATCHES = 16
"""Batches without a SACK that matches a packet, until the inner label is chosen."""
_DECIDED_BY = 3
"""The outer label needs this multiple of the matches without it."""


class FlowLabels:
    """Sets the flow label of the outer IPv6 header on MRC packets without one, if it applies."""

    def __init__(self, wanted: FlowLabelOf = "auto") -> None:
        self.outer = None if wanted == "auto" else wanted == "outer"
        """Whether the outer label applies; None while unknown."""
        self._batches = 0
        self._frame: list[I64] = []
        self._label: list[NDArray[np.uint32]] = []

    def see(self, table: PacketTable, data: U8, outer_ipv6: I64) -> None:
        """Apply or ignore the outer labels of a table's packets.

        outer_ipv6: position of the complete outer header in `data` for each row; -1 for none.
        """
        if self.outer is False:
            return
        rows = np.flatnonzero(
            (outer_ipv6 >= 0) & (table.flow_label == 0) & (TRANSPORT_OF[table.opcode] == MRC)
        )
        word = data[outer_ipv6[rows, None] + np.arange(1, 4)].astype(np.uint32)
        label = (word[:, 0] & 15) << 16 | word[:, 1] << 8 | word[:, 2]
        if self.outer:
            table.flow_label[rows] = label
        elif label.any():
            self._frame.append(table.frame_number[rows])
            self._label.append(label)

    def decide(self, table: PacketTable, mrc: NDArray[Any] | None) -> bool:
        """Whether the outer labels of this batch, which are now in the table, apply.

        mrc: its MRC_ROW records, with the entropy values by inner label.
        """
        frames, labels, self._frame, self._label = self._frame, self._label, [], []
        if self.outer is not None or not frames or mrc is None:
            return False
        matched = _matched(table, mrc, np.concatenate(frames), np.concatenate(labels))
        if matched is None:
            self._batches += 1
            if self._batches == _MAX_BATCHES:
                self.outer = False
            return False
        rows, label, self.outer = matched
        if self.outer:
            table.flow_label[rows] = label
        return self.outer


def _matched(
    table: PacketTable, mrc: NDArray[Any], frames: I64, labels: NDArray[np.uint32]
) -> tuple[I64, NDArray[np.uint32], bool] | None:
    """Rows without an inner label, their outer label, and whether SACKs hold it; None: no match."""
    order = np.argsort(frames, kind="stable")
    frames, labels = frames[order], labels[order]
    at = np.minimum(np.searchsorted(frames, table.frame_number[mrc["row"]]), len(frames) - 1)
    known = frames[at] == table.frame_number[mrc["row"]]
    rows, label = mrc["row"][known], labels[at[known]]
    sent = np.flatnonzero(OPCODE_CLASS[table.opcode[rows]] & REQUEST)[:_MAX_PACKETS]
    packet = rows[sent]
    values = dict(
        zip(
            zip(
                table.src[packet].tolist(),
                table.dst[packet].tolist(),
                table.psn[packet].tolist(),
                strict=True,
            ),
            zip(table.udp_sport[packet].tolist(), (label[sent] & 0xFFFF).tolist(), strict=True),
            strict=True,
        )
    )
    sacks = mrc[(mrc["present"] & SETH != 0) & (mrc["probe_response"] == 0)][:_MAX_PACKETS]
    row = sacks["row"]
    about = (sacks["psn"].astype(np.int64) + sacks["psn_offset"]) & 0xFFFFFF
    asked = zip(table.dst[row].tolist(), table.src[row].tolist(), about.tolist(), strict=True)
    outer = inner = 0
    for key, entropy in zip(asked, sacks["entropy"].tolist(), strict=True):
        port, mine = values.get(key, (0, 0))
        if not port or not mine:
            continue
        outer += entropy in (mine << 16 | port, port << 16 | mine)
        inner += entropy in (port, port << 16)
    if not outer and not inner:
        return None
    return rows, label, outer >= _DECIDED_BY * inner
