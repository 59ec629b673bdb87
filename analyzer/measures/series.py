"""Totals of the whole capture in fixed time windows, and each flow over time: its bytes, its late
packets, and its idle gaps, where flowlet switching could act.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

import numpy as np

from ...kernels.kernel import (
    Bytes,
    Int,
    Int32s,
    Ints,
    NamedTuple,
    RecordArray,
    UInt32s,
    kernel,
    subkernel,
)
from ..results.base import Series
from ..results.flow import IdleGaps
from ..statistics.per_flow import Kept, PerFlow
from ..statistics.per_flow import Rows as FlowRows
from ..statistics.windows import WIDTH, WindowArrays, WindowedSums, same_window, window_row
from ..track.batch import (
    DUPLICATE,
    MIRROR_DUPLICATE,
    OVERTAKEN,
    RECOVERED,
    REORDERED,
    RETRANSMITTED,
    TAP_COPY,
    VERDICT_NAMES,
    Rows,
    TrackedBatch,
)
from ..wire.bth import ACKNOWLEDGE, OPCODE_CLASS, SYNDROME_KIND_MASK, SYNDROME_NAK
from ..wire.packets import HAS_AETH

DEFAULT_WINDOW_NS = 100_000_000
MAX_WINDOWS = 1_000_000
"""Most windows of a series. A longer capture gets wider windows, as does one of 95,000 windows or
more (fewer with many taps) in which less than a quarter has packets: see `Series.window_ns`."""
ACTIVITY_BINS = 60
"""Most bins of a flow's activity."""

_MAX_SUMS = 1 << 24
_FIRST_BIN_NS = 1000  # of activity, doubled until the capture fits

# Columns of the sums; from TAPS on the bytes per tap.
(
    _PACKETS,
    _WIRE_BYTES,
    _PAYLOAD_BYTES,
    _REORDERED,
    _RETRANSMITTED,
    _DUPLICATE,
    _ECN_MARKED,
    _CNPS,
    _NAKS,
    _OTHER_VERDICTS,
    TAPS,
) = range(11)

SERIES_COLUMNS: Final = (
    "packets",
    "wire_bytes",
    "payload_bytes",
    "reordered_packets",
    "retransmitted_packets",
    "duplicate_packets",
    "ecn_marked_packets",
    "cnps",
    "naks",
)
"""Names of the first columns of `Totals.values`."""

_COLUMN_OF_VERDICT: Final = np.full(len(VERDICT_NAMES), _OTHER_VERDICTS, np.uint8)
_COLUMN_OF_VERDICT[[REORDERED, OVERTAKEN]] = _REORDERED
_COLUMN_OF_VERDICT[[RETRANSMITTED, RECOVERED]] = _RETRANSMITTED
_COLUMN_OF_VERDICT[DUPLICATE] = _DUPLICATE

_CNP_OPCODE = 0x81
_ALERT: Final = ((OPCODE_CLASS & ACKNOWLEDGE) != 0) | (np.arange(256) == _CNP_OPCODE)
"""Opcodes that may be a NAK or a CNP."""

_CE = 3


@subkernel
def _count_rows(start: Int, w: WindowArrays, rows: Rows) -> Int:
    """Count rows from `start`; returns their number, or the row whose window has no place."""
    state, slots, windows, sums = w
    width = state[WIDTH]
    at: Int = np.int64(-1)
    begin = np.int64(0)
    for i in range(start, len(rows.time_ns)):
        if at < 0 or not same_window(rows.time_ns[i], begin, width):
            window = rows.time_ns[i] // width
            at = window_row(window, state, slots, windows)
            if at < 0:
                return i
            begin = window * width
        sums[at, TAPS + np.int64(rows.tap[i])] += np.int64(rows.wire_bytes[i])
        if rows.verdict[i] == TAP_COPY:
            continue
        sums[at, _PACKETS] += 1
        sums[at, _WIRE_BYTES] += np.int64(rows.wire_bytes[i])
        sums[at, _PAYLOAD_BYTES] += np.int64(rows.payload_bytes[i])
        sums[at, np.int64(_COLUMN_OF_VERDICT[rows.verdict[i]])] += 1
        if rows.traffic_class[i] & 3 == _CE:
            sums[at, _ECN_MARKED] += 1
        if _ALERT[rows.opcode[i]]:
            if rows.opcode[i] == _CNP_OPCODE:
                sums[at, _CNPS] += 1
            elif (
                rows.verdict[i] != DUPLICATE  # a packet mirrored twice counts once
                and rows.verdict[i] != MIRROR_DUPLICATE
                and rows.decode_flags[i] & HAS_AETH
                and np.int64(rows.aeth[i]) >> 24 & SYNDROME_KIND_MASK == SYNDROME_NAK
            ):
                sums[at, _NAKS] += 1
    return len(rows.time_ns)


@kernel
def _count_activity(
    start: Int,
    w: WindowArrays,
    time_ns: Ints,
    verdict: Bytes,
    flow: Int32s,
    wire_bytes: UInt32s,
) -> Int:
    """Add bytes from row `start`; returns as `_count_rows`."""
    state, slots, windows, sums = w
    width = state[WIDTH]
    at: Int = np.int64(-1)
    begin = np.int64(0)
    for i in range(start, len(time_ns)):
        if verdict[i] == TAP_COPY:
            continue
        if at < 0 or not same_window(time_ns[i], begin, width):
            window = time_ns[i] // width
            at = window_row(window, state, slots, windows)
            if at < 0:
                return i
            begin = window * width
        sums[at, flow[i]] += np.int64(wire_bytes[i])
    return len(time_ns)


