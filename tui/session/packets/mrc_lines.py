"""The headers of an MRC packet as lines of a dissection: Wireshark does not dissect them.

Values come from the decoder (`analyzer/decode/multipath/mrc.py`), with the source of each meaning.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....analyzer.decode.headers.layout import BTH_BYTES
from ....analyzer.decode.multipath import mrc
from ....analyzer.wire.opcodes import MRC_ACK, opcode_name
from ....analyzer.wire.packets import RTX, TS
from .dissect import Line
from .packets import Packets

OURS = "decoded by rocescope"
_MEANING = {column.name: column for column in mrc.MRC_COLUMNS}
_HEX = {
    "entropy": 8, "ev": 8, "virtual_address": 16, "r_key": 8, "psn": 6, "sack_bitmap": 16,
    "port_mask": 8, "timestamp_flags": 4, "spdcid": 4, "dpdcid": 4,
}  # fmt: skip
_WORDS: dict[str, dict[int, str]] = {
    "feedback": {0: "NONE", 1: "SKIP_ONCE", 2: "ALWAYS_SKIP"},
    "operation": {0: "PORT_STATUS_UPDATE", 1: "EV_PROBE"},
    "reason": mrc.NACK_REASONS,
}
_TSETH = (("timestamp", 0, 2), ("timestamp_flags", 2, 2))
_RETH = (("virtual_address", 0, 8), ("r_key", 8, 4))
_HEADERS: dict[str, tuple[int, int, tuple[tuple[str, int, int], ...]]] = {
    "METH": (mrc.METH, 4, (("rqmsn", 0, 2), ("msn", 2, 2))),
    "TSETH": (mrc.TSETH, 4, _TSETH),
    "RETH": (mrc.RETH, 16, _RETH),
    "SETH": (
        mrc.SETH,
        28,
        (
            ("feedback", 1, 1), ("probe_response", 1, 1), ("psn_offset", 2, 2), ("probe_id", 2, 2),
            ("entropy", 4, 4), ("spdcid", 8, 2), ("dpdcid", 10, 2), ("psn", 13, 3),
            ("cc_type", 16, 1), ("mpr", 17, 1), ("sack_offset", 18, 2), ("sack_bitmap", 20, 8),
        ),
    ),
    "CC_STATE": (
        mrc.CC_STATE,
        8,
        (
            ("timestamp", 0, 2), ("ooo_count", 2, 2), ("restore_cwnd", 4, 1),
            ("cwnd_penalty", 4, 1), ("rcvd_bytes", 5, 3),
        ),
    ),
    "NETH": (
        mrc.NETH,
        20,
        (
            ("reason", 2, 1), ("entropy", 4, 4), ("spdcid", 8, 2), ("dpdcid", 10, 2),
            ("psn", 13, 3), ("cc_type", 16, 1), ("timestamp", 18, 2),
        ),
    ),
    "PETH": (
        mrc.PETH,
        16,
        (
            ("probe_id", 4, 2), ("spdcid", 8, 2), ("dpdcid", 10, 2), ("timestamp", 12, 2),
            ("timestamp_flags", 14, 2),
        ),
    ),
    "ERTH": (
        mrc.ERTH,
        16,
        (
            ("operation", 1, 1), ("port_mask", 4, 4), ("timestamp", 12, 2),
            ("timestamp_flags", 14, 2),
        ),
    ),
    "EETH": (mrc.EETH, 36, (("timestamp", 28, 2),)),
}  # fmt: skip
"""Headers in the order after the BTH: bit of `present`, length, and of each field the name,
offset and length."""


def mrc_lines(packets: Packets, row: int) -> list[Line]:
    """The BTH and the following headers of one packet; empty for other transports."""
    table = packets.table
    records = table.mrc
    at = -1 if records is None else int(np.searchsorted(records["row"], row))
    if records is None or at >= len(records) or int(records["row"][at]) != row:
        return []
    record = records[at]
    begin, opcode = int(table.bth_offset[row]), int(table.opcode[row])
    flags = int(packets.table.bth_flags[row])
    lines = [
        Line(f"{opcode_name(opcode)}, {OURS}", 0, begin, begin + BTH_BYTES),
        Line(f"opcode: 0x{opcode:02x} {opcode_name(opcode)}", 1, begin, begin + 1),
        Line(f"destination QP: 0x{int(table.dest_qp[row]):06x}", 1, begin + 5, begin + 8),
        Line(f"RTX (a retransmission): {_yes(flags & RTX)}", 1, begin + 8, begin + 9),
        Line(f"TS (a TSETH follows): {_yes(flags & TS)}", 1, begin + 8, begin + 9),
        Line(f"PSN: 0x{int(table.psn[row]):06x}", 1, begin + 9, begin + 12),
        _field(record, "ev", 0, 0),
    ]
    if record["trimmed"]:
        lines.append(_field(record, "trimmed", 0, 0))
    place = begin + BTH_BYTES
    for name, (bit, size, fields) in _HEADERS.items():
        if not int(record["present"]) & bit:
            continue
        lines.append(Line(f"{name}, {OURS}", 0, place, place + size))
        for field, offset, length in fields:
            unused = "psn_offset" if record["probe_response"] else "probe_id"
            if bit == mrc.SETH and field == unused:  # the same bytes have two meanings
                continue
            lines.append(_field(record, field, place + offset, place + offset + length))
        if bit == mrc.RETH:
            text = f"dma_length: {int(table.dma_length[row])} bytes"
            lines.append(Line(text, 1, place + 12, place + 16))
        place += size
    if opcode == MRC_ACK:
        lines.append(Line(f"AETH, {OURS}: 0x{int(table.aeth[row]):08x}", 0, place, place + 4))
    return lines


def _field(record: Any, name: str, begin: int, end: int) -> Line:
    value, column = int(record[name]), _MEANING[name]
    digits = _HEX.get(name)
    text = f"{name}: 0x{value:0{digits}x}" if digits else f"{name}: {value}"
    word = _WORDS.get(name, {}).get(value)
    told = f" [{column.source}]" if column.source else ""
    return Line(f"{text} {word or ''}".rstrip() + f"  {column.meaning}{told}", 1, begin, end)


def _yes(bit: int) -> str:
    return "yes" if bit else "no"
