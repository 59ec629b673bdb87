"""The messages of a capture one by one: which flow sent what, and when."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..analyzer.kernel import kernel
from ..analyzer.opcodes import (
    BEGINS,
    MRC,
    OPCODE_CLASS,
    RC,
    RD,
    READ_REQUEST,
    REQUEST,
    TRANSPORT_OF,
    XRC,
    opcode_name,
)
from ..analyzer.track.batch import (
    AHEAD,
    IN_ORDER,
    RECOVERED,
    REORDERED,
    RESTARTED,
    TrackedBatch,
)

MOST_LOGGED = 1 << 22
"""Messages kept, about 40 bytes each."""

REQUESTS, RESPONSES = 0, 1
"""What a message is: a SEND, WRITE or atomic, or the data of a READ."""

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

_NEW: Final = sum(1 << v for v in (IN_ORDER, AHEAD, REORDERED, RECOVERED, RESTARTED))


def _kind(opcode: int) -> int:
    """-1 for packets without data, and where nothing would ever be acknowledged (UC, UD)."""
    bits = int(OPCODE_CLASS[opcode])
    if "READ_RESPONSE" in opcode_name(opcode):
        return RESPONSES
    reliable = int(TRANSPORT_OF[opcode]) in (RC, RD, XRC, MRC)
    return REQUESTS if reliable and bits & REQUEST and not bits & READ_REQUEST else -1


_KIND: Final = np.array([_kind(opcode) for opcode in range(256)], np.int8)


class MessageLog:
    """Messages of reliable flows, each packet counted once however often it was sent.

    A packet that is late counts for the message that its flow sends by then.
    """

    def __init__(self, most: int = MOST_LOGGED) -> None:
        self._most = most
        self._log = np.zeros(min(1024, most), LOGGED)
        self._open = np.full(0, -1, np.int64)
        self._used = np.zeros(1, np.int64)
        self.full = False
        """There were more than `most`; what is kept is of no use."""

    @property
    def messages(self) -> NDArray[np.void]:
        """LOGGED records in the order in which they begin, a view."""
        return self._log[: int(self._used[0])]

    def update(self, batch: TrackedBatch) -> None:
        """Log a batch; batches must come in capture order."""
        if 2 * batch.n_flows > len(self._open):
            longer = np.full(4 * batch.n_flows, -1, np.int64)
            longer[: len(self._open)] = self._open
            self._open = longer
        row, table = 0, batch.table
        while row < len(table) and not self.full:
            row = _log_rows(
                batch.flow,
                batch.verdict,
                table.opcode,
                table.wire_bytes,
                table.time_ns,
                row,
                self._open,
                self._log,
                self._used,
            )
            if row < len(table):
                self.full = len(self._log) >= self._most
                if not self.full:
                    longer_log = np.zeros(min(2 * len(self._log), self._most), LOGGED)
                    longer_log[: len(self._log)] = self._log
                    self._log = longer_log


@kernel
def _log_rows(
    flow: Any,
    verdict: Any,
    opcode: Any,
    wire_bytes: Any,
    time_ns: Any,
    row: Any,
    open_: Any,
    log: Any,
    used: Any,
) -> Any:
    """Log rows from `row` on; returns the row for which there is no room.

    len(open_) >= 2 * flows known to the tracker, so flow[row] * 2 + 1 is inside.
    """
    while row < len(flow):
        kind = np.int64(_KIND[opcode[row]])
        if kind < 0 or not (1 << np.int64(verdict[row])) & _NEW:
            row += 1
            continue
        own = np.int64(flow[row]) * 2 + kind
        time = time_ns[row]
        if open_[own] < 0 or np.int64(OPCODE_CLASS[opcode[row]]) & BEGINS:
            if used[0] >= len(log):
                return row
            open_[own] = used[0]
            begun = log[used[0]]
            used[0] += 1
            begun.flow = flow[row]
            begun.kind = kind
            begun.begun_ns = time
            begun.ended_ns = time
        message = log[open_[own]]
        message.packets += 1
        message.wire_bytes += np.int64(wire_bytes[row])
        message.ended_ns = max(message.ended_ns, time)
        row += 1
    return row
