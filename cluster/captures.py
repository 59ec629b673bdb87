"""The captures of a plan after stage map, with the numbers that one process would give."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..analyzer.decode.control import CmMessage
from ..analyzer.decode.sessions import unused_name
from ..analyzer.errors import UsageError
from ..analyzer.pipeline.captures import BATCH_FRAMES
from ..analyzer.wire.packets import COLUMNS, U16, U32, PacketTable
from ..analyzer.wire.registry import Registry, SegmentLists, UsidFormat
from ..analyzer.wire.taps import MANY_TAPS
from .split import KEY, Capture, Chunks, MarkedTables, chunks_of, grants_of
from .work import Partitions, Plan, Work, damaged, read_columns, read_record


@dataclass(slots=True)
class NumberedTap:
    """When a tap is known to the analysis."""

    chunk: int
    """Before this chunk."""
    first_ns: int | None
    row_ns: int | None
    """Time of its first row; known with a filter."""


class Captures:
    """The captures of a plan. UsageError while stage map is not complete."""

    def __init__(self, work: Work, plan: Plan) -> None:
        self._work, self._plan = work, plan
        count = len(plan.sources)
        digest = plan.digest
        missing = [n for n in range(count) if not work.done(digest, "map", n)]
        if missing:
            raise UsageError(
                f"stage map is not complete, {len(missing)} of {count} captures are missing:"
                f" run map {missing[0]} ({plan.sources[missing[0]].files[0].path})"
            )
        self.captures = [
            read_record(work.path("map", str(n), "capture"), Capture, digest) for n in range(count)
        ]
        self.chunks: Chunks = chunks_of(
            [
                MarkedTables(
                    np.array(c.table_rows, np.int64),
                    np.frombuffer(c.marks, np.int64),
                    frozenset(table for table, _ in c.cm),
                )
                for c in self.captures
            ],
            BATCH_FRAMES,
        )
        self.registry = Registry(
            segments=SegmentLists(UsidFormat(*plan.options.usid)), ethers=plan.options.ethers
        )
        self.known_taps: list[NumberedTap] = []
        """By tap of `registry`."""
        self.tap_of_name: list[dict[str, int]] = [{} for _ in range(count)]
        """Per capture, the tap in `registry` by the name that stage map gave."""
        self.late_rows = 0
        """Rows read that are older than rows that one process passes on before (`MergeCounts`)."""
        self._addresses: list[U32] = []
        self._segments: list[U32] = []
        self._taps: list[U16] = []
        self.taps_in_rows = np.zeros(self.chunks.count + 1, np.int64)
        """int64[chunks]: taps up to the highest of the rows so far; known with a filter."""
        self._number()
        np.maximum.accumulate(self.taps_in_rows, out=self.taps_in_rows)
        self.cm = self._messages()
        """Connection management messages with their chunk, in order."""
        self.many_from = self._many_from()
        """The chunk from which on several taps are known; -1: from the beginning."""

    def _number(self) -> None:
        """Number addresses, taps and segment lists as one process that decodes all tables does."""
        registry, plan = self.registry, self._plan
        place = {of: n for n, of in enumerate(self.chunks.decoding())}
        taps: list[tuple[int, int, int]] = []
        addresses: list[tuple[int, int, int]] = []
        segments: list[tuple[int, int, int]] = []
        for s, capture in enumerate(self.captures):
            before = len(capture.taps) - len(capture.tap_table)
            for i, table in enumerate(capture.tap_table):
                taps.append((-1 if table < 0 else place[s, table], s, before + i))
            for n, table in enumerate(capture.address_table):
                addresses.append((place[s, table], s, n))
            for n, table in enumerate(capture.segment_table):
                segments.append((place[s, table], s, n))
            self._taps.append(np.zeros(len(capture.taps), np.uint16))
            self._addresses.append(np.zeros(len(capture.addresses), np.uint32))
            self._segments.append(np.zeros(len(capture.segments) + 1, np.uint32))
        if len(taps) >= MANY_TAPS:
            raise UsageError(f"{len(taps)} taps: tasks take fewer than {MANY_TAPS}")
        for _, s, i in sorted(taps):
            capture = self.captures[s]
            tap = capture.taps[i]
            carrier, name = None, tap.name
            if tap.carrier is not None:
                carrier = int(self._taps[s][tap.carrier])
                # Stage map knows the sessions of one capture only.
                name = unused_name(name, registry.taps[carrier].name, registry.taps)
            self._taps[s][i] = registry.taps.add(replace(tap, name=name, carrier=carrier))
            self.tap_of_name[s][tap.name] = int(self._taps[s][i])
            index = i - (len(capture.taps) - len(capture.tap_table))
            table = capture.tap_table[index]
            chunk = 0 if table < 0 else self.chunks.known_in(s, table)
            if (row := capture.tap_row[index]) is not None:
                key = np.zeros(1, KEY)
                self.chunks.key_rows(key, s, row[0], np.array([row[1]]))
                first = int(key["chunk"][0])
                seen = int(self._taps[s][i]) + 1
                self.taps_in_rows[first] = max(self.taps_in_rows[first], seen)
            row_ns = None if row is None else row[1]
            self.known_taps.append(NumberedTap(chunk, capture.tap_first_ns[index], row_ns))
        for _, s, i in sorted(addresses):
            self._addresses[s][i] = registry.endpoints.add(self.captures[s].addresses[i])
        for s, tap_of_name in enumerate(self.tap_of_name):
            for number in tap_of_name.values():
                link = registry.taps[number].link
                if link is not None:
                    link.renumber(self._addresses[s])
        for _, s, i in sorted(segments):
            values = tuple(int(text, 16) for text in self.captures[s].segments[i])
            self._segments[s][i + 1] = registry.segments.add(values)
        self.initial_taps = len(plan.taps)

    def _messages(self) -> list[tuple[int, CmMessage]]:
        messages = []
        for s, capture in enumerate(self.captures):
            for table, message in capture.cm:
                renamed = replace(
                    message,
                    src=int(self._addresses[s][message.src]),
                    dst=int(self._addresses[s][message.dst]),
                    tap=int(self._taps[s][message.tap]),
                )
                messages.append((self.chunks.goes_with(s, table), renamed))
        messages.sort(key=lambda item: item[0])
        return [item for item in messages if item[0] < self.chunks.count]

    def _many_from(self) -> int:
        if self._plan.many_taps or len(self.captures) > 1:
            return -1
        capture = self.captures[0]
        several = np.flatnonzero(self._taps[0][np.array(capture.table_last_tap, np.int64)])
        return int(several[0]) if len(several) else self.chunks.count

    def messages_of(self, partitions: Partitions, wanted: int) -> dict[int, list[CmMessage]]:
        """The messages of one partition by chunk."""
        partitions.see(self.registry.endpoints.texts())
        messages: dict[int, list[CmMessage]] = {}
        for chunk, message in self.cm:
            pair = np.array([message.src], np.uint32), np.array([message.dst], np.uint32)
            if int(partitions.of(*pair)[0]) == wanted:
                messages.setdefault(chunk, []).append(message)
        return messages

    def rows(self, partition: int) -> Iterator[tuple[int, PacketTable, Any]]:
        """(chunk, table, KEY[rows]) of one partition, in order; none for empty chunks."""
        streams = [_Stream(self, s, partition) for s in range(len(self.captures))]
        while True:
            heads = [stream.head() for stream in streams]
            chunk = min((head for head in heads if head is not None), default=None)
            if chunk is None:
                return
            taken = [s.take(chunk) for s, head in zip(streams, heads, strict=True) if head == chunk]
            if len(taken) == 1:
                table, keys = taken[0]
            else:
                table = PacketTable.concatenate([t for t, _ in taken])
                keys = np.concatenate([k for _, k in taken])
                order = np.lexsort((keys["front"], keys["time"]))
                table, keys = table.take(order), keys[order]
            yield chunk, table, keys

    def part(self, source: int, partition: int) -> Iterator[tuple[PacketTable, Any]]:
        """(table, KEY[rows]) in pieces: the rows of one capture in one partition.

        UnreadableInput if they are missing, or not as many as stage map wrote.
        """
        left = self.captures[source].partition_rows[partition]
        if not left:
            return
        path = self._work.path("map", str(source), f"{partition}.parquet")
        for columns in read_columns(path):
            table_of_row, row = columns.pop("table"), columns.pop("row")
            columns["src"] = self._addresses[source][columns["src"]]
            columns["dst"] = self._addresses[source][columns["dst"]]
            columns["tap"] = self._taps[source][columns["tap"]]
            columns["path_evidence"] = self._segments[source][columns["path_evidence"]]
            named = {column.name: columns[column.name] for column in COLUMNS}
            table = PacketTable(**named, grants=grants_of(columns))
            keys = np.zeros(len(table), KEY)
            keys["row"] = row
            for start, stop in _runs(table_of_row):
                which, times = int(table_of_row[start]), table.time_ns[start:stop]
                self.chunks.key_rows(keys[start:stop], source, which, times)
                self.late_rows += self.chunks.late_rows(source, which, times)
            yield table, keys
            left -= len(table)
        if left:
            raise damaged(path, "unexpected number of rows")


def _runs(values: U32) -> Iterator[tuple[int, int]]:
    """Bounds of the stretches of equal values."""
    starts = np.flatnonzero(np.diff(values.astype(np.int64), prepend=-1)).tolist()
    yield from zip(starts, [*starts[1:], len(values)], strict=True)


class _Stream:
    """The rows of one capture in one partition, taken chunk by chunk."""

    def __init__(self, captures: Captures, source: int, partition: int) -> None:
        self._pieces = captures.part(source, partition)
        self._tables: list[PacketTable] = []
        self._keys: list[Any] = []

    def head(self) -> int | None:
        """The next chunk with rows; None at the end."""
        if not self._keys and not self._more():
            return None
        return int(self._keys[0]["chunk"][0])

    def _more(self) -> bool:
        for table, keys in self._pieces:
            if len(table):
                self._tables.append(table)
                self._keys.append(keys)
                return True
        return False

    def take(self, chunk: int) -> tuple[PacketTable, Any]:
        """The rows of this chunk, the next one."""
        tables, keys = [], []
        while self._keys or self._more():
            cut = int(np.searchsorted(self._keys[0]["chunk"], chunk, "right"))
            if not cut:
                break
            tables.append(self._tables[0].slice(0, cut))
            keys.append(self._keys[0][:cut])
            if cut < len(self._keys[0]):
                self._tables[0] = self._tables[0].slice(cut, len(self._keys[0]))
                self._keys[0] = self._keys[0][cut:]
                break
            del self._tables[0], self._keys[0]
        if len(tables) == 1:
            return tables[0], keys[0]
        return PacketTable.concatenate(tables), np.concatenate(keys)
