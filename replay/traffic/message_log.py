"""The messages of a capture one by one, and their packets: which flow sent what, and when."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...analyzer.track.batch import (
    AHEAD,
    DUPLICATE,
    IN_ORDER,
    MIRROR_DUPLICATE,
    NOT_SEQUENCED,
    RECOVERED,
    REORDERED,
    RESTARTED,
    RETRANSMITTED,
    TAP_COPY,
    TrackedBatch,
)
from ...analyzer.wire.opcodes import (
    BEGINS,
    OPCODE_CLASS,
    READ_REQUEST,
    REQUEST,
    SEQUENCED,
    opcode_name,
)
from ...kernels.kernel import Array, Int, Int32s, Ints, kernel

MOST_LOGGED = 1 << 22
"""Messages kept, about 40 bytes each."""
MOST_PACKETS_LOGGED = 1 << 24
"""Packets kept, 20 bytes each."""

REQUESTS, RESPONSES, ASKS = 0, 1, 2
"""What a message is: a SEND, WRITE or atomic, the data of a READ, or the request for it."""
KINDS = 3

LOGGED = np.dtype(
    [
        ("flow", "i4"),
        ("kind", "i4"),
        ("packets", "i8"),
        ("wire_bytes", "i8"),
        ("begun_ns", "i8"),
        ("ended_ns", "i8"),
    ]
)
"""One message; begun and ended: times of its first and last packet."""

PACKET = np.dtype([("message", "i4"), ("unit", "i4"), ("time_ns", "i8"), ("wire_bytes", "i4")])
"""One packet of a logged message; unit: its flow and entropy value (`unit_counts`)."""

_NEW: Final = sum(1 << v for v in (IN_ORDER, AHEAD, REORDERED, RECOVERED, RESTARTED))
_AGAIN: Final = 1 << RETRANSMITTED | 1 << DUPLICATE
_COPIES: Final = 1 << TAP_COPY | 1 << MIRROR_DUPLICATE | 1 << DUPLICATE

_MESSAGES, _PACKETS, _FEEDBACK, _SENT_AGAIN = range(4)


def _kind(opcode: int) -> int:
    """-1 for packets that the far end's transport makes by itself: ACKs, NAKs, CNPs, probes."""
    bits = int(OPCODE_CLASS[opcode])
    if "READ_RESPONSE" in opcode_name(opcode):
        return RESPONSES
    if bits & READ_REQUEST:
        return ASKS
    return REQUESTS if bits & REQUEST else -1


_KIND: Final = np.array([_kind(opcode) for opcode in range(256)], np.int8)


class MessageLog:
    """Messages and their packets, each counted once however often it was sent.

    A packet that is late counts for the message that its flow sends by then.
    """

    def __init__(self, most: int = MOST_LOGGED, most_packets: int = MOST_PACKETS_LOGGED) -> None:
        self._most, self._most_packets = most, most_packets
        self._log = np.zeros(min(1024, most), LOGGED)
        self._packets = np.zeros(min(1024, most_packets), PACKET)
        self._open = np.full(0, -1, np.int64)
        self._used = np.zeros(4, np.int64)
        self.full = False
        """There were more than `most`; what is kept is of no use."""

    @property
    def messages(self) -> NDArray[np.void]:
        """LOGGED records in the order in which they begin, a view."""
        return self._log[: int(self._used[_MESSAGES])]

    @property
    def packets(self) -> NDArray[np.void] | None:
        """PACKET records in the order of the capture, a view; None when there were too many."""
        if self._most_packets == 0:
            return None
        return self._packets[: int(self._used[_PACKETS])]

    @property
    def feedback_packets(self) -> int:
        """Packets that are no part of a message."""
        return int(self._used[_FEEDBACK])

    @property
    def sent_again(self) -> int:
        """Retransmitted packets of messages."""
        return int(self._used[_SENT_AGAIN])

    def update(self, batch: TrackedBatch, unit: Int32s) -> None:
        """Log a batch; batches must come in capture order. unit: of each row."""
        if KINDS * batch.n_flows > len(self._open):
            longer = np.full(2 * KINDS * batch.n_flows, -1, np.int64)
            longer[: len(self._open)] = self._open
            self._open = longer
        row: Int
        row, table = 0, batch.table
        while row < len(table) and not self.full:
            row = _log_rows(
                batch.flow,
                batch.verdict,
                table.opcode,
                table.wire_bytes,
                table.time_ns,
                unit,
                row,
                self._open,
                self._log,
                self._packets,
                self._used,
            )
            if row < len(table):
                self._make_room()

    def _make_room(self) -> None:
        if self._used[_MESSAGES] >= len(self._log):
            self.full = len(self._log) >= self._most
            if not self.full:
                self._log = _longer(self._log, self._most)
        if len(self._packets) and self._used[_PACKETS] >= len(self._packets):
            if len(self._packets) >= self._most_packets:
                self._most_packets = 0
                self._packets = np.zeros(0, PACKET)
            else:
                self._packets = _longer(self._packets, self._most_packets)


def _longer(log: NDArray[np.void], most: int) -> NDArray[np.void]:
    longer = np.zeros(min(2 * len(log), most), log.dtype)
    longer[: len(log)] = log
    return longer


@kernel
def _log_rows(
    flow: Array,
    verdict: Array,
    opcode: Array,
    wire_bytes: Array,
    time_ns: Array,
    unit: Array,
    row: Int,
    open_: Array,
    log: NDArray[np.void],
    packets: NDArray[np.void],
    used: Ints,
) -> Int:
    """Log rows from `row` on; returns the row for which there is no room.

    len(open_) >= KINDS * flows known to the tracker. No packets are logged when `packets` is empty.
    """
    while row < len(flow):
        kind = np.int64(_KIND[opcode[row]])
        bits = np.int64(OPCODE_CLASS[opcode[row]])
        seen = np.int64(1) << np.int64(verdict[row])
        unordered = bits & SEQUENCED == 0 and verdict[row] == NOT_SEQUENCED
        if kind < 0 or not (seen & _NEW or unordered):
            if kind < 0 and not seen & _COPIES:
                used[_FEEDBACK] += 1
            elif kind >= 0 and seen & _AGAIN:
                used[_SENT_AGAIN] += 1
            row += 1
            continue
        own = np.int64(flow[row]) * KINDS + kind
        time = time_ns[row]
        if len(packets) and used[_PACKETS] >= len(packets):
            return row
        if open_[own] < 0 or bits & BEGINS:
            if used[_MESSAGES] >= len(log):
                return row
            open_[own] = used[_MESSAGES]
            begun = log[used[_MESSAGES]]
            used[_MESSAGES] += 1
            begun.flow = flow[row]
            begun.kind = kind
            begun.begun_ns = time
            begun.ended_ns = time
        message = log[open_[own]]
        message.packets += 1
        message.wire_bytes += np.int64(wire_bytes[row])
        message.ended_ns = max(message.ended_ns, time)
        if len(packets):
            packet = packets[used[_PACKETS]]
            used[_PACKETS] += 1
            packet.message = open_[own]
            packet.unit = unit[row]
            packet.time_ns = time
            packet.wire_bytes = np.int64(wire_bytes[row])
        row += 1
    return row
