"""Connection management (CM) messages, which connect queue pairs.

They are management datagrams (MAD) of class 7 in UD SENDs to queue pair 1.
They are rare, so plain Python reads them.

Source: InfiniBand Architecture Specification volume 1, chapters 12 (messages)
and 13 (MAD header); RDMA IP CM service, annex A11.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ...wire.packets import HAS_DETH, U8, PacketTable
from .layout import BTH_BYTES, HEADER_BYTES

KINDS: Final = {
    0x0010: "REQ",
    0x0011: "MRA",
    0x0012: "REJ",
    0x0013: "REP",
    0x0014: "RTU",
    0x0015: "DREQ",
    0x0016: "DREP",
    0x0017: "SIDR_REQ",
    0x0018: "SIDR_REP",
    0x0019: "LAP",
    0x001A: "APR",
}
"""Names of the messages by MAD AttributeID."""

UD_SEND_ONLY = 0x64
GENERAL_SERVICES_QP = 1
CM_CLASS = 0x07
MAD_OFFSET = BTH_BYTES + HEADER_BYTES["DETH"]
MAD_HEADER_BYTES = 24
MAD_BYTES = 256
REQ_TRANSPORTS: Final = ("RC", "UC", "RD", "XRC")


@dataclass(frozen=True, slots=True)
class CmMessage:
    """One CM message. A field is None if its kind has no such field or the capture truncates it.

    `starting_psn` is the PSN at which the PEER begins to send to this message's `qpn`.
    """

    time_ns: int
    frame_number: int
    tap: int
    src: int
    """Index of the sender in Endpoints."""
    dst: int
    kind: str
    """One of KINDS, or `0x....` for another attribute of the CM class."""
    transaction_id: int | None
    local_comm_id: int | None = None
    remote_comm_id: int | None = None
    service_id: int | None = None
    """REQ and SIDR_REQ: service id; rdma_cm: 0x1060000 + TCP port."""
    qpn: int | None = None
    """The sender's queue pair (REQ, REP, SIDR_REP); the receiver's in a DREQ."""
    starting_psn: int | None = None
    transport: str | None = None
    """REQ: RC, UC, RD or XRC."""
    path_mtu: int | None = None
    """REQ: bytes."""
    flow_label: int | None = None
    """REQ: IPv6 flow label of the primary path, the source of the UDP source port."""
    partition_key: int | None = None
    responder_resources: int | None = None
    q_key: int | None = None
    """SIDR_REP: the Q_Key of its queue pair."""
    reason: int | None = None
    """REJ: reason code; SIDR_REP: status."""
    rejected: int | None = None
    """REJ: the message it rejects: 0 REQ, 1 REP, 2 another."""


class _Bytes:
    """Big-endian numbers of a possibly truncated message: None beyond its end."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def number(self, at: int, length: int) -> int | None:
        piece = self._data[at : at + length]
        return int.from_bytes(piece, "big") if len(piece) == length else None

    def bits(self, at: int, length: int, shift: int, mask: int) -> int | None:
        value = self.number(at, length)
        return None if value is None else value >> shift & mask


def cm_messages(table: PacketTable, data: U8, base_offset: int) -> list[CmMessage]:
    """The CM messages among the rows of a table, in its order.

    `data` and `base_offset` belong to the FrameBatch of the table.
    """
    rows = np.flatnonzero(
        (table.opcode == UD_SEND_ONLY)
        & (table.dest_qp == GENERAL_SERVICES_QP)
        & (table.decode_flags & HAS_DETH != 0)
    )
    messages = []
    for row in rows:
        begin = int(table.file_offset[row]) - base_offset
        mad_at = begin + int(table.bth_offset[row]) + MAD_OFFSET
        stop = min(
            begin + int(table.captured_bytes[row]),
            mad_at + min(int(table.payload_bytes[row]), MAD_BYTES),
        )
        message = _parse(bytes(data[mad_at:stop]), table, int(row))
        if message is not None:
            messages.append(message)
    return messages


def _parse(mad: bytes, table: PacketTable, row: int) -> CmMessage | None:
    if len(mad) < MAD_HEADER_BYTES or mad[1] != CM_CLASS:
        return None
    attribute = int.from_bytes(mad[16:18], "big")
    kind = KINDS.get(attribute, f"0x{attribute:04x}")
    body = _Bytes(mad[MAD_HEADER_BYTES:])
    return CmMessage(
        time_ns=int(table.time_ns[row]),
        frame_number=int(table.frame_number[row]),
        tap=int(table.tap[row]),
        src=int(table.src[row]),
        dst=int(table.dst[row]),
        kind=kind,
        transaction_id=int.from_bytes(mad[8:16], "big"),
        **_fields(kind, body),
    )


def _fields(kind: str, body: _Bytes) -> dict[str, Any]:
    if kind == "REQ":
        transport = body.bits(43, 1, 1, 0x3)
        mtu = body.bits(50, 1, 4, 0xF)
        return {
            "local_comm_id": body.number(0, 4),
            "service_id": body.number(8, 8),
            "qpn": body.number(32, 3),
            "responder_resources": body.number(35, 1),
            "transport": None if transport is None else REQ_TRANSPORTS[transport],
            "starting_psn": body.number(44, 3),
            "partition_key": body.number(48, 2),
            "path_mtu": 128 << mtu if mtu is not None and 1 <= mtu <= 5 else None,
            "flow_label": body.bits(88, 4, 12, 0xFFFFF),
        }
    if kind in ("SIDR_REQ", "SIDR_REP"):
        request_id = body.number(0, 4)
        if kind == "SIDR_REQ":
            return {
                "local_comm_id": request_id,
                "partition_key": body.number(4, 2),
                "service_id": body.number(8, 8),
            }
        return {
            "remote_comm_id": request_id,
            "reason": body.number(4, 1),
            "qpn": body.number(8, 3),
            "service_id": body.number(12, 8),
            "q_key": body.number(20, 4),
        }
    fields: dict[str, Any] = {
        "local_comm_id": body.number(0, 4),
        "remote_comm_id": body.number(4, 4),
    }
    if kind == "REP":
        fields |= {
            "qpn": body.number(12, 3),
            "starting_psn": body.number(20, 3),
            "responder_resources": body.number(24, 1),
        }
    elif kind == "DREQ":
        fields["qpn"] = body.number(8, 3)
    elif kind == "REJ":
        fields |= {"rejected": body.bits(8, 1, 6, 0x3), "reason": body.number(10, 2)}
    return fields
