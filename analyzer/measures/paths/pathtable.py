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

from ....kernels.kernel import (
    Bools,
    Bytes,
    Int,
    Int32s,
    Ints,
    UInt16s,
    UInt32s,
    UInt64s,
    inlined,
    kernel,
)
from ...statistics.keeping import Kept, kept_flows, longer, roomier, rows_of
from ...track.batch import OVERTAKEN, REORDERED, TAP_COPY, TrackedBatch
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


@inlined
def find_record(
    lane: Int,
    key: Int,
    lanes: Records,
    paths: Records,
    slots: Int32s,
    used: Ints,
    salt: UInt64s,
) -> Int:
    """The record of (lane, key), created if new; -1 when the table is full."""
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


@kernel
def _count_rows(
    start: int,
    kind: int,
    lane_of: Bytes,
    lanes_per_block: int,
    flow: Int32s,
    verdict: Bytes,
    opcode: Bytes,
    udp_sport: UInt16s,
    flow_label: UInt32s,
    tap: UInt16s,
    hop_limit: Bytes,
    evidence: UInt32s,
    traffic_class: Bytes,
    wire_bytes: UInt32s,
    time_ns: Ints,
    block_of: Int32s,
    groups: Ints,
    lanes: Records,
    paths: Records,
    slots: Int32s,
    used: Ints,
    salt: UInt64s,
) -> int:
    """Count rows from `start`; returns their number, or the row at which the table is full."""
    mask = len(slots) - 1
    salt_lane, salt_key = salt[0], salt[1]
    for i in range(start, len(flow)):
        lane = np.int64(flow[i]) * lanes_per_block + np.int64(lane_of[opcode[i]])
        if kind == TAP:
            key = np.int64(tap[i])
            group = np.int64(flow[i]) * LEVELS + (np.int64(hop_limit[i]) & (LEVELS - 1))
            if block_of[group] == 0:
                if used[_BLOCKS] == len(groups):
                    return i
                groups[used[_BLOCKS]] = group
                used[_BLOCKS] += 1
                block_of[group] = used[_BLOCKS]
            block = np.int64(block_of[group]) - 1
            lane = block * lanes_per_block + np.int64(lane_of[opcode[i]])
        elif verdict[i] == TAP_COPY:
            continue
        elif kind == ENTROPY:
            key = np.int64(flow_label[i]) << 16 | np.int64(udp_sport[i])
        else:
            key = np.int64(evidence[i])

        if lanes[lane].paths and lanes[lane].last_key == key:
            record = np.int64(lanes[lane].path)
        else:
            begun = lanes[lane].paths > 0
            # The search of `find_record`, inlined: a call would count references to five arrays.
            slot = _slot(lane, key, salt_lane, salt_key, mask)
            record = np.int64(slots[slot])
            while record != _EMPTY and (paths[record].lane != lane or paths[record].key != key):
                slot = (slot + 1) & mask
                record = np.int64(slots[slot])
            if record == _EMPTY:
                record = np.int64(find_record(lane, key, lanes, paths, slots, used, salt))
                if record < 0:
                    return i
            if begun:
                lanes[lane].switches += 1
            else:
                lanes[lane].first_key = key
            lanes[lane].last_key = key
            lanes[lane].path = record
        paths[record].packets += 1
        paths[record].wire_bytes += np.int64(wire_bytes[i])
        if verdict[i] == REORDERED or verdict[i] == OVERTAKEN:
            paths[record].late += 1
        if traffic_class[i] & 3 == _CE:
            paths[record].marked += 1
        if time_ns[i] < paths[record].first_ns:
            paths[record].first_ns = time_ns[i]
        if time_ns[i] > paths[record].last_ns:
            paths[record].last_ns = time_ns[i]
    return len(flow)


