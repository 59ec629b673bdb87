"""Stage reduce: track and measure the rows of one partition."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from ..analyzer.decode.control import CmMessage
from ..analyzer.errors import RocescopeError, UsageError, too_many_flows
from ..analyzer.pipeline.options import AnalyzeOptions
from ..analyzer.pipeline.owners import read_owners
from ..analyzer.pipeline.pipeline import Pipeline
from ..analyzer.results.base import Series
from ..analyzer.results.captures import CaptureSummary
from ..analyzer.results.flow import Owner
from ..analyzer.summary.trust import check_read
from ..analyzer.track import state as st
from ..analyzer.track.batch import TrackedBatch
from ..analyzer.wire.packets import PacketTable
from .captures import Captures
from .plan import Partitions, Plan, analyze_options, read_plan
from .split import KEY, Outline, in_order
from .state import read_state, write_state
from .work import ColumnWriter, Work, opened, record_head

TRACKED: dict[str, np.dtype[Any]] = {"flow": np.dtype(np.int32), "verdict": np.dtype(np.uint8)}
"""Columns of `tracked.parquet`: of each row, in order, the number of its flow and its verdict."""


class TaskPipeline(Pipeline):
    """The pipeline of the rows of stage map: of one partition, of several, or of the whole."""

    def __init__(
        self, plan: Plan, captures: Captures, options: AnalyzeOptions | None = None
    ) -> None:
        chosen = options or analyze_options(plan)
        super().__init__(chosen, captures.registry, many_taps=plan.many_taps)
        self.measuring.tracker.see_taps(captures.initial_taps)
        self.outline = Outline()
        self._plan, self._captures = plan, captures
        self._dated = 0
        """Taps that the tracker knows."""

    def read(self, numbers: Sequence[int], tracked: ColumnWriter | None = None) -> None:
        """Measure partitions; with `tracked` without hops, for which it takes the verdicts."""
        captures, measuring = self._captures, self.measuring
        measuring.follows = tracked is None
        for chunk, table, keys, messages in _chunks(self._plan, captures, numbers):
            self.date_taps(chunk)
            measuring.many_taps |= chunk >= captures.many_from
            batch = self.take_rows(table, keys, messages)
            if batch is not None and tracked is not None and measuring.many_taps:
                tracked.write({"flow": batch.flow, "verdict": batch.verdict})
            if len(measuring.tracker) > self.options.max_flows:
                raise RocescopeError(too_many_flows(self.options.max_flows, self.packets))
        self.date_taps(captures.chunks.count)
        self.outline.packets, self.outline.late_rows = self.packets, captures.late_rows

    def take_rows(
        self, table: PacketTable, keys: Any, messages: Sequence[CmMessage]
    ) -> TrackedBatch | None:
        """Measure the rows of one chunk, and note the places of new flows and events."""
        tracker, outline = self.measuring.tracker, self.outline
        flows, events = len(tracker), int(tracker.state.used[st.USED_EVENTS])
        batch = self.take(table, messages)
        if batch is None:
            return None
        if len(tracker) > flows:
            number, first = np.unique(batch.flow, return_index=True)
            first = first[number >= flows]
            outline.flow_keys = np.concatenate([outline.flow_keys, keys[first]])
        new = tracker.state.events[events : int(tracker.state.used[st.USED_EVENTS])]
        if len(new):
            places = [
                int(np.flatnonzero((table.frame_number == frame) & (table.tap == tap))[0])
                for frame, tap in zip(
                    new["frame_number"].tolist(), new["tap"].tolist(), strict=True
                )
            ]
            outline.event_keys = np.concatenate([outline.event_keys, keys[places]])
        return batch

    def date_taps(self, chunk: int) -> None:
        """Tell the tracker of the taps known before a chunk since when they run."""
        captures, measuring, taps = self._captures, self.measuring, self.registry.taps
        while self._dated < len(taps) and captures.known_taps[self._dated].chunk <= chunk:
            tap = self._dated
            if not measuring.filtered:
                if taps[tap].leaves_out_roce:
                    measuring.captured_in_part = True
                else:
                    first_ns = captures.known_taps[taps.clock(tap)].first_ns
                    if first_ns is not None:
                        measuring.tracker.see_taps(tap + 1)
                        measuring.tracker.ran(tap, first_ns)
            self._dated += 1
        if measuring.filtered:  # then rows show the taps, also those of other partitions
            measuring.tracker.see_taps(int(captures.taps_in_rows[chunk]))

    def summarize_captures(self, complete: bool) -> list[CaptureSummary]:
        """Those of stage map, with the names of sessions and the bytes that tracking counts."""
        series = self.measuring.totals.series(self.registry.tap_names)
        summaries = [
            _of_whole(capture.summary, names, series)
            for capture, names in zip(
                self._captures.captures, self._captures.session_names, strict=True
            )
        ]
        check_read(summaries, complete)
        return summaries

    def find_host_owners(self) -> dict[int, Owner]:
        """Processes by flow index, as comments of the captures name them."""
        comments = (line for capture in self._captures.captures for line in capture.owner_comments)
        return read_owners(comments, self.measuring.tracker, self.registry.endpoints)

    def uses_outer_labels(self) -> bool:
        """Whether entropy values use the flow label of the outer header."""
        return any(capture.outer_labels for capture in self._captures.captures)


def reduce_partition(folder: str, number: int) -> None:
    """Task `number` of stage reduce, unless it is done. UsageError while map is not complete."""
    work = Work(folder)
    plan = read_plan(work)
    if not 0 <= number < plan.partitions:
        raise UsageError(f"reduce {number}: the plan has partitions 0 to {plan.partitions - 1}")
    if work.done(plan.digest, "reduce", number):
        return
    captures = Captures(work, plan)
    with work.task("reduce", str(number)) as into:
        tracked = ColumnWriter(os.path.join(into, "tracked.parquet"), TRACKED)
        pipeline = TaskPipeline(plan, captures)
        pipeline.read([number], tracked)
        tracked.close()
        outline, tracker = pipeline.outline, pipeline.measuring.tracker
        state = tracker.state
        outline.flows = tracker.flows
        outline.events = state.events[: len(outline.event_keys)]
        outline.used = state.used
        for name, value in (("outline", outline), ("state", pipeline.measuring)):
            with open(os.path.join(into, name), "xb") as file:
                file.write(record_head(plan.digest))
                write_state(file, value)
                file.flush()
                os.fsync(file.fileno())


def read_result(work: Work, plan: Plan, number: int, name: str) -> Any:
    """`outline` or `state` of a task of stage reduce. UsageError if there is none."""
    if not work.done(plan.digest, "reduce", number):
        raise UsageError(f"stage reduce is not complete: run reduce {number}")
    path = work.path("reduce", str(number), name)
    with opened(path, plan.digest) as file:
        return read_state(file, path)


def _chunks(
    plan: Plan, captures: Captures, numbers: Sequence[int]
) -> Iterator[tuple[int, PacketTable, Any, list[CmMessage]]]:
    """(chunk, rows, KEY[rows], CM messages) of partitions, in order."""
    partitions = Partitions(plan.partitions)
    messages: dict[int, list[CmMessage]] = {}
    if len(numbers) == plan.partitions:
        for chunk, message in captures.cm:
            messages.setdefault(chunk, []).append(message)
    else:
        for number in numbers:
            messages |= captures.messages_of(partitions, number)
    pending = sorted(messages)
    nothing = PacketTable.zeros(0)
    for chunk, table, keys in merged_rows([captures.rows(number) for number in numbers]):
        while pending and pending[0] < chunk:
            early = pending.pop(0)
            yield early, nothing, np.zeros(0, KEY), messages[early]
        if pending and pending[0] == chunk:
            pending.pop(0)
        yield chunk, table, keys, messages.get(chunk, [])
    for late in pending:
        yield late, nothing, np.zeros(0, KEY), messages[late]


def merged_rows(
    streams: Sequence[Iterator[tuple[int, PacketTable, Any]]],
) -> Iterator[tuple[int, PacketTable, Any]]:
    """Rows of several partitions in the order of one process."""
    heads = [next(stream, None) for stream in streams]
    while True:
        chunk = min((head[0] for head in heads if head is not None), default=None)
        if chunk is None:
            return
        of_chunk = []
        for index, head in enumerate(heads):
            if head is not None and head[0] == chunk:
                of_chunk.append(head)
                heads[index] = next(streams[index], None)
        if len(of_chunk) == 1:
            yield of_chunk[0]
            continue
        table = PacketTable.concatenate([table for _, table, _ in of_chunk])
        keys = np.concatenate([keys for _, _, keys in of_chunk])
        order = in_order(keys)
        yield chunk, table.take(order), keys[order]


def _of_whole(summary: CaptureSummary, names: Mapping[str, str], series: Series) -> CaptureSummary:
    """The summary with the names of sessions, and with the bytes that tracking counts."""
    taps = []
    for tap in summary.taps:
        name = names.get(tap.name, tap.name)
        wire_bytes = sum(series.tap_wire_bytes.get(name, series.wire_bytes))
        taps.append(msgspec.structs.replace(tap, name=name, wire_bytes=wire_bytes))
    return msgspec.structs.replace(summary, taps=taps)
