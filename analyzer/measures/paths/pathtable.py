"""Traffic per (lane, path key): the hash table of `PathUsage`.

A lane is a stream of rows with its own count of path changes. The lanes of a flow, at one level if
the flow has several, are a block. Path records are stored in order of first appearance, an
open-addressing table of indices finds them, and each lane remembers its last record, so that a
packet on the same path as the previous one needs no hashing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....kernels.kernel import Bools, Bytes, Int, Int32s, Ints, UInt64s, inlined, subkernel
from ....kernels.named import NamedTuple
from ...statistics.keeping import Kept, kept_flows, longer, roomier, rows_of, untouched
from ...track.batch import OVERTAKEN, REORDERED, TAP_COPY, Rows, TrackedBatch
from ...wire.record import Records
from ...wire.salt import salt

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
        ("first_key", np.int64),  # of the first row
        ("last_key", np.int64),  # of the last row
        ("switches", np.int64),  # consecutive rows with different keys
        ("path", np.int32),  # record of the last row
        ("paths", np.int32),  # different keys with their own record; 0: no rows yet
    ]
)

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
_PATHS, _BLOCKS = range(2)  # items of `used`
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

    lanes: Records
    """LANE[lanes+]."""
    records: Records
    """PATH[capacity], or another type with the fields lane, key, first_ns and last_ns."""
    slots: Int32s
    used: Ints
    """int64[2]: records in use; blocks of a `PathTable`."""
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
    lanes_per_block: int,
    block_of: Int32s,
    groups: Ints,
    table: LaneRecords,
) -> Int:
    """Count rows from `start`; returns their number, or the row at which the table is full."""
    lanes, paths, slots, used, salt = table
    for i in range(start, len(rows.flow)):
        lane = np.int64(rows.flow[i]) * lanes_per_block + np.int64(lane_of[rows.opcode[i]])
        if kind == TAP:
            key = np.int64(rows.tap[i])
            group = np.int64(rows.flow[i]) * LEVELS + (np.int64(rows.hop_limit[i]) & (LEVELS - 1))
            if block_of[group] == 0:
                if used[_BLOCKS] == len(groups):
                    return i
                groups[used[_BLOCKS]] = group
                used[_BLOCKS] += 1
                block_of[group] = used[_BLOCKS]
            block = np.int64(block_of[group]) - 1
            lane = block * lanes_per_block + np.int64(lane_of[rows.opcode[i]])
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
            else:
                lanes[lane].first_key = key
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
def _add_paths(added: Records, lane_map: Ints, table: LaneRecords) -> None:
    """Add records of another table; the caller has grown the table."""
    for a in range(len(added)):
        lane = lane_map[added[a].lane]
        path = table.records[find_record(lane, np.int64(added[a].key), table)]
        path.packets += added[a].packets
        path.wire_bytes += added[a].wire_bytes
        path.late += added[a].late
        path.marked += added[a].marked
        path.first_ns = min(path.first_ns, added[a].first_ns)
        path.last_ns = max(path.last_ns, added[a].last_ns)


@subkernel
def _add_lanes(added: Records, lane_map: Ints, begun: Bools, table: LaneRecords) -> None:
    """Continue lanes with those of another table with later rows."""
    for a in range(len(added)):
        if added[a].paths == 0:
            continue
        lane = lane_map[a]
        ours = table.lanes[lane]
        if not begun[lane]:
            begun[lane] = True
            ours.first_key = added[a].first_key
        elif ours.last_key != added[a].first_key:
            ours.switches += 1
        ours.switches += added[a].switches
        ours.last_key = added[a].last_key
        last = np.int64(added[a].last_key)
        ours.path = find_record(lane, last, table)


@subkernel
def _rehash(table: LaneRecords) -> None:
    mask = len(table.slots) - 1
    for record in range(table.used[_PATHS]):
        lane, key = np.int64(table.records[record].lane), np.int64(table.records[record].key)
        slot = _slot(lane, key, table.salt[0], table.salt[1], mask)
        while table.slots[slot] != _EMPTY:
            slot = (slot + 1) & mask
        table.slots[slot] = record


def no_records(record: np.dtype[Any]) -> LaneRecords:
    """An empty table of records of this type."""
    return LaneRecords(
        lanes=np.zeros(0, LANE),
        records=np.zeros(0, record),
        slots=np.full(2, _EMPTY, np.int32),
        used=np.zeros(2, np.int64),
        salt=salt(2) | np.uint64(1),
    )


def reserved(table: LaneRecords, records: int) -> LaneRecords:
    """Grown to at least `records` records, at most half full."""
    if records <= len(table.records):
        return table
    capacity = max(64, 1 << (records - 1).bit_length())
    table = table._replace(
        records=longer(table.records, capacity, int(table.used[_PATHS])),
        slots=np.full(2 * capacity, _EMPTY, np.int32),
    )
    _rehash(table)
    return table


def kept_records(table: LaneRecords, kept: Kept, lanes_each: int) -> LaneRecords:
    """The records of the kept flows with their new lanes. `kept` may be of blocks."""
    used = int(table.used[_PATHS])
    flow, lane = np.divmod(table.records["lane"][:used], lanes_each)
    stay = np.flatnonzero(kept.number[flow] >= 0)
    place = np.full(used, -1, np.int64)
    place[stay] = np.arange(len(stay))
    records = untouched(table.records)
    records[: len(stay)] = table.records[stay]
    new_lanes = kept.number[flow[stay]].astype(np.int64) * lanes_each + lane[stay]
    records["lane"][: len(stay)] = new_lanes
    lanes = rows_of(table.lanes, kept, lanes_each)
    begun = lanes["paths"] > 0
    lanes["path"][begun] = place[lanes["path"][begun]]
    table.used[_PATHS] = len(stay)
    table.slots[:] = _EMPTY
    table = table._replace(lanes=lanes, records=records)
    _rehash(table)
    return table


class PathTable:
    """Path records of all lanes of all flows.

    `kind`: kind of the key; `lane_of`, uint8[256]: lane within its block by opcode. With the kind
    TAP a flow has up to `LEVELS` blocks, else one.
    """

    def __init__(self, kind: int, lane_of: NDArray[np.uint8], lanes_per_block: int) -> None:
        self._kind = kind
        self._lane_of = lane_of
        self._per = lanes_per_block
        self._levels = LEVELS if kind == TAP else 1
        self._table = no_records(PATH)
        self._groups = np.zeros(0, np.int64)
        """int64[blocks+]: the group of each block, its flow times `LEVELS` plus its level."""
        self._block_of = np.zeros(0, np.int32)
        """int32[flows+ * LEVELS]: one plus the block of a group, 0 while it has no packets."""

    @property
    def paths(self) -> NDArray[Any]:
        """The records in use, PATH[n], in order of first appearance."""
        return self._table.records[: int(self._table.used[_PATHS])]

    def places(self) -> tuple[Ints, Ints, Ints]:
        """Flow, level and lane in the block of each record in use."""
        block, lane = np.divmod(self.paths["lane"], self._per)
        if self._levels == 1:
            return block, np.zeros(len(block), np.int64), lane
        flow, level = np.divmod(self._groups[block], LEVELS)
        return flow, level, lane

    def switches(self, flow: int, level: int, lane: int) -> int:
        """Path changes of a lane that has records."""
        block = flow if self._levels == 1 else int(self._block_of[flow * LEVELS + level]) - 1
        return int(self._table.lanes["switches"][block * self._per + lane])

    def add(self, batch: TrackedBatch) -> None:
        """Count the rows of one batch."""
        self._grow_flows(batch.n_flows)
        row: Int = 0
        while True:
            row = _count_rows(
                row,
                batch.rows,
                self._kind,
                self._lane_of,
                self._per,
                self._block_of,
                self._groups,
                self._table,
            )
            if row == len(batch):
                return
            if self._levels > 1 and self._used_blocks == len(self._groups):
                self._grow_blocks(len(self._groups) + 1)
            if self._table.used[_PATHS] == len(self._table.records):
                self._table = reserved(self._table, len(self._table.records) + 1)

    def merge(
        self,
        other: PathTable,
        flow_map: NDArray[np.int32],
        key_map: NDArray[np.int64] | None = None,
    ) -> None:
        """Add a table of later rows; its flow i is our flow `flow_map[i]`.

        Its key k is our `key_map[k]` if given (taps), else k.
        """
        if not len(flow_map):
            return
        added, other_lanes = other.paths, other._table.lanes
        if key_map is not None:
            added, other_lanes = added.copy(), other_lanes.copy()
            added["key"] = key_map[added["key"]]
            begun = other_lanes["paths"] > 0
            for name in ("first_key", "last_key"):
                other_lanes[name][begun] = key_map[other_lanes[name][begun]]
        self._grow_flows(int(flow_map.max()) + 1)
        self._table = reserved(self._table, len(self.paths) + len(added))
        block_map = self._blocks(other, flow_map)
        lane_map = (block_map[:, None] * self._per + np.arange(self._per)).reshape(-1)
        begun = self._table.lanes["paths"] > 0
        _add_paths(added, lane_map, self._table)
        _add_lanes(other_lanes[: len(lane_map)], lane_map, begun, self._table)

    def _blocks(self, other: PathTable, flow_map: Int32s) -> Ints:
        """int64[blocks of the other]: ours, made where they are new."""
        if self._levels == 1:
            return flow_map.astype(np.int64)
        flow, level = np.divmod(other._groups[: other._used_blocks], LEVELS)
        groups = flow_map[flow].astype(np.int64) * LEVELS + level
        new, used = np.unique(groups[self._block_of[groups] == 0]), self._used_blocks
        self._grow_blocks(used + len(new))
        self._groups[used : used + len(new)] = new
        self._block_of[new] = np.arange(used + 1, used + len(new) + 1)
        self._table.used[_BLOCKS] += len(new)
        return self._block_of[groups].astype(np.int64) - 1

    def keep(self, kept: Kept) -> None:
        """Only these flows stay."""
        blocks = kept
        if self._levels > 1:
            flow, level = np.divmod(self._groups[: self._used_blocks], LEVELS)
            blocks = kept_flows(kept.number[flow] >= 0)
            groups = kept.number[flow[blocks.flows]].astype(np.int64) * LEVELS
            self._groups[: len(groups)] = groups + level[blocks.flows]
            self._table.used[_BLOCKS] = len(groups)
            self._block_of[:] = 0
            self._block_of[self._groups[: len(groups)]] = np.arange(1, len(groups) + 1)
        self._table = kept_records(self._table, blocks, self._per)

    @property
    def _used_blocks(self) -> int:
        return int(self._table.used[_BLOCKS])

    def _grow_flows(self, flows: int) -> None:
        if self._levels > 1:
            self._block_of = roomier(self._block_of, flows * LEVELS)
        else:
            self._grow_lanes(flows * self._per)

    def _grow_blocks(self, blocks: int) -> None:
        self._groups = roomier(self._groups, blocks)
        self._grow_lanes(len(self._groups) * self._per)

    def _grow_lanes(self, lanes: int) -> None:
        self._table = self._table._replace(lanes=roomier(self._table.lanes, lanes))