@kernel
def _add_paths(
    added: Records,
    lane_map: Ints,
    lanes: Records,
    paths: Records,
    slots: Int32s,
    used: Ints,
    salt: UInt64s,
) -> None:
    """Add records of another table; the caller has grown the table."""
    for a in range(len(added)):
        lane = lane_map[added[a].lane]
        record = find_record(lane, np.int64(added[a].key), lanes, paths, slots, used, salt)
        paths[record].packets += added[a].packets
        paths[record].wire_bytes += added[a].wire_bytes
        paths[record].late += added[a].late
        paths[record].marked += added[a].marked
        paths[record].first_ns = min(paths[record].first_ns, added[a].first_ns)
        paths[record].last_ns = max(paths[record].last_ns, added[a].last_ns)


@kernel
def _add_lanes(
    added: Records,
    lane_map: Ints,
    begun: Bools,
    lanes: Records,
    paths: Records,
    slots: Int32s,
    used: Ints,
    salt: UInt64s,
) -> None:
    """Continue lanes with those of another table with later rows."""
    for a in range(len(added)):
        if added[a].paths == 0:
            continue
        lane = lane_map[a]
        if not begun[lane]:
            begun[lane] = True
            lanes[lane].first_key = added[a].first_key
        elif lanes[lane].last_key != added[a].first_key:
            lanes[lane].switches += 1
        lanes[lane].switches += added[a].switches
        lanes[lane].last_key = added[a].last_key
        last = np.int64(added[a].last_key)
        lanes[lane].path = find_record(lane, last, lanes, paths, slots, used, salt)


@kernel
def rehash(paths: Records, used: int, slots: Int32s, salt: UInt64s) -> None:
    mask = len(slots) - 1
    for record in range(used):
        lane, key = np.int64(paths[record].lane), np.int64(paths[record].key)
        slot = _slot(lane, key, salt[0], salt[1], mask)
        while slots[slot] != _EMPTY:
            slot = (slot + 1) & mask
        slots[slot] = record


