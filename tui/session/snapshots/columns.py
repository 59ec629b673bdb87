"""From the engine's arrays to the columns of a snapshot: no Python object per flow."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ....analyzer.measures.series import SERIES_COLUMNS
from ....analyzer.track.tracker import PARTIAL_VIEW_SHARE
from ....kernels.kernel import Floats, Ints
from .judged import Judged
from .snapshot import UNKNOWN, FlowBins, FlowColumns, PathColumns, Timeline

if TYPE_CHECKING:
    from ....analyzer.measures.counters import Counters
    from ....analyzer.measures.series import Activity, Totals
    from ....analyzer.measures.spraying import PathUsage, UsageRecords
    from ....analyzer.track.tracker import FlowTracker

MAX_TIMELINE = 240
"""Most windows of a snapshot's time line; more are summed in groups of neighbours."""

LEVELS = 8
TAP_BITS = 20


def flow_columns(tracker: FlowTracker, counters: Counters) -> FlowColumns:
    """Copies of the columns of all flows; call it while the engine is paused."""
    count = len(tracker)
    flows = tracker.flows
    streams = tracker.state.streams[: 2 * count].reshape(count, 2)

    def both(name: str) -> Ints:
        column: Ints = streams[name].sum(axis=1, dtype=np.int64)
        return column

    started = streams["started"].any(axis=1)
    new = both("new_packets")
    missing = both("missing") + both("missing_evicted")
    partly_seen = missing > PARTIAL_VIEW_SHARE * (missing + new)
    peer = flows["peer"].copy()
    cnps = np.where(peer >= 0, flows["cnps"][np.maximum(peer, 0)], UNKNOWN)
    first, last = flows["first_time"].copy(), flows["last_time"].copy()
    duration = np.maximum(last - first, 1)
    judged = started & ~partly_seen
    return FlowColumns(
        src=flows["src"].copy(),
        dst=flows["dst"].copy(),
        qp=flows["dest_qp"].copy(),
        transport=flows["transport"].copy(),
        peer=peer,
        path_mtu=flows["path_mtu"].astype(np.int64),
        packets=flows["packets"].copy(),
        wire_bytes=flows["wire_bytes"].copy(),
        data_packets=flows["request_packets"] + flows["response_packets"],
        ack_packets=flows["ack_packets"].copy(),
        first_ns=first,
        last_ns=last,
        arrivals=both("arrivals"),
        late=np.where(judged, both("reordered"), UNKNOWN),
        max_extent=streams["max_extent"].max(axis=1) if count else np.zeros(0, np.int64),
        retransmitted=np.where(started, both("retransmitted") + both("recovered"), UNKNOWN),
        recovered=np.where(started, both("recovered"), UNKNOWN),
        duplicate=np.where(started, both("duplicates"), UNKNOWN),
        missing=np.where(judged, missing, UNKNOWN),
        rewinds=flows["rewinds"].copy(),
        naks=flows["nak_codes"].sum(axis=1, dtype=np.int64),
        rnr_naks=flows["rnr_received"].astype(np.int64),
        cnps=cnps.astype(np.int64),
        ecn_marked=flows["ecn_marked"].copy(),
        counted=counters.columns(count),
        rate=np.where(last > first, flows["wire_bytes"] * 8e9 / duration, 0.0),
    )


def with_hops(flows: FlowColumns, judged: Judged) -> FlowColumns:
    """Columns of the first tap of each flow, with what befell its packets after this tap."""
    missing = {
        flow: packets - int(flows.ecn_marked[flow])
        for flow, packets in judged.marked.items()
        if flow < len(flows)
    }
    return replace(
        flows,
        late=_added(flows.late, judged.late),
        recovered=_added(flows.recovered, judged.lost),
        ecn_marked=_added(flows.ecn_marked, {f: n for f, n in missing.items() if n > 0}),
    )


def _added(column: Ints, more: dict[int, int]) -> Ints:
    """The column with more packets of some flows."""
    sums = column.copy()
    for flow, packets in more.items():
        if flow < len(sums):
            sums[flow] = max(0, int(sums[flow])) + packets
    return sums


def flow_bins(activity: Activity | None, flows: int) -> FlowBins:
    """Copies of the counts of each flow in each bin of time; call it while the engine is paused."""
    if activity is None:
        return FlowBins()
    values = activity.values()[:, :flows].astype(np.uint32)
    return FlowBins(activity.start_ns, activity.width_ns, values)


def usage_copy(usage: PathUsage) -> UsageRecords:
    """Copies of the records of all paths; call it while the engine is paused."""
    records = usage.records()
    return records._replace(paths=records.paths.copy())


def path_columns(by: str, records: UsageRecords, flows: int) -> PathColumns:
    """Paths by flow and key: of data packets, or of ACKs where a flow has no data.

    A packet passes several taps, so that with `tap` the keys are those of `level_and_tap`:
    `tap_paths.at_one_place` makes paths of them.
    """
    paths, flow = records.paths, records.flow
    has_data = np.zeros(flows, np.bool_)
    has_data[flow[records.data]] = True
    own = records.data | ~has_data[flow]
    own[own] &= flow[own] < flows
    paths, flow = paths[own], flow[own]
    key = level_and_tap(records.level[own], paths["key"]) if by == "tap" else paths["key"]
    order = np.lexsort((key, flow))
    paths, flow, key = paths[order], flow[order], key[order]
    width, _ = widths(flow, paths["wire_bytes"].astype(np.float64), flows)
    return PathColumns(
        by=by,
        starts=np.searchsorted(flow, np.arange(flows + 1)),
        key=np.ascontiguousarray(key),
        packets=np.ascontiguousarray(paths["packets"]),
        wire_bytes=np.ascontiguousarray(paths["wire_bytes"]),
        late=np.ascontiguousarray(paths["late"]),
        marked=np.ascontiguousarray(paths["marked"]),
        width=width,
    )


def level_and_tap(level: Ints, tap: Ints) -> Ints:
    """One key of a level (hop limit modulo 8) and a tap."""
    key: Ints = level.astype(np.int64) << TAP_BITS | tap.astype(np.int64) & (1 << TAP_BITS) - 1
    return key


def widths(group: Ints, weights: Floats, groups: int) -> tuple[Floats, Floats]:
    """exp(entropy of the weights) and sum of the weights per group; 0 for empty ones."""
    total = np.bincount(group, weights, groups).astype(np.float64)
    share = weights / np.maximum(total[group], 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.where(share > 0, -share * np.log(share), 0.0)
    width: Floats = np.exp(np.bincount(group, part, groups))
    width[total == 0] = 0.0
    return width, total


def timeline(totals: Totals) -> Timeline:
    """The totals in at most MAX_TIMELINE windows."""
    values = totals.values()
    if not len(values):
        return Timeline()
    together = -(-len(values) // MAX_TIMELINE)
    sums = np.add.reduceat(values, np.arange(0, len(values), together), axis=0)
    return Timeline(
        start_ns=totals.start_ns,
        window_ns=totals.width_ns * together,
        columns={name: sums[:, i] for i, name in enumerate(SERIES_COLUMNS)},
    )
