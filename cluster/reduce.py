"""Stage reduce: track and measure the rows of one partition."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..analyzer.decode.headers.cm import CmMessage
from ..analyzer.errors import RocescopeError, UsageError, too_many_flows
from ..analyzer.measures.measuring import Measuring
from ..analyzer.track import state as st
from ..analyzer.track.batch import TrackedBatch
from ..analyzer.wire.packets import PacketTable
from .captures import Captures
from .outline import KEY, Outline
from .pairs import Partitions
from .plan import Plan, read_plan
from .rows import ColumnWriter
from .state import read_state, write_state
from .work import Work, opened, record_head

TRACKED: dict[str, np.dtype[Any]] = {"flow": np.dtype(np.int32), "verdict": np.dtype(np.uint8)}
"""Columns of `tracked.parquet`: of each row, in order, the number of its flow and its verdict."""


@dataclass(slots=True)
class Part:
    """The measures of one partition, or of several."""

    measuring: Measuring
    outline: Outline = field(default_factory=Outline)

    def update(
        self, table: PacketTable, keys: Any, messages: Sequence[CmMessage]
    ) -> TrackedBatch | None:
        """Measure the rows of one chunk."""
        tracker = self.measuring.tracker
        flows, events = len(tracker), int(tracker.state.used[st.USED_EVENTS])
        batch = self.measuring.update(table, messages)
        outline = self.outline
        outline.packets += len(table)
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
        part = measured(plan, captures, [number], tracked)
        tracked.close()
        outline, state = part.outline, part.measuring.tracker.state
        outline.flows = part.measuring.tracker.flows
        outline.events = state.events[: len(outline.event_keys)]
        outline.used = state.used
        for name, value in (("outline", outline), ("state", part.measuring)):
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


def empty_measuring(plan: Plan, captures: Captures) -> Measuring:
    """Measures before the first row, as one process begins."""
    measuring = Measuring(plan.options.window_ns, plan.many_taps)
    measuring.filtered = plan.options.filter is not None
    measuring.tracker.see_taps(captures.initial_taps)
    return measuring


def measured(
    plan: Plan, captures: Captures, numbers: Sequence[int], tracked: ColumnWriter | None
) -> Part:
    """The measures of partitions; with `tracked` without hops, for which it takes the verdicts."""
    part = Part(empty_measuring(plan, captures))
    part.measuring.follows = tracked is None
    taps = 0
    for chunk, table, keys, messages in _chunks(plan, captures, numbers):
        taps = date_taps(part.measuring, captures, taps, chunk)
        part.measuring.many_taps |= chunk >= captures.many_from
        batch = part.update(table, keys, messages)
        if batch is not None and tracked is not None and part.measuring.many_taps:
            tracked.write({"flow": batch.flow, "verdict": batch.verdict})
        flows, most = len(part.measuring.tracker), plan.options.max_flows
        if flows > most:
            raise RocescopeError(too_many_flows(most, part.outline.packets))
    date_taps(part.measuring, captures, taps, captures.chunks.count)
    part.outline.late_rows = captures.late_rows
    return part


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
        found = []
        for index, head in enumerate(heads):
            if head is not None and head[0] == chunk:
                found.append(head)
                heads[index] = next(streams[index], None)
        if len(found) == 1:
            yield found[0]
            continue
        table = PacketTable.concatenate([table for _, table, _ in found])
        keys = np.concatenate([keys for _, _, keys in found])
        order = in_order(keys)
        yield chunk, table.take(order), keys[order]


def in_order(keys: Any) -> Any:
    """int64[rows]: the order of one process."""
    return np.lexsort((keys["row"], keys["front"], keys["time"], keys["chunk"]))


def date_taps(measuring: Measuring, captures: Captures, known: int, chunk: int) -> int:
    """Tell the tracker of the taps known before a chunk since when they run; how many are known."""
    taps = captures.registry.taps
    while known < len(taps) and captures.known_taps[known].chunk <= chunk:
        if not measuring.filtered:
            if taps[known].leaves_out_roce:
                measuring.captured_in_part = True
            else:
                first_ns = captures.known_taps[taps.clock(known)].first_ns
                if first_ns is not None:
                    measuring.tracker.see_taps(known + 1)
                    measuring.tracker.ran(known, first_ns)
        known += 1
    if measuring.filtered:  # then rows show the taps, also those of other partitions
        measuring.tracker.see_taps(int(captures.taps_in_rows[chunk]))
    return known