def kept_records(
    records: NDArray[Any], used: int, kept: Kept, lanes_each: int
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Records with a lane, those of kept flows first with their new lanes, then zeros.

    Also the new place of each record in use, -1 for those that leave. `kept` may be of blocks.
    """
    flow, lane = np.divmod(records["lane"][:used], lanes_each)
    stay = np.flatnonzero(kept.number[flow] >= 0)
    place = np.full(used, -1, np.int64)
    place[stay] = np.arange(len(stay))
    new = np.zeros(records.shape, records.dtype)
    new[: len(stay)] = records[stay]
    new["lane"][: len(stay)] = kept.number[flow[stay]].astype(np.int64) * lanes_each + lane[stay]
    return new, place


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
        self.lanes = np.zeros(0, LANE)
        self._groups = np.zeros(0, np.int64)
        """int64[blocks+]: the group of each block, its flow times `LEVELS` plus its level."""
        self._block_of = np.zeros(0, np.int32)
        """int32[flows+ * LEVELS]: one plus the block of a group, 0 while it has no packets."""
        self._paths = np.zeros(0, PATH)
        self._slots = np.full(2, _EMPTY, np.int32)
        self._used = np.zeros(2, np.int64)
        self._salt = salt(2) | np.uint64(1)

    @property
    def paths(self) -> NDArray[Any]:
        """The records in use, PATH[n], in order of first appearance."""
        return self._paths[: int(self._used[_PATHS])]

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
        return int(self.lanes["switches"][block * self._per + lane])

    def add(self, batch: TrackedBatch) -> None:
        """Count the rows of one batch."""
        self._grow_flows(batch.n_flows)
        table, row = batch.table, 0
        while True:
            row = _count_rows(
                row,
                self._kind,
                self._lane_of,
                self._per,
                batch.flow,
                batch.verdict,
                table.opcode,
                table.udp_sport,
                table.flow_label,
                table.tap,
                table.hop_limit,
                table.path_evidence,
                table.traffic_class,
                table.wire_bytes,
                table.time_ns,
                self._block_of,
                self._groups,
                self.lanes,
                self._paths,
                self._slots,
                self._used,
                self._salt,
            )
            if row == len(batch):
                return
            if self._levels > 1 and self._used[_BLOCKS] == len(self._groups):
                self._grow_blocks(len(self._groups) + 1)
            if self._used[_PATHS] == len(self._paths):
                self._reserve(len(self._paths) + 1)

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
        added, other_lanes = other.paths, other.lanes
        if key_map is not None:
            added, other_lanes = added.copy(), other_lanes.copy()
            added["key"] = key_map[added["key"]]
            begun = other_lanes["paths"] > 0
            for name in ("first_key", "last_key"):
                other_lanes[name][begun] = key_map[other_lanes[name][begun]]
        self._grow_flows(int(flow_map.max()) + 1)
        self._reserve(len(self.paths) + len(added))
        block_map = self._blocks(other, flow_map)
        lane_map = (block_map[:, None] * self._per + np.arange(self._per)).reshape(-1)
        begun = self.lanes["paths"] > 0
        ours = (self.lanes, self._paths, self._slots, self._used, self._salt)
        _add_paths(added, lane_map, *ours)
        _add_lanes(other_lanes[: len(lane_map)], lane_map, begun, *ours)

    def _blocks(self, other: PathTable, flow_map: Int32s) -> Ints:
        """int64[blocks of the other]: ours, made where they are new."""
        if self._levels == 1:
            return flow_map.astype(np.int64)
        flow, level = np.divmod(other._groups[: int(other._used[_BLOCKS])], LEVELS)
        groups = flow_map[flow].astype(np.int64) * LEVELS + level
        new, used = np.unique(groups[self._block_of[groups] == 0]), int(self._used[_BLOCKS])
        self._grow_blocks(used + len(new))
        self._groups[used : used + len(new)] = new
        self._block_of[new] = np.arange(used + 1, used + len(new) + 1)
        self._used[_BLOCKS] += len(new)
        return self._block_of[groups].astype(np.int64) - 1

    def keep(self, kept: Kept) -> None:
        """Only these flows stay."""
        blocks, used = kept, self.paths
        if self._levels > 1:
            flow, level = np.divmod(self._groups[: int(self._used[_BLOCKS])], LEVELS)
            blocks = kept_flows(kept.number[flow] >= 0)
            groups = kept.number[flow[blocks.flows]].astype(np.int64) * LEVELS
            self._groups[: len(groups)] = groups + level[blocks.flows]
            self._used[_BLOCKS] = len(groups)
            self._block_of[:] = 0
            self._block_of[self._groups[: len(groups)]] = np.arange(1, len(groups) + 1)
        self.lanes = rows_of(self.lanes, blocks, self._per)
        self._paths, place = kept_records(self._paths, len(used), blocks, self._per)
        begun = self.lanes["paths"] > 0
        self.lanes["path"][begun] = place[self.lanes["path"][begun]]
        self._used[_PATHS] = int((place >= 0).sum())
        self._slots[:] = _EMPTY
        rehash(self._paths, int(self._used[_PATHS]), self._slots, self._salt)

    def _grow_flows(self, flows: int) -> None:
        if self._levels > 1:
            self._block_of = roomier(self._block_of, flows * LEVELS)
        else:
            self.lanes = roomier(self.lanes, flows * self._per)

    def _grow_blocks(self, blocks: int) -> None:
        self._groups = roomier(self._groups, blocks)
        self.lanes = roomier(self.lanes, len(self._groups) * self._per)

    def _reserve(self, records: int) -> None:
        """Grow to at least `records` records, in a table at most half full."""
        if records <= len(self._paths):
            return
        used = int(self._used[_PATHS])
        capacity = max(64, 1 << (records - 1).bit_length())
        self._paths = longer(self._paths, capacity, used)
        self._slots = np.full(2 * capacity, _EMPTY, np.int32)
        rehash(self._paths, used, self._slots, self._salt)
