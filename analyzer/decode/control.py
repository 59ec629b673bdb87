"""Frames around RoCE traffic: connection management, flow control, Ultra Ethernet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ...kernels.kernel import Int, Ints, NamedTuple, inlined, kernel
from ..results.captures import Pause, PauseSpan
from ..wire.packets import HAS_DETH, I64, U8, PacketTable
from .headers import BTH_BYTES, HEADER_BYTES, be16, be32, byte
from .outcomes import OTHER_ETHERTYPE, PAUSE, TRUNCATED_PAUSE

# Connection management (CM) messages, which connect queue pairs.
#
# They are management datagrams (MAD) of class 7 in UD SENDs to queue pair 1. They are rare, so
# plain Python reads them.
#
# Source: InfiniBand Architecture Specification volume 1, chapters 12 (messages) and 13 (MAD
# header); RDMA IP CM service, annex A11.

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


# Flow control frames: priority flow control (PFC) and global pause.
#
# Source: IEEE 802.3 Annex 31B (pause), 31D and IEEE 802.1Q clause 36 (PFC). A frame sets the pause
# timer of a priority to a number of quanta of 512 bit times; a later frame replaces the timer, and
# time 0 (XON) ends the pause.

GLOBAL_PAUSE_OPCODE = 0x0001
PFC_OPCODE = 0x0101
QUANTUM_BITS = 512
GLOBAL = 8
"""Row of the global pause after the eight priorities."""
N_CLASSES = 9

# Columns of the state array int64[taps, N_CLASSES, N_FIELDS].
(
    FRAMES, XON, QUANTA, PAUSED_NS, BEGAN_NS, ENDS_NS, FIRST_NS, LAST_NS, FIRST_FRAME, LAST_FRAME,
    SPANS, APART_NS, SPAN_NS,
) = range(13)  # fmt: skip
MOST_SPANS = 32
"""Spans of pauses that are kept: begin and end of each from SPAN_NS on."""
N_FIELDS = SPAN_NS + 2 * MOST_SPANS


@kernel
def _add_span(state: I64, begin: Int, end: Int) -> None:
    """Note a pause. Spans closer than APART_NS are one; it doubles until all spans have room."""
    last = SPAN_NS + 2 * state[SPANS] - 1
    if state[SPANS] > 0 and begin <= state[last] + state[APART_NS]:
        state[last] = max(end, begin)
        return
    while state[SPANS] == MOST_SPANS:
        state[APART_NS] = max(2 * state[APART_NS], 1000)
        kept = 1
        for i in range(1, MOST_SPANS):
            at, to = SPAN_NS + 2 * i, SPAN_NS + 2 * kept
            if state[at] <= state[to - 1] + state[APART_NS]:
                state[to - 1] = max(state[to - 1], state[at + 1])
            else:
                state[to], state[to + 1] = state[at], state[at + 1]
                kept += 1
        state[SPANS] = kept
    at = SPAN_NS + 2 * state[SPANS]
    state[at], state[at + 1] = begin, end
    state[SPANS] += 1


@kernel
def _set_timer(
    state: I64, time_ns: Int, frame_number: Int, quanta: Int, bits_per_second: Int
) -> None:
    """Apply one frame to one priority: state is int64[N_FIELDS]."""
    state[FRAMES] += 1
    state[QUANTA] += quanta
    if quanta == 0:
        state[XON] += 1
    elif state[FRAMES] == state[XON] + 1:
        state[FIRST_NS] = state[LAST_NS] = time_ns
        state[FIRST_FRAME] = state[LAST_FRAME] = frame_number
    else:
        if time_ns < state[FIRST_NS]:
            state[FIRST_NS], state[FIRST_FRAME] = time_ns, frame_number
        if time_ns >= state[LAST_NS]:
            state[LAST_NS], state[LAST_FRAME] = time_ns, frame_number
    if bits_per_second <= 0:
        return
    duration_ns = np.int64(quanta * (QUANTUM_BITS * 1e9 / bits_per_second) + 0.5)
    if time_ns >= state[ENDS_NS]:  # the previous pause has expired
        state[PAUSED_NS] += state[ENDS_NS] - state[BEGAN_NS]
        state[BEGAN_NS] = time_ns
    else:  # the pause continues; frames out of time order cannot precede its start
        time_ns = max(time_ns, state[BEGAN_NS])
    if quanta > 0 or time_ns < state[ENDS_NS]:
        _add_span(state, time_ns, time_ns + duration_ns)
    state[ENDS_NS] = time_ns + duration_ns


@kernel
def pause_frame(
    data: U8,
    at: Int,
    end: Int,
    time_ns: Int,
    frame_number: Int,
    state: I64,
    bits_per_second: Int,
) -> Int:
    """Count a MAC control frame with its opcode at `at`; returns the outcome of the frame.

    state: int64[N_CLASSES, N_FIELDS] of the frame's tap; bits_per_second: 0 when unknown.
    """
    if end - at < 2:
        return TRUNCATED_PAUSE
    opcode = be16(data, at)
    if opcode == GLOBAL_PAUSE_OPCODE:
        if end - at < 4:
            return TRUNCATED_PAUSE
        quanta = be16(data, at + 2)
        _set_timer(state[GLOBAL], time_ns, frame_number, quanta, bits_per_second)
        return PAUSE
    if opcode == PFC_OPCODE:
        if end - at < 20:
            return TRUNCATED_PAUSE
        enabled = be16(data, at + 2)
        for priority in range(8):
            if (enabled >> priority) & 1:
                quanta = be16(data, at + 4 + 2 * priority)
                _set_timer(state[priority], time_ns, frame_number, quanta, bits_per_second)
        return PAUSE
    return OTHER_ETHERTYPE


def pauses_of(state: Ints, rate: int) -> list[Pause]:
    """The pauses of one tap: one record per priority with frames.

    state: int64[N_CLASSES, N_FIELDS]; rate: bit/s, 0 when unknown.
    """
    pauses = []
    for row in np.flatnonzero(state[:, FRAMES]).tolist():
        s = state[row].tolist()
        times: tuple[int | None, int | None, int | None, int | None] = (None, None, None, None)
        if s[FRAMES] > s[XON]:
            times = s[FIRST_NS], s[LAST_NS], s[FIRST_FRAME], s[LAST_FRAME]
        edges = s[SPAN_NS : SPAN_NS + 2 * s[SPANS]]
        pauses.append(
            Pause(
                None if row == GLOBAL else row,
                s[FRAMES],
                s[XON],
                s[QUANTA],
                s[PAUSED_NS] + s[ENDS_NS] - s[BEGAN_NS] if rate > 0 else None,
                *times,
                [PauseSpan(*span) for span in zip(edges[::2], edges[1::2], strict=True)],
            )
        )
    return pauses


# Ultra Ethernet: recognised by its UDP port and counted, not tracked.
#
# Source: Ultra Ethernet specification 1.0, packet delivery sublayer (PDS): a prologue of 16 bits
# begins with the type; requests, ACKs and NACKs of the reliable modes have a 32-bit PSN after the
# first four bytes.

TYPE_NAMES: Final = {
    1: "TSS",
    2: "RUD request",
    3: "ROD request",
    4: "RUDI request",
    5: "RUDI response",
    6: "UUD request",
    7: "ACK",
    8: "ACK_CC",
    9: "ACK_CCX",
    10: "NACK",
    11: "control",
    12: "NACK_CCX",
    13: "RUD_CC request",
    14: "ROD_CC request",
}
_REQUESTS = 1 << 2 | 1 << 3 | 1 << 13 | 1 << 14
"""Types with the PSN of the packet itself."""


class UetArrays(NamedTuple):
    """Counters of the Ultra Ethernet packets of a capture."""

    types: I64
    """int64[32]: packets by PDS type."""
    sports: I64
    """int64[65536]: packets by UDP source port, the entropy value."""
    psns: I64
    """int64[2]: lowest and highest PSN of requests; lowest > highest without requests."""
    wire_bytes: I64
    """int64[1]"""


def no_packets() -> UetArrays:
    """Counters at zero."""
    return UetArrays(
        np.zeros(32, np.int64),
        np.zeros(65536, np.int64),
        np.array([1 << 32, -1], np.int64),
        np.zeros(1, np.int64),
    )


@inlined
def count_uet(data: U8, udp: Int, end: Int, wire_bytes: Int, counts: UetArrays) -> bool:
    """Count the packet with its UDP header at `udp`; False when it is truncated."""
    at = udp + 8
    if end - at < 8:
        return False
    kind = byte(data, at) >> 3
    counts.types[kind] += 1
    counts.sports[np.uint64(be16(data, udp))] += 1
    counts.wire_bytes[0] += wire_bytes
    if (_REQUESTS >> kind) & 1:
        psn = be32(data, at + 4)
        counts.psns[0] = min(counts.psns[0], psn)
        counts.psns[1] = max(counts.psns[1], psn)
    return True
