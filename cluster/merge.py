"""Stage merge: the analysis of the whole from the measures of its partitions.

Tracker and measures of parts without a common host pair add up exactly. What crosses host pairs is
done here: the order of flows and events, connection management, and the hops, whose clocks and
waiting times all packets share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..analyzer.errors import RocescopeError, too_many_flows
from ..analyzer.measures.hops.vantage import FabricLinks
from ..analyzer.measures.measuring import Measuring
from ..analyzer.results.analysis import Analysis
from ..analyzer.summary.names import FlowOrder
from ..analyzer.track import state as st
from ..analyzer.track.batch import TrackedBatch
from ..analyzer.wire.packets import PacketTable
from .captures import Captures
from .reduce import TaskPipeline, merged_rows, read_result
from .split import KEY, Outline, in_order
from .work import Plan, Work, analyze_options, damaged, read_columns, read_plan

Tell = Callable[[str, int, int], None]
"""Called with a step, and how much of how much of it is done."""
_TRACKED_KEY = np.dtype([*KEY.descr, ("flow", np.int32), ("verdict", np.uint8)])


def merge(
    folder: str,
    *,
    flow_order: FlowOrder | None = None,
    fabric: FabricLinks | None = None,
    dscp_priority: Mapping[int, int] | None = None,
    tell: Tell = lambda step, done, total: None,
) -> Analysis:
    """The analysis of all captures of a plan; errors as `analyze`, UsageError for missing tasks.

    flow_order, fabric, dscp_priority: as in `AnalyzeOptions`.
    """
    work = Work(folder)
    plan = read_plan(work)
    captures = Captures(work, plan)
    outlines = [read_result(work, plan, n, "outline") for n in range(plan.partitions)]
    flows = sum(len(outline.flows) for outline in outlines)
    packets = sum(outline.packets for outline in outlines)
    if flows > plan.options.max_flows:
        raise RocescopeError(too_many_flows(plan.options.max_flows, packets))
    options = replace(
        analyze_options(plan), flow_order=flow_order, fabric=fabric, dscp_priority=dscp_priority
    )
    pipeline = TaskPipeline(plan, captures, options)
    if _independent(outlines):
        _join(work, plan, captures, pipeline, outlines, tell)
    else:
        pipeline.read(range(plan.partitions))
    pipeline.merge_counts.late_rows = sum(outline.late_rows for outline in outlines)
    return pipeline.conclude(complete=True)


def _independent(outlines: Sequence[Outline]) -> bool:
    """Whether the tracker of the whole decides all that the trackers of the parts decided.

    While no other tap has shown any packet of a tap, of any flow, a window that no longer fits
    forgets packets of that tap, and an earlier transmission that arrives last is no copy.
    """
    for mine in outlines:
        unfollowed = int(mine.used[st.UNFOLLOWED_TAPS])
        others = (int(o.used[st.FOLLOWED_TAPS]) for o in outlines if o is not mine)
        if any(unfollowed & followed for followed in others):
            return False
    return True


def _join(
    work: Work,
    plan: Plan,
    captures: Captures,
    pipeline: TaskPipeline,
    outlines: Sequence[Outline],
    tell: Tell,
) -> None:
    """Take in the measures of all parts."""
    measuring = pipeline.measuring
    pipeline.date_taps(captures.chunks.count)
    measuring.many_taps = captures.many_from < captures.chunks.count
    flows = np.concatenate([outline.flows for outline in outlines])
    order = in_order(np.concatenate([outline.flow_keys for outline in outlines]))
    flows = flows[order]
    measuring.tracker.index_records(flows)
    flow_maps = []
    for number in range(plan.partitions):
        tell("joining partitions", number, plan.partitions)
        part: Measuring = read_result(work, plan, number, "state")
        flow_maps.append(measuring.merge(part))
    _set_events(measuring, outlines, flow_maps)
    for _, message in captures.cm:
        measuring.cm.note([message])
    if measuring.many_taps:
        _follow(work, plan, captures, measuring, flow_maps, tell)


def _set_events(
    measuring: Measuring, outlines: Sequence[Outline], flow_maps: Sequence[Any]
) -> None:
    """The first events of all parts, in order."""
    state = measuring.tracker.state
    events = np.concatenate([outline.events for outline in outlines])
    parts = zip(flow_maps, outlines, strict=True)
    events["flow"] = np.concatenate([flows[o.events["flow"]] for flows, o in parts])
    events = events[in_order(np.concatenate([outline.event_keys for outline in outlines]))]
    kept = min(len(events), st.MAX_EVENTS)
    state.events[:kept] = events[:kept]
    state.used[st.USED_EVENTS] = kept
    state.used[st.OMITTED_EVENTS] = len(events) - kept
    for outline in outlines:
        state.used[st.OMITTED_EVENTS] += outline.used[st.OMITTED_EVENTS]


def _follow(
    work: Work,
    plan: Plan,
    captures: Captures,
    measuring: Measuring,
    flow_maps: Sequence[Any],
    tell: Tell,
) -> None:
    """Follow the packets of all parts from tap to tap, in the order of one process."""
    streams = [
        _tracked(work, captures, number, flow_maps[number]) for number in range(plan.partitions)
    ]
    flows = len(measuring.tracker)
    nobody = np.full(flows, -1, np.int32)
    for chunk, table, keys in merged_rows(streams):
        batch = TrackedBatch(
            table,
            np.ascontiguousarray(keys["flow"]),
            np.ascontiguousarray(keys["verdict"]),
            nobody,
            flows,
        )
        measuring.hops.update(batch)
        tell("following packets from tap to tap", chunk, captures.chunks.count)


def _tracked(
    work: Work, captures: Captures, number: int, flow_map: Any
) -> Iterator[tuple[int, PacketTable, Any]]:
    """Rows of a part after several taps are known, with flows of the whole and verdicts."""
    path = work.path("reduce", str(number), "tracked.parquet")
    pieces = read_columns(path)
    flow, verdict = np.zeros(0, np.int32), np.zeros(0, np.uint8)
    for chunk, table, keys in captures.rows(number):
        if chunk < captures.many_from:
            continue
        while len(flow) < len(table):
            more = next(pieces, None)
            if more is None:
                raise damaged(path, "unexpected number of rows")
            flow = np.concatenate([flow, more["flow"]])
            verdict = np.concatenate([verdict, more["verdict"]])
        tracked = np.zeros(len(table), _TRACKED_KEY)
        for name in KEY.names or ():
            tracked[name] = keys[name]
        tracked["flow"], tracked["verdict"] = flow_map[flow[: len(table)]], verdict[: len(table)]
        flow, verdict = flow[len(table) :], verdict[len(table) :]
        yield chunk, table, tracked
