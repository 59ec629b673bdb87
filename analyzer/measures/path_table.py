"""Traffic per (lane, path key): the hash table of `PathUsage`.

A lane is a stream of rows with its own count of path changes. The lanes of a flow, at one level if
the flow has several, are a block. Path records are stored in order of first appearance, an
open-addressing table of indices finds them, and each lane remembers its last record, so that a
packet on the same path as the previous one needs no hashing.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from ...kernels.kernel import (
    Bytes,
    Int,
    Int32s,
    Ints,
    NamedTuple,
    RecordArray,
    UInt64s,
    inlined,
    subkernel,
)
from ..statistics.per_flow import Kept, PerFlow, copy_rows, kept_flows, longer, roomier, untouched
from ..statistics.per_flow import Rows as FlowRows
from ..track.batch import OVERTAKEN, REORDERED, TAP_COPY, Rows, TrackedBatch
from ..wire.registry import salt

PATH = np.dtype(
    [
        ("lane", np.int64),
        ("key", np.int64),  # the path key, OTHER for all keys beyond MAX_PATHS
        ("packets", np.int64),
        ("wire_bytes", np.int64),
        ("late", np.int64),  # packets with the verdict REORDERED
        ("marked", np.int64),  # packets with CE
        ("first_ns", np.int64),  # earliest and latest time, for any order of the rows
        ("last_ns", np.int64),
    ]
)
LANE = np.dtype(
    [
        ("last_key", np.int64),  # of the last row
        ("switches", np.int64),  # consecutive rows with different keys
        ("path", np.int32),  # record of the last row
        ("paths", np.int32),  # different keys with their own record; 0: no rows yet
    ]
)

LANES: Final = 4
"""Lanes of a block of a `PathTable`."""
MAX_PATHS = 4096
"""Keys with their own record per lane."""
OTHER = -1
"""The key of the record of all further keys."""

ENTROPY, TAP, EVIDENCE = range(3)
"""Kinds of keys: source port and flow label, the tap, the `path_evidence` column."""

LEVELS = 8
"""With the tap as key, lanes are separate per hop limit modulo this. Most flows have packets at one
of them: blocks are allocated at the first packet."""

_CE = 3
_EMPTY = -1
_EARLIEST_NS, _LATEST_NS = -(2**63), 2**63 - 1
_SHIFT = np.uint64(32)


@inlined
def _slot(lane: Int, key: Int, salt_lane: Int, salt_key: Int, mask: Int) -> Int:
    """First slot of the search for (lane, key).

    Multiply-shift hashing with random odd factors (`salt`): no capture can force collisions.
    """
    mixed = np.uint64(lane) * salt_lane + np.uint64(key) * salt_key
    return np.int64(mixed >> _SHIFT) & mask


class LaneRecords(NamedTuple):
    """Records by lane and key, as one argument of kernels."""

    lanes: RecordArray
    """LANE[lanes+]."""
    records: RecordArray
    """PATH[capacity], or another type with the fields lane, key, first_ns and last_ns."""
    slots: Int32s
    used: Ints
    """int64[1]: records in use."""
    salt: UInt64s


@inlined
def find_record(lane: Int, key: Int, table: LaneRecords) -> Int:
    """The record of (lane, key), created if new; -1 when the table is full."""
    lanes, paths, slots, used, salt = table
    mask = len(slots) - 1
    while True:
        slot = _slot(lane, key, salt[0], salt[1], mask)
        while slots[slot] != _EMPTY:
            record = slots[slot]
            if paths[record].lane == lane and paths[record].key == key:
                return np.int64(record)
            slot = (slot + 1) & mask
        if key == OTHER or lanes[lane].paths < MAX_PATHS:
            break
        key = np.int64(OTHER)
    record = used[0]
    if record == len(paths):
        return np.int64(-1)
    used[0] += 1
    slots[slot] = record
    paths[record].lane = lane
    paths[record].key = key
    paths[record].first_ns = _LATEST_NS
    paths[record].last_ns = _EARLIEST_NS
    if key != OTHER:
        lanes[lane].paths += 1
    return np.int64(record)


@subkernel
def _count_rows(
    start: Int,
    rows: Rows,
    kind: int,
    lane_of: Bytes,
    block_of: Int32s,
    groups: Ints,
    blocks: Ints,
    table: LaneRecords,
) -> Int:
    """Count rows from `start`; returns their number, or the row at which the table is full."""
    lanes, paths = table.lanes, table.records
    for i in range(start, len(rows.flow)):
        lane = np.int64(rows.flow[i]) * LANES + np.int64(lane_of[rows.opcode[i]])
        if kind == TAP:
            key = np.int64(rows.tap[i])
            group = np.int64(rows.flow[i]) * LEVELS + (np.int64(rows.hop_limit[i]) & (LEVELS - 1))
            if block_of[group] == 0:
                if blocks[0] == len(groups):
                    return i
                groups[blocks[0]] = group
                blocks[0] += 1
                block_of[group] = blocks[0]
            block = np.int64(block_of[group]) - 1
            lane = block * LANES + np.int64(lane_of[rows.opcode[i]])
        elif rows.verdict[i] == TAP_COPY:
            continue
        elif kind == ENTROPY:
            key = np.int64(rows.flow_label[i]) << 16 | np.int64(rows.udp_sport[i])
        else:
            key = np.int64(rows.path_evidence[i])

        if lanes[lane].paths and lanes[lane].last_key == key:
            record = np.int64(lanes[lane].path)
        else:
            begun = lanes[lane].paths > 0
            record = np.int64(find_record(lane, key, table))
            if record < 0:
                return i
            if begun:
                lanes[lane].switches += 1
            lanes[lane].last_key = key
            lanes[lane].path = record
        paths[record].packets += 1
        paths[record].wire_bytes += np.int64(rows.wire_bytes[i])
        if rows.verdict[i] == REORDERED or rows.verdict[i] == OVERTAKEN:
            paths[record].late += 1
        if rows.traffic_class[i] & 3 == _CE:
            paths[record].marked += 1
        if rows.time_ns[i] < paths[record].first_ns:
            paths[record].first_ns = rows.time_ns[i]
        if rows.time_ns[i] > paths[record].last_ns:
            paths[record].last_ns = rows.time_ns[i]
    return len(rows.flow)


@subkernel
def _rehash(table: LaneRecords) -> None:
    """Enter all records into the hash table, whatever it held."""
    mask = len(table.slots) - 1
    table.slots[:] = _EMPTY
    for record in range(table.used[0]):
        lane, key = np.int64(table.records[record].lane), np.int64(table.records[record].key)
        slot = _slot(lane, key, table.salt[0], table.salt[1], mask)
        while table.slots[slot] != _EMPTY:
            slot = (slot + 1) & mask
        table.slots[slot] = record


class LaneTable(PerFlow[LaneRecords]):
    """Records by lane and key of all flows; a subclass tells the lanes of each in its layout."""

    def __init__(self, record: np.dtype[Any]) -> None:
        """record: type of the records."""
        super().__init__(
            LaneRecords(
                lanes=np.zeros(0, LANE),
                records=np.zeros(0, record),
                slots=np.full(2, _EMPTY, np.int32),
                used=np.zeros(1, np.int64),
                salt=salt(2) | np.uint64(1),
            )
        )

    @property
    def records(self) -> NDArray[Any]:
        """The records in use, in order of first appearance."""
        return self.arrays.records[: int(self.arrays.used[0])]

    def reserve_records(self, records: int) -> None:
        """Have room for this many records, and a hash table that is at most half full."""
        if records > len(self.arrays.records):
            capacity = max(64, 1 << (records - 1).bit_length())
            longest = longer(self.arrays.records, capacity, len(self.records))
            self.arrays = self.arrays._replace(
                records=longest, slots=np.full(2 * capacity, _EMPTY, np.int32)
            )
            _rehash(self.arrays)

    def keep(self, kept: Kept) -> None:
        """Only these flows stay."""
        records, number = self.records, kept.number[: self.known_flows]
        super().keep(kept)
        self.arrays = self.arrays._replace(records=untouched(self.arrays.records))
        self.arrays.used[0] = 0
        self._add(records, number)
        _rehash(self.arrays)

    def merge(self, other: Self, flow_map: Int32s) -> None:
        """Take the flows of another table; see `PerFlow.merge`."""
        super().merge(other, flow_map)
        self.reserve_records(len(self.records) + len(other.records))
        self._add(other.records, flow_map[: other.known_flows])
        _rehash(self.arrays)

    def saved(self) -> dict[str, Any]:
        attributes = super().saved()
        attributes["arrays"] = attributes["arrays"]._replace(records=self.records, slots=_NO_SLOTS)
        return attributes

    def restore(self) -> None:
        super().restore()
        records, used = self.arrays.records, len(self.arrays.records)
        self.arrays = self.arrays._replace(records=records[:0])
        self.reserve_records(max(used, 1))
        self.arrays.records[:used] = records
        _rehash(self.arrays)

    def _add(self, records: Any, number: Int32s) -> None:
        """Add records of flows that have these new numbers here, -1 for none; no hash table yet."""
        lanes, at = self.arrays.lanes, len(self.records)
        each = self._per
        flow, lane = np.divmod(records["lane"], each)
        added = np.flatnonzero(number[flow] >= 0)
        place = np.full(len(records), -1, np.int64)
        place[added] = at + np.arange(len(added))
        self.arrays.used[0] = at + len(added)
        new_lanes = number[flow[added]].astype(np.int64) * each + lane[added]
        copy_rows(records, added, self.arrays.records, place[added])
        self.arrays.records["lane"][place[added]] = new_lanes
        ours = number[number >= 0].astype(np.int64)
        rows = (ours[:, None] * each + np.arange(each)).reshape(-1)
        rows = rows[lanes["paths"][rows] > 0]
        lanes["path"][rows] = place[lanes["path"][rows]]

    @property
    def _per(self) -> int:
        lanes = self.layout["lanes"]
        assert isinstance(lanes, FlowRows)
        return lanes.per


_NO_SLOTS: Final = np.zeros(0, np.int32)


class PathLanes(LaneTable):
    """Lanes of the blocks of a `PathTable`."""

    layout: ClassVar = {"lanes": FlowRows(per=LANES)}


class PathTable:
    """Path records of all lanes of all flows.

    `kind`: kind of the key; `lane_of`, uint8[256]: lane within its block by opcode. With the kind
    TAP a flow has up to `LEVELS` blocks, else one.
    """

    def __init__(self, kind: int, lane_of: NDArray[np.uint8]) -> None:
        self._kind = kind
        self._lane_of = lane_of
        self._levels = LEVELS if kind == TAP else 1
        self._lanes = PathLanes(PATH)
        """The lanes of blocks: with one level, a flow and its block have the same number."""
        self._groups = np.zeros(0, np.int64)
        """int64[blocks+]: the group of each block, its flow times `LEVELS` plus its level."""
        self._block_of = np.zeros(0, np.int32)
        """int32[flows+ * LEVELS]: one plus the block of a group, 0 while it has no packets."""
        self._blocks = np.zeros(1, np.int64)
        """int64[1]: blocks in use of several levels."""

    @property
    def paths(self) -> NDArray[Any]:
        """The records in use, PATH[n], in order of first appearance."""
        return self._lanes.records

    def places(self) -> tuple[Ints, Ints, Ints]:
        """Flow, level and lane in the block of each record in use."""
        block, lane = np.divmod(self.paths["lane"], LANES)
        if self._levels == 1:
            return block, np.zeros(len(block), np.int64), lane
        flow, level = np.divmod(self._groups[block], LEVELS)
        return flow, level, lane

    def switches(self, flow: int, level: int, lane: int) -> int:
        """Path changes of a lane that has records."""
        block = flow if self._levels == 1 else int(self._block_of[flow * LEVELS + level]) - 1
        return int(self._lanes.arrays.lanes["switches"][block * LANES + lane])

    def add(self, batch: TrackedBatch) -> None:
        """Count the rows of one batch."""
        self._grow(batch.n_flows)
        row: Int = 0
        while True:
            row = _count_rows(
                row,
                batch.rows,
                self._kind,
                self._lane_of,
                self._block_of,
                self._groups,
                self._blocks,
                self._lanes.arrays,
            )
            if self._levels > 1:
                self._grow_blocks(self._used_blocks)
            if row == len(batch):
                return
            if self._levels > 1 and self._used_blocks == len(self._groups):
                self._grow_blocks(len(self._groups) + 1)
            if len(self.paths) == len(self._lanes.arrays.records):
                self._lanes.reserve_records(len(self.paths) + 1)

    def merge(self, other: PathTable, flow_map: Int32s) -> None:
        """Take the flows of another table; see `PerFlow.merge`."""
        if not len(flow_map):
            return
        self._grow(int(flow_map.max()) + 1)
        blocks = flow_map
        if self._levels > 1:
            flow, level = np.divmod(other._groups[: other._used_blocks], LEVELS)
            used = self._used_blocks
            blocks = np.arange(used, used + len(flow), dtype=np.int32)
            self._grow_blocks(used + len(flow))
            self._groups[blocks] = groups = flow_map[flow].astype(np.int64) * LEVELS + level
            self._block_of[groups] = blocks + 1
            self._blocks[0] += len(flow)
        self._lanes.merge(other._lanes, blocks)

    def keep(self, kept: Kept) -> None:
        """Only these flows stay."""
        blocks = kept
        if self._levels > 1:
            flow, level = np.divmod(self._groups[: self._used_blocks], LEVELS)
            blocks = kept_flows(kept.number[flow] >= 0)
            groups = kept.number[flow[blocks.flows]].astype(np.int64) * LEVELS
            self._groups[: len(groups)] = groups + level[blocks.flows]
            self._blocks[0] = len(groups)
            self._block_of[:] = 0
            self._block_of[self._groups[: len(groups)]] = np.arange(1, len(groups) + 1)
        self._lanes.keep(blocks)

    @property
    def _used_blocks(self) -> int:
        return int(self._blocks[0])

    def _grow(self, flows: int) -> None:
        if self._levels > 1:
            self._block_of = roomier(self._block_of, flows * LEVELS)
        else:
            self._lanes.grow(flows)

    def _grow_blocks(self, blocks: int) -> None:
        self._lanes.grow(blocks)
        self._groups = longer(self._groups, len(self._lanes.arrays.lanes) // LANES)
