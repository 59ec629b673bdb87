"""The past of a live session: snapshots, and the differences between two of them.

The history holds about one snapshot per second. When it is full, every second snapshot of the
older half is removed: the last minutes stay dense, the first ones stay available, and an hour
takes no more memory than a minute.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import fields, replace

import msgspec
import numpy as np

from ...analyzer.results.base import Event
from ...analyzer.results.flow import Flow
from ...analyzer.statistics.per_flow import Kept
from ...kernels.kernel import Ints
from .columns import widths
from .judged import Judged
from .snapshot import (
    UNKNOWN,
    FlowBins,
    FlowColumns,
    FlowKey,
    MrcColumns,
    PathColumns,
    Snapshot,
    Timeline,
    kept_snapshot,
    packed,
    unpacked,
)

BUDGET_BYTES = 16 << 20
STEP_NS = 1_000_000_000
_LASTING = {"src", "dst", "qp", "transport", "peer", "path_mtu", "first_ns", "last_ns"}
"""Columns that are not counts. The largest extent is not a count either: it stays the maximum."""
_RECORD_SIZE = 8
"""Approximate ratio of the memory of a record to its encoded bytes."""
_KEYS = 1 << 38
"""Above every key: a flow label and a port have 36 bits."""


class History:
    """Snapshots in order of the time of their last packet."""

    def __init__(self, budget_bytes: int = BUDGET_BYTES) -> None:
        self._budget = budget_bytes
        self._kept: list[Snapshot] = []
        self._sizes: list[int] = []
        self._records: list[dict[FlowKey, Flow]] = []

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def nbytes(self) -> int:
        """Memory of the stored columns."""
        return sum(self._sizes)

    def add(self, snapshot: Snapshot) -> bool:
        """Store a snapshot unless the previous one is too recent; others may be removed for it.

        Its time series, most of its memory, and its addresses are not stored: later snapshots have
        them (`as_then`).
        """
        if self._kept and snapshot.end_ns - self._kept[-1].end_ns < STEP_NS:
            return False
        snapshot = packed(
            replace(
                snapshot,
                addresses=(),
                activity=np.zeros((0, 0), np.int64),
                late=FlowBins(),
                judged=Judged(),
            )
        )
        self._kept.append(snapshot)
        self._sizes.append(_size(snapshot))
        self._records.append({})
        while self.nbytes > self._budget and len(self._kept) > 2:
            older = max(2, len(self._kept) // 2)
            for kept in (self._kept, self._sizes, self._records):
                del kept[1:older:2]
        return True

    def keep(self, kept: Kept) -> None:
        """Only these flows are left in the session: the others leave the past too."""
        renamed: dict[int, Event | None] = {}
        for i, snapshot in enumerate(self._kept):  # one by one: each former one leaves memory
            self._kept[i] = packed(kept_snapshot(unpacked(snapshot), kept, renamed))
        sizes = [_size(snapshot) for snapshot in self._kept]
        records = [sum(map(_record_size, records.values())) for records in self._records]
        self._sizes = [size + more for size, more in zip(sizes, records, strict=True)]

    def add_record(self, key: FlowKey, record: Flow) -> None:
        """Store the whole record of the selected flow with the last snapshot."""
        if self._kept and key not in self._records[-1]:
            self._records[-1][key] = record
            self._sizes[-1] += _record_size(record)

    def record(self, time_ns: int, key: FlowKey) -> Flow | None:
        """The record of a flow at a time (as `at`); None if it was not stored."""
        return self._records[self._place(time_ns)].get(key) if self._kept else None

    def clear(self) -> None:
        """Remove all snapshots: flow indices change."""
        self._kept.clear()
        self._sizes.clear()
        self._records.clear()

    def span(self) -> tuple[int, int] | None:
        """Ends of the first and the last snapshot, ns."""
        return (self._kept[0].end_ns, self._kept[-1].end_ns) if self._kept else None

    def at(self, time_ns: int) -> Snapshot | None:
        """The last snapshot that ends at this time or before; the first one for earlier times."""
        return unpacked(self._kept[self._place(time_ns)]) if self._kept else None

    def _place(self, time_ns: int) -> int:
        return max(0, bisect_right(self._kept, time_ns, key=lambda kept: kept.end_ns) - 1)

    def before(self, time_ns: int) -> Snapshot | None:
        """The last snapshot that ends at this time or before; None when there is none."""
        snapshot = self.at(time_ns)
        return snapshot if snapshot is not None and snapshot.end_ns <= time_ns else None


def as_then(earlier: Snapshot, now: Snapshot) -> Snapshot:
    """A stored snapshot with its time series, which are cut from the current ones, and addresses.

    Numbers of addresses do not change.
    """
    flows = len(earlier.flows)
    known = (earlier.end_ns - now.activity_start_ns) // now.activity_bin_ns + 1
    late = now.late
    bins = (earlier.end_ns - late.start_ns) // late.bin_ns + 1
    return replace(
        earlier,
        addresses=now.addresses,
        activity=now.activity[: max(0, known), :flows],
        activity_bin_ns=now.activity_bin_ns,
        activity_start_ns=now.activity_start_ns,
        late=replace(late, values=late.values[: max(0, bins), :flows]),
        judged=now.judged,
    )


def _record_size(record: Flow) -> int:
    return _RECORD_SIZE * len(msgspec.msgpack.encode(record))


def _size(snapshot: Snapshot) -> int:
    arrays = [getattr(snapshot.flows, f.name) for f in fields(snapshot.flows)]
    arrays += [*snapshot.timeline.columns.values(), snapshot.timeline.tap_bytes]
    for paths in snapshot.paths.values():
        arrays += [v for f in fields(paths) if isinstance(v := getattr(paths, f.name), np.ndarray)]
    return sum(array.nbytes for array in arrays)


def between(later: Snapshot, earlier: Snapshot | None) -> Snapshot:
    """The packets after `earlier` (None: from the start) until `later`, of the same session."""
    if earlier is None:
        return later
    start, end = earlier.end_ns, later.end_ns
    flows = _grown(later.flows, earlier.flows, max(1, end - start))
    paths = {
        by: _paths_grown(columns, earlier.paths.get(by), len(flows))
        for by, columns in later.paths.items()
    }
    wire_bytes, packets = int(flows.wire_bytes.sum()), int(flows.packets.sum())
    return replace(
        later,
        source=replace(
            later.source,
            packets_per_second=packets * 1e9 / max(1, end - start),
            bits_per_second=wire_bytes * 8e9 / max(1, end - start),
        ),
        flows=flows,
        paths=paths,
        mrc=_mrc_grown(later.mrc, earlier.mrc),
        timeline=_cut(later.timeline, start, end),
        events=tuple(e for e in later.events if start <= e.time_ns <= end),
        start_ns=start,
    )


def _grown(later: FlowColumns, earlier: FlowColumns, span_ns: int) -> FlowColumns:
    known = len(earlier)
    changed = {}
    for field in fields(later):
        if field.name in _LASTING or field.name in ("max_extent", "rate"):
            continue
        now = getattr(later, field.name).copy()
        then = getattr(earlier, field.name)
        unknown = (now[:known] == UNKNOWN) | (then == UNKNOWN)
        # Counts may decrease: a missing packet may still arrive.
        now[:known] = np.where(unknown, UNKNOWN, np.maximum(now[:known] - then, 0))
        changed[field.name] = now
    rate = changed["wire_bytes"] * 8e9 / span_ns
    return replace(later, rate=rate, **changed)


def _mrc_grown(later: MrcColumns | None, earlier: MrcColumns | None) -> MrcColumns | None:
    if later is None or earlier is None:
        return later
    counts = {}
    for name in MrcColumns.COUNTS:
        now, then = getattr(later, name).copy(), getattr(earlier, name)
        known = (now[: len(then)] != UNKNOWN) & (then != UNKNOWN)
        now[: len(then)] -= np.where(known, then, 0)
        counts[name] = now
    return replace(later, **counts)


def _paths_grown(later: PathColumns, earlier: PathColumns | None, flows: int) -> PathColumns:
    if earlier is None or not len(earlier.key):
        return later
    now, then = _codes(later), _codes(earlier)
    place = np.minimum(np.searchsorted(then, now), len(then) - 1)
    same = then[place] == now
    counts = {}
    for name in ("packets", "wire_bytes", "late", "marked"):
        values = getattr(later, name).astype(np.int64)
        before = np.where(same, getattr(earlier, name)[place].astype(np.int64), 0)
        counts[name] = np.maximum(values - before, 0)
    used = counts["packets"] > 0
    flow = np.repeat(np.arange(flows), later.seen())[used]
    kept = {name: values[used] for name, values in counts.items()}
    return replace(
        later,
        starts=np.searchsorted(flow, np.arange(flows + 1)),
        key=later.key[used],
        width=widths(flow, kept["wire_bytes"].astype(np.float64), flows)[0],
        **kept,
    )


def _codes(paths: PathColumns) -> Ints:
    """One ascending number per flow and key."""
    flow = np.repeat(np.arange(len(paths.starts) - 1), paths.seen())
    return flow * _KEYS + paths.key.astype(np.int64)


def _cut(line: Timeline, start_ns: int, end_ns: int) -> Timeline:
    first = max(0, (start_ns - line.start_ns) // line.window_ns)
    last = max(first, (end_ns - line.start_ns) // line.window_ns + 1)
    return Timeline(
        line.start_ns + first * line.window_ns,
        line.window_ns,
        {name: values[first:last] for name, values in line.columns.items()},
        line.tap_bytes[first:last],
    )
