"""Stage map: decode one capture and split its rows by host pair."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, chdir
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np

from ..analyzer.decode.control import CmMessage
from ..analyzer.decode.decoder import Source
from ..analyzer.decode.grants import GRANT_COLUMNS, GRANT_ROW
from ..analyzer.decode.merge import Limit, Marked, cuts, marks_in, marks_of, steps_back
from ..analyzer.errors import UnreadableInput, UsageError
from ..analyzer.filtering.compiler import Filter
from ..analyzer.measures.series import Totals
from ..analyzer.pipeline.captures import BATCH_FRAMES, open_sources
from ..analyzer.pipeline.options import Progress
from ..analyzer.results.captures import CaptureSummary
from ..analyzer.summary.trust import capture_summary
from ..analyzer.wire.packets import COLUMNS, I64, PacketTable
from ..analyzer.wire.registry import Registry, SegmentLists
from ..analyzer.wire.taps import Tap
from .work import (
    ColumnWriter,
    Partitions,
    Plan,
    Work,
    analyze_options,
    check_unchanged,
    read_plan,
    write_record,
)

_GRANTS = {f"grant_{column.name}": column.name for column in GRANT_COLUMNS}
ROWS = {
    **{column.name: column.dtype for column in COLUMNS},
    "table": np.dtype(np.uint32),
    "row": np.dtype(np.uint32),
    "is_grant": np.dtype(np.uint8),
    **{name: GRANT_ROW[field] for name, field in _GRANTS.items()},
}
"""Columns of a part: those of packet tables, the table of each row in its capture, its number in
the table, and what it grants."""
_MOST_PENDING_ROWS = 1 << 20


class Capture(msgspec.Struct, frozen=True):
    """What stage map found out about one capture; numbers are those of its own registry."""

    summary: CaptureSummary
    """`wire_bytes` of taps are not known yet."""
    taps: list[Tap]
    """Those of the captures before it, then its own."""
    tap_table: list[int]
    """The table with which each of its own taps appeared; -1 when it was opened."""
    tap_first_ns: list[int | None]
    """`first_time_ns` of each of its own taps when it appeared."""
    tap_row: list[tuple[int, int] | None]
    """Table and time of the first row of each of its own taps; only with a filter."""
    addresses: list[str]
    address_table: list[int]
    """The table with which each address appeared."""
    segments: list[list[str]]
    """Segment lists, hexadecimal."""
    segment_table: list[int]
    partition_rows: list[int]
    """Rows of each partition; one without rows has no file."""
    table_rows: list[int]
    marks: bytes
    """int64: `decode.merge.marks_of` its tables with rows, if there are other captures."""
    table_last_tap: list[int]
    """Highest tap of each table; 0 for an empty one."""
    cm: list[tuple[int, CmMessage]]
    """Connection management messages with the table that they came with."""
    owner_comments: list[str]
    outer_labels: bool


def map_capture(folder: str, number: int, tell: Callable[[Progress], None] | None = None) -> None:
    """Task `number` of stage map, unless it is done. Errors as `analyze`."""
    work = Work(folder)
    plan = read_plan(work)
    if not 0 <= number < len(plan.sources):
        raise UsageError(f"map {number}: the plan has captures 0 to {len(plan.sources) - 1}")
    if work.done(plan.digest, "map", number):
        return
    source = plan.sources[number]
    options = analyze_options(plan)
    registry = Registry(segments=SegmentLists(options.usid), ethers=options.ethers)
    for tap in plan.taps[: source.taps_before]:
        registry.taps.add(replace(tap))
    relative = not all(plan.place(file) == file.path for file in source.files)
    if relative and not os.path.isdir(plan.folder):
        raise UnreadableInput(
            f"{plan.folder}: no such folder here: the plan names captures relative to it"
        )
    check_unchanged(plan, source)
    with ExitStack() as stack:
        folder = stack.enter_context(work.task("map", str(number)))
        if relative and os.getcwd() != plan.folder:
            stack.enter_context(chdir(plan.folder))
        paths = [file.path for file in source.files]
        (opened,) = stack.enter_context(open_sources(paths, options, registry))
        packet_filter = None if options.filter is None else Filter(options.filter)
        split = _Split(plan, registry, folder, source.taps_before)
        split.read(opened, packet_filter, tell)
        check_unchanged(plan, source)
        capture = split.capture(opened, options.icrc)
        write_record(os.path.join(folder, "capture"), capture, plan.digest)


class _Split:
    """The rows of one capture on their way into the parts."""

    def __init__(self, plan: Plan, registry: Registry, folder: str, taps_before: int) -> None:
        self._plan = plan
        self._registry = registry
        self._folder = folder
        self._partitions = Partitions(plan.partitions)
        self._writers: dict[int, ColumnWriter] = {}
        self._sorts = len(plan.sources) > 1
        self._taps_before = taps_before
        self._partition_rows = np.zeros(plan.partitions, np.int64)
        self._rows: list[int] = []
        self._marks: list[I64] = []
        self._last_tap: list[int] = []
        self._tap_table = [-1] * (len(registry.taps) - taps_before)
        self._tap_first_ns = [tap.first_time_ns for tap in registry.taps.items[taps_before:]]
        self._tap_row: dict[int, tuple[int, int]] = {}
        self._address_table: list[int] = []
        self._segment_table: list[int] = []
        self._cm: list[tuple[int, CmMessage]] = []

    def read(
        self,
        source: Source,
        packet_filter: Filter | None,
        tell: Callable[[Progress], None] | None,
    ) -> None:
        """Read the capture to its end."""

        def keep(table: PacketTable) -> PacketTable:
            if packet_filter is None:
                return table
            return table.take(packet_filter.mask(table, self._registry, None))

        packets = 0
        for table in source.tables(keep):
            if source.decoder.counters.mrc_packets():
                raise UsageError(
                    f"{source.capture.name} holds MRC packets, whose states cross host pairs:"
                    " use analyze without --cluster"
                )
            self._add(table, source.decoder.take_cm_messages())
            packets += len(table)
            if tell is not None:
                capture = source.capture
                tell(
                    Progress(
                        capture.name,
                        capture.bytes_read,
                        capture.total_bytes,
                        capture.frames,
                        packets,
                    )
                )
        for writer in self._writers.values():
            writer.close()

    def _add(self, table: PacketTable, messages: list[CmMessage]) -> None:
        number = len(self._rows)
        if self._sorts and steps_back(table.time_ns):  # as `decode.merge` does
            table = table.take(np.argsort(table.time_ns, kind="stable"))
        registry = self._registry
        self._cm += [(number, message) for message in messages]
        self._address_table += [number] * (len(registry.endpoints) - len(self._address_table))
        self._segment_table += [number] * (len(registry.segments) - len(self._segment_table))
        for tap in registry.taps.items[self._taps_before + len(self._tap_table) :]:
            self._tap_table.append(number)
            self._tap_first_ns.append(tap.first_time_ns)
        if not number:  # the first frames date the taps that opening showed
            taps = registry.taps.items[self._taps_before :]
            self._tap_first_ns = [tap.first_time_ns for tap in taps]
        self._rows.append(len(table))
        self._last_tap.append(int(table.tap.max()) if len(table) else 0)
        if not len(table):
            return
        if self._plan.options.filter is not None:
            for tap, row in zip(*np.unique(table.tap, return_index=True), strict=True):
                self._tap_row.setdefault(int(tap), (number, int(table.time_ns[row])))
        if self._sorts:
            self._marks.append(marks_of(table.time_ns, BATCH_FRAMES))
        self._partitions.see(registry.endpoints.texts())
        partition = self._partitions.of(table.src, table.dst)
        order = np.argsort(partition, kind="stable")
        bounds = np.searchsorted(partition[order], np.arange(self._plan.partitions + 1))
        self._partition_rows += np.diff(bounds)
        for part in np.flatnonzero(np.diff(bounds)).tolist():
            rows = order[bounds[part] : bounds[part + 1]]
            picked = table.take(rows)
            columns: dict[str, Any] = dict(picked.columns()) | _columns_of_grants(picked)
            columns["table"] = np.full(len(rows), number, np.uint32)
            columns["row"] = rows.astype(np.uint32)
            self._writer(part).write(columns)
        if sum(writer.pending_rows for writer in self._writers.values()) > _MOST_PENDING_ROWS:
            for writer in self._writers.values():
                writer.flush()

    def _writer(self, part: int) -> ColumnWriter:
        if part not in self._writers:
            path = os.path.join(self._folder, f"{part}.parquet")
            self._writers[part] = ColumnWriter(path, ROWS)
        return self._writers[part]

    def capture(self, source: Source, icrc: bool) -> Capture:
        """What was found out, after `read`."""
        registry = self._registry
        series = Totals(self._plan.options.window_ns).series([])
        return Capture(
            summary=capture_summary(source, registry.taps, series, icrc),
            taps=registry.taps.items,
            tap_table=self._tap_table,
            tap_first_ns=self._tap_first_ns,
            tap_row=[
                self._tap_row.get(tap) for tap in range(self._taps_before, len(registry.taps))
            ],
            addresses=registry.endpoints.texts(),
            address_table=self._address_table,
            segments=[
                [f"{segment:x}" for segment in registry.segments.segments(n + 1)]
                for n in range(len(registry.segments))
            ],
            segment_table=self._segment_table,
            partition_rows=self._partition_rows.tolist(),
            table_rows=self._rows,
            marks=b"".join(marks.tobytes() for marks in self._marks),
            table_last_tap=self._last_tap,
            cm=self._cm,
            owner_comments=list(source.capture.owner_comments),
            outer_labels=bool(source.decoder.flow_labels.outer),
        )


def _columns_of_grants(table: PacketTable) -> dict[str, Any]:
    """The grants of a table as columns for all its rows."""
    names = ("is_grant", *_GRANTS)
    columns: dict[str, Any] = {name: np.zeros(len(table), ROWS[name]) for name in names}
    if table.grants is not None:
        rows = table.grants["row"]
        columns["is_grant"][rows] = 1
        for name, field in _GRANTS.items():
            columns[name][rows] = table.grants[field]
    return columns


def grants_of(columns: dict[str, Any]) -> Any:
    """GRANT_ROW of the rows of a part; None without any."""
    rows = np.flatnonzero(columns["is_grant"])
    if not len(rows):
        return None
    grants = np.zeros(len(rows), GRANT_ROW)
    grants["row"] = rows
    for name, of_grant in _GRANTS.items():
        grants[of_grant] = columns[name][rows]
    return grants


# The order in which one process would measure the rows of several captures.
#
# `decode.merge` takes the rows of all captures in cuts and passes them on in chunks of a few cuts.
# A few times of each table tell all cuts and chunks (`decode.merge`). Chunks matter: flows found to
# be one connection are so for all rows of a chunk.

KEY = np.dtype([("chunk", np.int64), ("time", np.int64), ("front", np.int64), ("row", np.int64)])
"""Place of a row in the order of one process: lexicographic. A front are the rows of one capture in
one cut of the merge."""


def in_order(keys: Any) -> Any:
    """int64[rows]: the order of one process."""
    return np.lexsort((keys["row"], keys["front"], keys["time"], keys["chunk"]))


@dataclass(slots=True)
class Outline:
    """What stage merge needs of all partitions at once."""

    flow_keys: Any = field(default_factory=lambda: np.zeros(0, KEY))
    """KEY[flows]: place of the first row of each flow."""
    event_keys: Any = field(default_factory=lambda: np.zeros(0, KEY))
    """KEY[events]: place of the row of each event of the tracker."""
    flows: Any = None
    """FLOW[flows]."""
    events: Any = None
    """EVENT[events]."""
    used: Any = None
    """Counts of the tracker, see `track.state`."""
    packets: int = 0
    late_rows: int = 0


@dataclass(frozen=True, slots=True)
class MarkedTables:
    """The tables of one capture as far as the order depends on them."""

    rows: I64
    """int64[tables]"""
    marks: I64
    """`decode.merge.marks_of` all tables with rows, one after the other."""
    apart: frozenset[int]
    """Tables whose rows follow in another chunk than those before they were decoded."""

    def marked(self, source: int, batch_rows: int) -> list[Marked | None]:
        """Each table; None for an empty one."""
        tables: list[Marked | None] = []
        start = 0
        for rows in self.rows.tolist():
            if not rows:
                tables.append(None)
                continue
            end = start + marks_in(rows, batch_rows)
            tables.append(Marked(source, rows, self.marks[start:end], batch_rows))
            start = end
        return tables


@dataclass(frozen=True, slots=True)
class Chunks:
    """Which rows each chunk has."""

    count: int
    single: bool
    """One capture: its tables are the cuts and the chunks."""
    _decoded: list[I64]
    """Per capture, int64[tables]: the cut before which each table is decoded."""
    _ends: list[I64]
    """Per capture, int64[tables]: the cut that has the last row of each; -1 for an empty table."""
    _limits_ns: I64
    """int64[cuts]: the time of each limit."""
    _limited_by: I64
    """int64[cuts]: its capture."""
    _chunk: I64
    """int64[cuts]: the chunk of each."""

    def key_rows(self, keys: Any, source: int, table: int, time_ns: I64) -> None:
        """Set the places of rows of one table, sorted by time, but for their numbers in it."""
        if self.single:
            keys["chunk"] = table
            return
        first, end = int(self._decoded[source][table]), int(self._ends[source][table])
        # Of rows of equal time those of earlier captures are first.
        limits = self._limits_ns[first : end + 1] - (self._limited_by[first : end + 1] < source)
        cut = first + np.searchsorted(np.maximum.accumulate(limits), time_ns, "left")
        keys["chunk"], keys["time"] = self._chunk[cut], time_ns
        keys["front"] = cut * len(self._decoded) + source

    def late_rows(self, source: int, table: int, time_ns: I64) -> int:
        """How many of the rows of a table are older than rows passed on before it was decoded."""
        first = int(self._decoded[source][table])
        if self.single or not first:
            return 0
        return int(np.searchsorted(time_ns, self._limits_ns[:first].max()))

    def known_in(self, source: int, table: int) -> int:
        """The first chunk that is measured after a table was decoded: rows are passed on when the
        next ones are."""
        cut = int(self._decoded[source][table])
        return self._chunk_of(cut if self.single else max(cut - 1, 0))

    def goes_with(self, source: int, table: int) -> int:
        """The chunk that gets what the decoder found beside the rows of a table."""
        return self._chunk_of(int(self._decoded[source][table]))

    def _chunk_of(self, cut: int) -> int:
        return int(self._chunk[cut]) if cut < len(self._chunk) else self.count

    def decoding(self) -> list[tuple[int, int]]:
        """(capture, table) in the order in which one process decodes them."""
        cut = np.concatenate([*self._decoded, np.zeros(0, np.int64)])
        source = np.repeat(np.arange(len(self._decoded)), [len(d) for d in self._decoded])
        table = np.concatenate([np.arange(len(d)) for d in self._decoded])
        order = np.lexsort((table, source, cut))
        return list(zip(source[order].tolist(), table[order].tolist(), strict=True))


def chunks_of(captures: Sequence[MarkedTables], batch_rows: int) -> Chunks:
    """The chunks of captures; batch_rows: `rows` of `merge_tables`."""
    if len(captures) == 1:
        tables = np.arange(len(captures[0].rows))
        nothing = np.zeros(0, np.int64)
        return Chunks(len(tables), True, [tables], [tables], nothing, nothing, tables)
    tables_of = [c.marked(source, batch_rows) for source, c in enumerate(captures)]
    decoded = [np.zeros(len(tables), np.int64) for tables in tables_of]
    ends = [np.full(len(tables), -1, np.int64) for tables in tables_of]
    limits: list[Limit] = []
    chunk: list[int] = []
    at = [-1] * len(captures)
    """The table of each capture that waits."""
    waiting: list[Marked] = []
    handed_on_ns = np.iinfo(np.int64).min

    def read() -> tuple[list[Marked], bool]:
        apart = False
        left = {table.source: table for table in waiting if not limits or table.end > limits[-1]}
        for source, tables in enumerate(tables_of):
            while source not in left and at[source] + 1 < len(tables):
                at[source] += 1
                decoded[source][at[source]] = len(limits)
                apart |= at[source] in captures[source].apart
                if (table := tables[at[source]]) is not None:
                    left[source] = table
                    apart |= table.first_ns < handed_on_ns
        waiting[:] = [left[source] for source in sorted(left)]
        return waiting, apart

    for limit, begins in cuts(read, batch_rows):
        for table in waiting:
            if table.end <= limit:
                ends[table.source][at[table.source]] = len(limits)
        chunk.append(chunk[-1] + begins if chunk else 0)
        limits.append(limit)
        handed_on_ns = max(handed_on_ns, limit[0])
    times, sources = zip(*limits, strict=True) if limits else ((), ())
    return Chunks(
        chunk[-1] + 1 if chunk else 0,
        False,
        decoded,
        ends,
        np.array(times, np.int64),
        np.array(sources, np.int64),
        np.array(chunk, np.int64),
    )