class Totals(WindowedSums):
    """Totals of the capture per window of `window_ns`."""

    def __init__(self, window_ns: int = DEFAULT_WINDOW_NS, most: int = MAX_WINDOWS) -> None:
        """most: largest number of windows; beyond it the width doubles."""
        super().__init__(window_ns, TAPS, most, _MAX_SUMS)

    def update(self, batch: TrackedBatch) -> None:
        """Count the rows of one batch."""
        if not len(batch):
            return
        self.widen(TAPS + int(batch.table.tap.max()) + 1)
        self.count(lambda row, windows: _count_rows(row, windows, batch.rows), batch.table.time_ns)

    def merge(self, other: Totals) -> None:
        """Add the totals of other rows with the same window and the same taps."""
        self.add(other, np.arange(other.columns, dtype=np.int32))

    def series(self, tap_names: Sequence[str]) -> Series:
        """All windows from the first to the last packet; tap i is `tap_names[i]`."""
        window_ns, start_ns, values = self.dense(sparing=True)

        def column(index: int) -> list[int]:
            if index >= values.shape[1]:
                return [0] * len(values)
            result: list[int] = values[:, index].tolist()
            return result

        return Series(
            window_ns=window_ns,
            start_ns=start_ns,
            tap_wire_bytes={
                name: column(TAPS + i) for i, name in enumerate(tap_names) if len(tap_names) > 1
            },
            **{name: column(i) for i, name in enumerate(SERIES_COLUMNS)},
        )


class Activity(WindowedSums):
    """Wire bytes of each flow in at most `ACTIVITY_BINS` equal bins over the whole capture.

    All flows share the bins, so sparklines line up. Bins are aligned to multiples of their width,
    so all but tiny captures have 31 to 60.
    """

    def __init__(self) -> None:
        super().__init__(_FIRST_BIN_NS, 0, ACTIVITY_BINS)
        self._flows = 0

    def update(self, batch: TrackedBatch) -> None:
        """Add the bytes of one batch."""
        t = batch.table
        self._count(batch.n_flows, t.time_ns, batch.verdict, batch.flow, t.wire_bytes)

    def _count(
        self, flows: int, time_ns: Ints, verdict: Bytes, flow: Int32s, added: UInt32s
    ) -> None:
        self._grow(flows)
        self.count(
            lambda row, windows: _count_activity(row, windows, time_ns, verdict, flow, added),
            time_ns,
        )

    def keep(self, kept: Kept) -> None:
        """Only these flows stay; the bins do not change."""
        super().keep(kept)
        self._flows = len(kept.of(self._flows))

    def merge(self, other: Activity, flow_map: Int32s) -> None:
        """Add the activity of other rows; its flow i is our flow `flow_map[i]`."""
        if len(flow_map):
            self._grow(int(flow_map.max()) + 1)
        self.add(other, flow_map[: other._flows])

    def _grow(self, flows: int) -> None:
        if flows > self.columns:
            self.widen(max(flows, 2 * self._flows, 64))
        self._flows = max(self._flows, flows)


class LateActivity(Activity):
    """Late packets (RFC 4737) of each flow in equal bins, like the bytes of `Activity`.

    The bins span the first to the last late packet; no memory without late packets.
    """

    def update(self, batch: TrackedBatch) -> None:
        """Count the late packets of one batch."""
        late = np.flatnonzero((batch.verdict == REORDERED) | (batch.verdict == OVERTAKEN))
        if not len(late):
            return
        self._count(
            batch.n_flows,
            batch.table.time_ns[late],
            batch.verdict[late],
            batch.flow[late],
            np.ones(len(late), np.uint32),
        )


LIMITS_NS: Final = (10_000, 50_000, 100_000, 500_000)

STATE = np.dtype(
    [
        ("started", np.int64),
        ("last", np.int64),  # ns, capture time of the latest packet
        ("max", np.int64),  # ns, longest gap
        ("over", np.int64, (len(LIMITS_NS),)),  # gaps longer than each limit
    ],
    align=True,
)


@subkernel
def _update(state: RecordArray, rows: Rows) -> None:
    for i in range(len(rows.flow)):
        s = state[rows.flow[i]]
        time = rows.time_ns[i]
        if s.started == 0:
            s.started = 1
            s.last = time
        gap = time - s.last
        s.last = time
        if gap > s.max:
            s.max = gap
        if gap > LIMITS_NS[0]:
            for k in range(len(LIMITS_NS)):
                s.over[k] += gap > LIMITS_NS[k]


class IdleArrays(NamedTuple):
    """Arrays of the measure."""

    state: RecordArray
    """STATE[flows]."""


class Idle(PerFlow[IdleArrays]):
    """Idle gaps of all flows, over all rows of each; a backward clock step is not a gap."""

    layout: ClassVar = {"state": FlowRows()}

    def __init__(self) -> None:
        super().__init__(IdleArrays(np.zeros(0, STATE)))

    def update(self, batch: TrackedBatch) -> None:
        """Count a batch; batches must come in capture order."""
        self.grow(batch.n_flows)
        _update(self.arrays.state, batch.rows)

    def gaps(self, flow: int) -> IdleGaps:
        """One flow's gaps longer than 10, 50, 100 and 500 us, and the longest one."""
        if flow >= self.known_flows:
            return IdleGaps(0, 0, 0, 0, 0)
        s = self.arrays.state[flow]
        over = s["over"].tolist()
        return IdleGaps(over[0], over[1], over[2], over[3], int(s["max"]))
