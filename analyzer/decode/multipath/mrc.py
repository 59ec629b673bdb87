"""The header fields of MRC (Multipath Reliable Connection).

They are in a separate table with one record per MRC packet, attached to the packet table, so that
captures without MRC have no cost.

Layouts and how certain each field is: docs/mrc.md. This module follows companion material of MRC
1.0; where implementations disagree, it stores the packet's values and `measures/mrc.py` decides.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ....kernels.kernel import Int, Records, inlined, subkernel
from ....kernels.named import NamedTuple
from ...wire import opcodes
from ...wire.packets import HAS_RETH, I64, ROCE_V1, TS, U8, VERSION_MASK, PacketTable, TableArrays
from ...wire.record import Record
from ..headers.layout import BTH_BYTES, HEADER_LENGTH, ICRC_BYTES
from ..headers.load import be16, be32, be64, byte

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
    MrcColumn("present", "u2", "", "MRC headers decoded, see decode/multipath/mrc.py", ""),
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
