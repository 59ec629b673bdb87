"""The single messages of a capture and their packets."""

from __future__ import annotations

from typing import Final

import numpy as np

from ...analyzer.statistics.per_flow import longer
from ...analyzer.track import batch as verdicts
from ...analyzer.track.batch import Rows, TrackedBatch
from ...analyzer.wire import bth
from ...analyzer.wire.bth import opcode_name
from ...kernels.kernel import Int, Int32s, Ints, Records, subkernel

MOST_LOGGED = 1 << 22
"""Messages kept, about 50 bytes each."""
MOST_PACKETS_LOGGED = 1 << 24
"""Packets kept, 20 bytes each."""

REQUESTS, RESPONSES, ASKS = 0, 1, 2
"""Kinds of messages: a SEND, WRITE or atomic; the data of a READ; the request of a READ."""
KINDS = 3

LOGGED = np.dtype(
    [
        ("flow", "i4"),
        ("kind", "i4"),
        ("packets", "i8"),
        ("payload_bytes", "i8"),
        ("wire_bytes", "i8"),
        ("begun_ns", "i8"),
        ("ended_ns", "i8"),
        ("last_psn", "i8"),
    ]
)
"""One message; begun and ended: times of the first and last packet. last_psn: of its Last or Only
packet, else of its first one."""

PACKET = np.dtype([("message", "i4"), ("unit", "i4"), ("time_ns", "i8"), ("wire_bytes", "i4")])
"""One packet of a logged message; unit: its flow and entropy value (`unit_counts`)."""

_ORDERED: Final = 1 << verdicts.IN_ORDER | 1 << verdicts.AHEAD | 1 << verdicts.REORDERED
_NEW: Final = _ORDERED | 1 << verdicts.RECOVERED | 1 << verdicts.RESTARTED
_AGAIN: Final = 1 << verdicts.RETRANSMITTED | 1 << verdicts.DUPLICATE
_COPIES: Final = 1 << verdicts.TAP_COPY | 1 << verdicts.MIRROR_DUPLICATE | 1 << verdicts.DUPLICATE

_MESSAGES, _PACKETS, _FEEDBACK, _SENT_AGAIN = range(4)


def _kind(opcode: int) -> int:
    """-1 for packets that the transport of the peer generates: ACKs, NAKs, CNPs, probes."""
    bits = int(bth.OPCODE_CLASS[opcode])
    if "READ_RESPONSE" in opcode_name(opcode):
        return RESPONSES
    if bits & bth.READ_REQUEST:
        return ASKS
    return REQUESTS if bits & bth.REQUEST else -1


_KIND: Final = np.array([_kind(opcode) for opcode in range(256)], np.int8)


class MessageLog:
    """Messages and their packets, without retransmissions.

    A late packet counts for the current message of its flow.
    """

    def __init__(self, most: int = MOST_LOGGED, most_packets: int = MOST_PACKETS_LOGGED) -> None:
        self._most, self._most_packets = most, most_packets
        self._log = np.zeros(min(1024, most), LOGGED)
        self._packets = np.zeros(min(1024, most_packets), PACKET)
        self._open = np.full(0, -1, np.int64)
        self._used = np.zeros(4, np.int64)
        self.full = False
        """There were more than `most` messages; the log is then invalid."""

    @property
    def messages(self) -> Records:
        """LOGGED records in the order of their begins, a view."""
        return self._log[: int(self._used[_MESSAGES])]

    @property
    def packets(self) -> Records | None:
        """PACKET records in capture order, a view; None if there were too many."""
        if self._most_packets == 0:
            return None
        return self._packets[: int(self._used[_PACKETS])]

    @property
    def feedback_packets(self) -> int:
        """Packets that are not part of a message."""
        return int(self._used[_FEEDBACK])

    @property
    def sent_again(self) -> int:
        """Retransmitted packets of messages."""
        return int(self._used[_SENT_AGAIN])

    def update(self, batch: TrackedBatch, unit: Int32s) -> None:
        """Log a batch; batches must be in capture order. unit: of each row."""
        if KINDS * batch.n_flows > len(self._open):
            more = np.full(2 * KINDS * batch.n_flows - len(self._open), -1, np.int64)
            self._open = np.concatenate([self._open, more])
        row: Int = 0
        while row < len(batch) and not self.full:
            row = _log_rows(batch.rows, unit, row, self._open, self._log, self._packets, self._used)
            if row < len(batch):
                self._make_room()

    def _make_room(self) -> None:
        if self._used[_MESSAGES] >= len(self._log):
            self.full = len(self._log) >= self._most
            if not self.full:
                self._log = longer(self._log, min(2 * len(self._log), self._most))
        if len(self._packets) and self._used[_PACKETS] >= len(self._packets):
            if len(self._packets) >= self._most_packets:
                self._most_packets = 0
                self._packets = np.zeros(0, PACKET)
            else:
                room = min(2 * len(self._packets), self._most_packets)
                self._packets = longer(self._packets, room)


@subkernel
def _log_rows(
    rows: Rows, unit: Int32s, row: Int, open_: Ints, log: Records, packets: Records, used: Ints
) -> Int:
    """Log rows from `row` on; returns the first row without room.

    len(open_) >= KINDS * flows of the tracker. No packets are logged if `packets` is empty.
    """
    while row < len(rows.flow):
        kind = np.int64(_KIND[rows.opcode[row]])
        bits = np.int64(bth.OPCODE_CLASS[rows.opcode[row]])
        seen = np.int64(1) << np.int64(rows.verdict[row])
        unordered = bits & bth.SEQUENCED == 0 and rows.verdict[row] == verdicts.NOT_SEQUENCED
        if kind < 0 or not (seen & _NEW or unordered):
            if kind < 0 and not seen & _COPIES:
                used[_FEEDBACK] += 1
            elif kind >= 0 and seen & _AGAIN:
                used[_SENT_AGAIN] += 1
            row += 1
            continue
        stream = np.int64(rows.flow[row]) * KINDS + kind
        time = rows.time_ns[row]
        if len(packets) and used[_PACKETS] >= len(packets):
            return row
        if open_[stream] < 0 or bits & bth.BEGINS:
            if used[_MESSAGES] >= len(log):
                return row
            open_[stream] = used[_MESSAGES]
            begun = log[used[_MESSAGES]]
            used[_MESSAGES] += 1
            begun.flow = rows.flow[row]
            begun.kind = kind
            begun.begun_ns = time
            begun.ended_ns = time
            begun.last_psn = np.int64(rows.psn[row])
        message = log[open_[stream]]
        message.packets += 1
        message.payload_bytes += np.int64(rows.payload_bytes[row])
        message.wire_bytes += np.int64(rows.wire_bytes[row])
        message.ended_ns = max(message.ended_ns, time)
        if bits & bth.ENDS:
            message.last_psn = np.int64(rows.psn[row])
        if len(packets):
            packet = packets[used[_PACKETS]]
            used[_PACKETS] += 1
            packet.message = open_[stream]
            packet.unit = unit[row]
            packet.time_ns = time
            packet.wire_bytes = np.int64(rows.wire_bytes[row])
        row += 1
    return row
