"""A tracked batch: rows with their flows and verdicts."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ...kernels.kernel import Bools, Bytes, Int32s
from ..wire.packets import PacketTable, TableArrays

# Verdicts on a row's PSN, one per packet (column `TrackedBatch.verdict`).
NOT_SEQUENCED = 0
"""No PSN order to judge: UD, CNP, ACK, NAK, MAD."""
IN_ORDER = 1
"""The next expected PSN."""
AHEAD = 2
"""Beyond the next expected PSN: a gap opens (a discontinuity in RFC 4737)."""
REORDERED = 3
"""Below the next expected PSN, never seen before: the original transmission, late (RFC 4737)."""
RECOVERED = 4
"""Below the next expected PSN, never seen before: retransmitted, the original lost before the
tap."""
RETRANSMITTED = 5
"""Seen before and retransmitted by the source."""
DUPLICATE = 6
"""The same transmission seen again at this tap: duplicated by the network."""
MIRROR_DUPLICATE = 7
"""The same transmission seen again at this tap with another hop limit: mirrored at two places."""
TAP_COPY = 8
"""The same transmission, already seen at another tap."""
RESTARTED = 9
"""A PSN too far away to belong to the sequence: the queue pair restarted."""
OVERTAKEN = 10
"""The original transmission, late, after a retransmission that was first judged RECOVERED: its PSN
was seen, yet it counts as REORDERED."""

VERDICT_NAMES = (
    "not_sequenced",
    "in_order",
    "ahead",
    "reordered",
    "recovered",
    "retransmitted",
    "duplicate",
    "mirror_duplicate",
    "tap_copy",
    "restarted",
    "overtaken",
)


if TYPE_CHECKING:

    class Rows(TableArrays):
        """A `TrackedBatch` as one argument of a kernel."""

        flow: Int32s
        verdict: Bytes
        peer: Int32s

else:
    Rows = namedtuple("Rows", ["flow", "verdict", "peer", *TableArrays._fields])


@dataclass(frozen=True)
class TrackedBatch:
    """A packet table with the tracker's result per row. All arrays have its length."""

    table: PacketTable
    flow: Int32s
    """Index of the row's one-way flow in the FlowTable."""
    verdict: Bytes
    """One of the verdicts above."""
    peer: Int32s
    """Per FLOW, not per row: the other flow of its connection, -1 while unknown."""
    n_flows: int
    """Number of flows after this batch; measures grow their state to it before updating."""

    def __len__(self) -> int:
        return len(self.table)

    @cached_property
    def rows(self) -> Rows:
        """All columns, for kernels."""
        return Rows._make([self.flow, self.verdict, self.peer, *self.table.arrays])

    def take(self, rows: Bools) -> TrackedBatch:
        """The selected rows of the batch; copied unless all are selected."""
        if rows.all():
            return self
        return TrackedBatch(
            self.table.take(rows), self.flow[rows], self.verdict[rows], self.peer, self.n_flows
        )
