"""When messages were acknowledged, as the first tap saw it."""

from __future__ import annotations

import numpy as np

from ...analyzer.track import batch as verdicts
from ...analyzer.track.batch import TrackedBatch
from ...analyzer.wire import opcodes
from ...analyzer.wire.packets import HAS_AETH
from ...analyzer.wire.psn import unwrapped
from ...kernels.kernel import Array, Int32s, Ints, Records

MOST_ACKS = 1 << 22
"""ACKs kept, 16 bytes each."""
_ACK = np.dtype([("time_ns", "i8"), ("flow", "i4"), ("psn", "u4")])


class AckTimes:
    """Positive ACKs of all flows."""

    def __init__(self, most: int = MOST_ACKS) -> None:
        self._most, self._count = most, 0
        self._parts: list[Records] = []
        self.full = False
        """Too many: no times are known."""

    def update(self, batch: TrackedBatch) -> None:
        """Take the ACKs of a batch, first copies only."""
        table = batch.table
        bits = opcodes.OPCODE_CLASS[table.opcode]
        positive = (table.aeth >> 24) & opcodes.SYNDROME_KIND_MASK == opcodes.SYNDROME_ACK
        own = (bits & opcodes.ACKNOWLEDGE != 0) & (table.decode_flags & HAS_AETH != 0) & positive
        rows = np.flatnonzero(own & (batch.verdict == verdicts.NOT_SEQUENCED))
        self.full |= self._count + len(rows) > self._most
        if self.full:
            self._parts = []
            return
        part = np.zeros(len(rows), _ACK)
        part["time_ns"], part["flow"] = table.time_ns[rows], batch.flow[rows]
        part["psn"] = table.psn[rows]
        self._parts.append(part)
        self._count += len(rows)

    def of(self, flow: Int32s, last_psn: Array, peer: Int32s) -> Ints:
        """int64[messages]: first ACK of each message, by its flow and last PSN; -1: not seen.

        Messages are sorted by flow and begin. peer: by flow, -1 for none."""
        acked = np.full(len(flow), -1, np.int64)
        if self.full or not self._parts or not len(flow):
            return acked
        acks = np.concatenate(self._parts)
        acks = acks[np.argsort(acks["flow"], kind="stable")]
        flows, starts = np.unique(flow, return_index=True)
        for f, rows in zip(flows.tolist(), np.split(np.arange(len(flow)), starts[1:]), strict=True):
            other = int(peer[f])
            if other < 0:
                continue
            begin, end = np.searchsorted(acks["flow"], (other, other + 1))
            if begin == end:
                continue
            both = np.concatenate([last_psn[rows[:1]], acks["psn"][begin:end]])
            covered = np.maximum.accumulate(unwrapped(both)[1:])
            wanted = unwrapped(last_psn[rows])
            first = np.searchsorted(covered, wanted)
            found = first < len(covered)
            acked[rows[found]] = acks["time_ns"][begin:end][first[found]]
        return acked
