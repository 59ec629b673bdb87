"""Arrays that follow the flows of an analysis: they grow, leave memory, merge and are saved here.

A measure with state per flow is a `PerFlow`. Its arrays are the fields of a named tuple, the
argument of its kernels; `layout` declares how each of them follows the flows. All else is common:

- `grow`: room for more flows, at least twice as much as before;
- `keep`: some flows stay, the others leave memory. Afterwards flow `kept.flows[i]` has the number
  i, and the measure is as if the other flows had never been seen. Arrays keep their length: memory
  behind the kept flows is zero and untouched, so it costs nothing until flows come;
- `merge`: the flows of another measure join, with other numbers. No flow is in both: parts of an
  analysis have no host pair in common;
- `saved` and `restore`: a file holds the used part of each array.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from ...kernels.kernel import Array, Bools, Bytes, Int32s, Ints, NamedTuple

_PIECE = 1 << 16
"""Records that are copied at once."""
_PIECE_BYTES = 1 << 22
_SPARSE_BYTES = 1 << 26
_MAP_NORESERVE = 0x4000  # Linux value; Python's mmap has no name for it before 3.13


class Kept(NamedTuple):
    """Which flows stay, and their new numbers."""

    flows: Ints
    """int64[kept flows]: present numbers, ascending."""
    number: Int32s
    """int32[present flows]: the new number of each flow, -1 for those that leave."""

    def of(self, known: int) -> Ints:
        """The kept flows below `known`: those of an array that has not grown to all flows."""
        return self.flows[: int(np.searchsorted(self.flows, known))]

    def holds(self, flows: Array) -> Bools:
        """Which of these flow numbers stay. Negative numbers (no flow) do not."""
        kept: Bools = (flows >= 0) & (self.number[flows] >= 0)
        return kept


def kept_flows(stays: Bools) -> Kept:
    """stays: bool[flows]."""
    flows = np.flatnonzero(stays)
    number = np.full(len(stays), -1, np.int32)
    number[flows] = np.arange(len(flows), dtype=np.int32)
    return Kept(flows, number)


def untouched(array: Any) -> Any:
    """Zeros of the same form; memory costs nothing until it is written (`zeros_like` writes it)."""
    return np.zeros(array.shape, array.dtype)


def longer(array: Any, length: int, used: int | None = None) -> Any:
    """`array` with at least `length` rows: its first `used`, by default all, then zeros."""
    if length <= len(array):
        return array
    new = np.zeros((length, *array.shape[1:]), array.dtype)
    kept = array[:used]  # rows after the end may count as used already
    new[: len(kept)] = kept
    return new


def roomier(array: Any, length: int) -> Any:
    """The same, and twice as long or more if it grows: adding rows one by one stays cheap."""
    return array if length <= len(array) else longer(array, max(length, 2 * len(array), 64))


def front_of(pool: Any, places: Ints) -> Any:
    """`pool` with these records first, and zeros after them."""
    new = untouched(pool)
    copy_rows(pool, places, new, np.arange(len(places)))
    return new


def sparse_zeros(shape: tuple[int, ...], dtype: Any) -> Any:
    """Zeros without reserved memory: pages are allocated on the first write.

    The pools of 100,000 flows span more address space than many machines have memory; the kernel
    would refuse ordinary memory of that size.
    """
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if size < _SPARSE_BYTES:
        return np.zeros(shape, dtype)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    return np.frombuffer(mmap.mmap(-1, size, flags=flags), dtype).reshape(shape)


def copy_rows(source: Any, rows: Ints, target: Any, places: Ints) -> None:
    """Copy rows of one array to places of another, in pieces: a copy of all doubles the memory."""
    step = max(_PIECE_BYTES // max(source[:1].nbytes, 1), 1)
    for piece in range(0, len(rows), step):
        target[places[piece : piece + step]] = source[rows[piece : piece + step]]


def move_tables(pool: Any, first: Ints, bits: Bytes, new: Any, to: Ints) -> None:
    """Copy tables of 1 << bits records, 0: no table; a record has a multiple of eight bytes.

    first, to: places of their first records in `pool` and in `new`, which is zero there. All tables
    of one size at once, in pieces: a copy per table takes most of the time of an ending. Records of
    zeros are not written: most of a table is memory that was never touched.
    """
    for size in np.unique(bits[bits > 0]).tolist():
        tables, within = np.flatnonzero(bits == size), np.arange(1 << size)
        step = max(_PIECE >> size, 1)
        for piece in range(0, len(tables), step):
            some = tables[piece : piece + step]
            records = pool[(first[some][:, None] + within).reshape(-1)]
            there = (to[some][:, None] + within).reshape(-1)
            held = records.view(np.uint64).reshape(len(there), -1).any(axis=1)
            new[there[held]] = records[held]


class Rows(NamedTuple):
    """An array with `per` rows for each flow, zero until they are written."""

    per: int = 1


class Pool(NamedTuple):
    """An array of records of those flows that have one."""

    reference: tuple[str, str | None]
    """The array that refers to the records, and its field, None without fields: 1 + the place of a
    record, 0 without one."""
    used: int
    """Item of `used` that counts the records in use."""
    full: bool = True
    """Room for a record of every reference, so that kernels never run out; else the measure grows
    the array with `reserve`."""


class Tables(NamedTuple):
    """An array of tables of 1 << bits records, of those flows that have one."""

    holder: str
    """The array that refers to the tables."""
    first: str
    """Its field with the first record of a table, counted from `base`."""
    bits: str
    """Its field with the size; 0 without a table."""
    used: int
    """Item of `used` that counts the records in use."""
    base: int = 0
    room: str | None = None
    """Its field with the size of the place that the table may grow to, by default its own."""
    records_each: int = 0
    """Room for this many records of every row of `holder`; 0: the measure grows the array with
    `reserve`."""


Arrays = TypeVar("Arrays", bound=tuple[Any, ...])


class PerFlow(Generic[Arrays]):
    """State per flow. Attributes that are `PerFlow` themselves follow the same flows."""

    layout: ClassVar[Mapping[str, Rows | Pool | Tables]] = {}
    """How the arrays follow the flows, by their names; arrays of others are left alone. Those that
    are referred to stand before those that they refer to."""
    fewest: ClassVar[int] = 64
    """Flows for which there is room at least."""

    def __init__(self, arrays: Arrays) -> None:
        """arrays: each of `layout` without rows, of its dtype and form; `used` counts records."""
        self.arrays = arrays
        self.known_flows = 0
        """Flows that have state."""

    @property
    def _parts(self) -> list[tuple[str, PerFlow[Any]]]:
        return [(name, part) for name, part in vars(self).items() if isinstance(part, PerFlow)]

    @property
    def _capacity(self) -> int:
        for name, follows in self.layout.items():
            if isinstance(follows, Rows):
                return len(getattr(self.arrays, name)) // follows.per
        return self.known_flows

    def grow(self, flows: int) -> None:
        """Have room for this many flows."""
        for _, part in self._parts:
            part.grow(flows)
        if flows > self.known_flows:
            self.known_flows = flows
            if flows > self._capacity:
                self.make_room(max(flows, 2 * self._capacity, self.fewest))

    def make_room(self, flows: int) -> None:
        """Lengthen the arrays for this many flows; memory that nothing writes costs nothing."""
        for name, follows in self.layout.items():
            array = getattr(self.arrays, name)
            if isinstance(follows, Rows):
                self._set(name, longer(array, flows * follows.per))
                continue
            if isinstance(follows, Pool):
                wanted = self._references(follows).size if follows.full else 0
            else:
                wanted = len(getattr(self.arrays, follows.holder)) * follows.records_each
            if wanted > len(array):
                used = self._used(follows)
                new = sparse_zeros((wanted, *array.shape[1:]), array.dtype)
                new[:used] = array[:used]
                self._set(name, new)

    def reserve(self, name: str, records: int) -> None:
        """Lengthen a pool, or an array of tables, to at least this many records."""
        self._set(name, longer(getattr(self.arrays, name), records, self._used(self.layout[name])))

    def keep(self, kept: Kept) -> None:
        """Only these flows stay."""
        for _, part in self._parts:
            part.keep(kept)
        stay = kept.of(self.known_flows)
        self._take(self, stay, np.arange(len(stay)), fresh=True)
        self.known_flows = len(stay)

    def merge(self, other: Self, flow_map: Int32s) -> None:
        """Take the flows of another measure, none of which is known here.

        Its flow i is our flow `flow_map[i]`.
        """
        for name, part in self._parts:
            part.merge(getattr(other, name), flow_map)
        flow_map = flow_map[: other.known_flows]
        if len(flow_map):
            self.grow(int(flow_map.max()) + 1)
            self._take(other, np.arange(len(flow_map)), flow_map.astype(np.int64), fresh=False)

    def saved(self) -> dict[str, Any]:
        """The attributes for a file, with the used part of each array."""
        arrays: Any = self.arrays
        for name, follows in self.layout.items():
            used = (
                self.known_flows * follows.per if isinstance(follows, Rows) else self._used(follows)
            )
            arrays = arrays._replace(**{name: getattr(arrays, name)[:used]})
        return vars(self) | {"arrays": arrays}

    def restore(self) -> None:
        """After the attributes were read from a file: make the room that kernels expect."""
        self.make_room(self.known_flows)

    def _take(self, other: Self, flows: Ints, places: Ints, fresh: bool) -> None:
        """Copy flows of `other` to these places; of itself, to `fresh` arrays.

        One array after the other: copies of all of them at once would double the memory.
        """
        written: dict[str, Ints] = {}
        moved: dict[tuple[str, str | None], tuple[Ints, Ints]] = {}
        for name, follows in self.layout.items():
            source = getattr(other.arrays, name)
            if fresh:
                sparse = isinstance(follows, Pool) and follows.full
                self._set(
                    name, sparse_zeros(source.shape, source.dtype) if sparse else untouched(source)
                )
            if isinstance(follows, Rows):
                each = np.arange(follows.per)
                written[name] = (places[:, None] * follows.per + each).reshape(-1)
                rows = (flows[:, None] * follows.per + each).reshape(-1)
                copy_rows(source, rows, getattr(self.arrays, name), written[name])
            elif isinstance(follows, Pool):
                if follows.reference not in moved:
                    moved[follows.reference] = self._renumber(follows, written, fresh)
                records, written[name] = moved[follows.reference]
                self._hold(name, self._used(follows))
                copy_rows(source, records, getattr(self.arrays, name), written[name])
            else:
                self._take_tables(name, follows, source, written[follows.holder], fresh)

    def _renumber(
        self, follows: Pool, written: Mapping[str, Ints], fresh: bool
    ) -> tuple[Ints, Ints]:
        """New references in the rows written: records of the other measure, and their places."""
        references, rows = self._references(follows), written[follows.reference[0]]
        numbers = references[rows].astype(np.int64)
        held = numbers > 0
        records = numbers[held] - 1
        places = np.arange(len(records)) + (0 if fresh else self._used(follows))
        numbers[held] = places + 1
        references[rows] = numbers
        self._count(follows, len(records), fresh)
        return records, places

    def _take_tables(
        self, name: str, follows: Tables, source: Any, rows: Ints, fresh: bool
    ) -> None:
        holder = getattr(self.arrays, follows.holder)
        bits = holder[follows.bits][rows]
        room = bits if follows.room is None else holder[follows.room][rows]
        sizes = np.where(bits > 0, np.int64(1) << room.astype(np.int64), 0)
        first = holder[follows.first][rows].astype(np.int64) - follows.base
        places = np.cumsum(sizes) - sizes + (0 if fresh else self._used(follows))
        self._count(follows, int(sizes.sum()), fresh)
        self._hold(name, self._used(follows))
        move_tables(source, first, bits, getattr(self.arrays, name), places)
        held = sizes > 0
        holder[follows.first][rows[held]] = places[held] + follows.base

    def _references(self, follows: Pool) -> Any:
        name, field = follows.reference
        array = getattr(self.arrays, name)
        return array if field is None else array[field]

    def _used(self, follows: Rows | Pool | Tables) -> int:
        arrays: Any = self.arrays
        return 0 if isinstance(follows, Rows) else int(arrays.used[follows.used])

    def _count(self, follows: Pool | Tables, more: int, fresh: bool) -> None:
        arrays: Any = self.arrays
        arrays.used[follows.used] = more + (0 if fresh else self._used(follows))

    def _hold(self, name: str, records: int) -> None:
        if records > len(getattr(self.arrays, name)):
            self.reserve(name, records)

    def _set(self, name: str, array: Any) -> None:
        arrays: Any = self.arrays
        self.arrays = arrays._replace(**{name: array})


class CodeArrays(NamedTuple):
    """Arrays of `CodeCounts`."""

    packets: Ints
    """int64[flows, columns]: one column per code, in the order in which codes appeared."""
    column: Int32s
    """int32[codes]: the column of each code, -1 while it is unseen."""


class CodeCounts(PerFlow[CodeArrays]):
    """Packets of each flow by a small number, of which most captures use few values."""

    layout: ClassVar = {"packets": Rows()}

    def __init__(self, codes: int, few: int) -> None:
        """few: columns to begin with."""
        super().__init__(CodeArrays(np.zeros((0, few), np.int64), np.full(codes, -1, np.int32)))

    def see(self, code: int) -> None:
        """Have a column for this code."""
        column = self.arrays.column
        if column[code] >= 0:
            return
        used, (rows, columns) = int(column.max()) + 1, self.arrays.packets.shape
        if used == columns:
            wider = np.zeros((rows, 2 * columns), np.int64)
            wider[: self.known_flows, :columns] = self.arrays.packets[: self.known_flows]
            self._set("packets", wider)
        column[code] = used

    def of(self, flows: Any) -> Ints:
        """int64[flows, codes]: the packets of these flows, or int64[codes] of one."""
        packets, column = self.arrays
        counts = np.zeros((*np.shape(flows), len(column)), np.int64)
        seen = np.flatnonzero(column >= 0)
        counts[..., seen] = packets[flows][..., column[seen]]
        return counts

    def merge(self, other: CodeCounts, flow_map: Int32s) -> None:
        """Take the flows of another measure; see `PerFlow.merge`."""
        codes, flow_map = np.flatnonzero(other.arrays.column >= 0), flow_map[: other.known_flows]
        for code in codes.tolist():
            self.see(code)
        if len(flow_map):
            self.grow(int(flow_map.max()) + 1)
            ours, theirs = self.arrays.column[codes], other.arrays.column[codes]
            packets = other.arrays.packets[: len(flow_map)][:, theirs]
            self.arrays.packets[flow_map[:, None], ours] = packets
