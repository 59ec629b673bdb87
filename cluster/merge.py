"""Stage merge: the analysis of the whole from the measures of its partitions.

Tracker and measures of parts without a common host pair add up exactly. What crosses host pairs is
done here: the order of flows and events, connection management, and the hops, whose clocks and
waiting times all packets share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from ..analyzer.analysis.conclude import conclude
from ..analyzer.analysis.owners import owners_in
from ..analyzer.decode.merge import MergeCounts
from ..analyzer.errors import RocescopeError, too_many_flows
from ..analyzer.measures.hops.fabric_links import FabricLinks
from ..analyzer.measures.measuring import Measuring
from ..analyzer.results.analysis import Analysis
from ..analyzer.results.captures import CaptureSummary
from ..analyzer.results.series import Series
from ..analyzer.summary.options import FlowOrder
from ..analyzer.summary.trust import check_read
from ..analyzer.track import state as st
from ..analyzer.track.batch import TrackedBatch
from ..analyzer.wire.packets import PacketTable
from .captures import Captures
from .outline import KEY, Outline
from .plan import Plan, read_plan
from .reduce import date_taps, empty_measuring, in_order, measured, merged_rows, read_result
from .rows import read_columns
from .work import Work, damaged

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
    if _independent(outlines):
        whole = _joined(work, plan, captures, outlines, tell)
    else:
        whole = measured(plan, captures, range(plan.partitions), None).measuring
    late_rows = sum(outline.late_rows for outline in outlines)
    return _concluded(plan, captures, whole, late_rows, flow_order, fabric, dscp_priority)


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


def _joined(
    work: Work, plan: Plan, captures: Captures, outlines: Sequence[Outline], tell: Tell
) -> Measuring:
    """The measures of the whole from those of its parts."""
    whole = empty_measuring(plan, captures)
    date_taps(whole, captures, 0, captures.chunks.count)
    whole.many_taps = captures.many_from < captures.chunks.count
    flows = np.concatenate([outline.flows for outline in outlines])
    order = in_order(np.concatenate([outline.flow_keys for outline in outlines]))
    flows = flows[order]
    whole.tracker.index_records(flows)
    flow_maps = []
    for number in range(plan.partitions):
        tell("joining partitions", number, plan.partitions)
        part: Measuring = read_result(work, plan, number, "state")
        flow_maps.append(whole.merge(part))
    _set_events(whole, outlines, flow_maps)
    for _, message in captures.cm:
        whole.cm.note([message])
    if whole.many_taps:
        _follow(work, plan, captures, whole, flow_maps, tell)
    return whole


def _set_events(whole: Measuring, outlines: Sequence[Outline], flow_maps: Sequence[Any]) -> None:
    """The first events of all parts, in order."""
    state = whole.tracker.state
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
    whole: Measuring,
    flow_maps: Sequence[Any],
    tell: Tell,
) -> None:
    """Follow the packets of all parts from tap to tap, in the order of one process."""
    streams = [
        _tracked(work, captures, number, flow_maps[number]) for number in range(plan.partitions)
    ]
    flows = len(whole.tracker)
    nobody = np.full(flows, -1, np.int32)
    for chunk, table, keys in merged_rows(streams):
        batch = TrackedBatch(
            table,
            np.ascontiguousarray(keys["flow"]),
            np.ascontiguousarray(keys["verdict"]),
            nobody,
            flows,
        )
        whole.hops.update(batch)
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


def _concluded(
    plan: Plan,
    captures: Captures,
    whole: Measuring,
    late_rows: int,
    flow_order: FlowOrder | None,
    fabric: FabricLinks | None,
    dscp_priority: Mapping[int, int] | None,
) -> Analysis:
    registry = captures.registry
    series = whole.totals.series(registry.tap_names)
    summaries = [
        _of_whole(capture.summary, names, series)
        for capture, names in zip(captures.captures, captures.session_names, strict=True)
    ]
    check_read(summaries, complete=True)
    comments = [line for capture in captures.captures for line in capture.owner_comments]
    return conclude(
        whole,
        registry,
        summaries,
        path_by=plan.options.path_by,
        complete=True,
        filtered=whole.filtered,
        merge=MergeCounts(late_rows=late_rows),
        owners=owners_in(comments, whole.tracker, registry.endpoints),
        outer_labels=any(capture.outer_labels for capture in captures.captures),
        flow_order=flow_order,
        fabric=fabric,
        dscp_priority=dscp_priority,
    )


def _of_whole(summary: CaptureSummary, names: Mapping[str, str], series: Series) -> CaptureSummary:
    """The summary with the names of sessions, and with the bytes that tracking counts."""
    taps = []
    for tap in summary.taps:
        name = names.get(tap.name, tap.name)
        wire_bytes = sum(series.tap_wire_bytes.get(name, series.wire_bytes))
        taps.append(msgspec.structs.replace(tap, name=name, wire_bytes=wire_bytes))
    return msgspec.structs.replace(summary, taps=taps)
