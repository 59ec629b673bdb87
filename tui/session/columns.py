"""From the state of the analysis to the columns of a snapshot."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...analyzer.measures import mrc as st
from ...analyzer.measures.measuring import Measuring
from ...analyzer.measures.mrc import MrcMeasure
from ...analyzer.measures.series import SERIES_COLUMNS, TAPS
from ...analyzer.results.base import Event
from ...analyzer.statistics.histogram import MAX
from ...analyzer.statistics.per_flow import Kept
from ...analyzer.summary.mrc import MrcSummary
from ...analyzer.summary.summarize import Summary
from ...analyzer.track.tracker import PARTIAL_VIEW_SHARE
from ...kernels.kernel import Array, Floats, Int32s, Ints
from .judged import Judged
from .snapshot import (
    UNKNOWN,
    FlowBins,
    FlowColumns,
    MrcColumns,
    MrcPlaneState,
    PathColumns,
    SourceState,
    Timeline,
)

if TYPE_CHECKING:
    from ...analyzer.measures.measuring import Counters
    from ...analyzer.measures.series import Activity, Totals
    from ...analyzer.measures.spraying import PathUsage, UsageRecords
    from ...analyzer.track.tracker import FlowTracker


MAX_TIMELINE = 240
"""Most windows of a snapshot's time line; more are summed in groups of neighbours."""
MOST_TAPS = 64
"""Most taps whose bytes it holds: no screen has a line for each of more."""

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
    `matrix.at_one_place` makes paths of them.
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
        tap_bytes=sums[:, TAPS:] if 1 < sums.shape[1] - TAPS <= MOST_TAPS else sums[:, :0],
    )


# Packets and bits per second, in total and by flow.

AVERAGED_NS = 1_000_000_000
"""Shortest time of a live rate."""


class Rates(NamedTuple):
    """None if the time is too short."""

    packets_per_second: float | None = None
    bits_per_second: float | None = None
    by_flow: Floats | None = None
    """Bits per second by flow; only in live sessions."""


class _Sample(NamedTuple):
    """Counts at a time of the packets' clock."""

    time_ns: int
    packets: int
    wire_bytes: Ints


class RateMeter:
    """Rates over the whole time of complete sources; over the last second of live sources.

    Both use the clock of the packets: a reader of a recording gets packets in steps, and many
    at once after a pause, although they arrived steadily.
    """

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque()
        self._grew_at = 0.0
        """Arrival of the last packets, by the clock of the reader."""

    def keep(self, kept: Kept) -> None:
        """Only these flows are left."""
        self._samples = deque(
            sample._replace(wire_bytes=sample.wire_bytes[kept.of(len(sample.wire_bytes))])
            for sample in self._samples
        )

    def of(self, source: SourceState, wire_bytes: Ints, span: tuple[int, int], now: float) -> Rates:
        """wire_bytes: of each flow; span: of the packets, ns; now: seconds."""
        start_ns, end_ns = span
        if not _is_live(source):
            length = end_ns - start_ns
            if length <= 1:
                return Rates()
            total = int(wire_bytes.sum())
            return Rates(source.packets * 1e9 / length, total * 8e9 / length)
        if not len(wire_bytes):
            return Rates()
        samples = self._samples
        if not samples:
            samples.append(_Sample(start_ns, 0, np.zeros(0, np.int64)))
        if source.packets > samples[-1].packets:
            self._grew_at = now
        else:  # time continues without packets, but packets in transit have a short time to arrive
            silent_ns = int((now - self._grew_at) * 1e9)
            end_ns = end_ns + silent_ns if silent_ns > AVERAGED_NS else samples[-1].time_ns
        end_ns = max(end_ns, samples[-1].time_ns)
        samples.append(_Sample(end_ns, source.packets, wire_bytes))
        while samples[1].time_ns <= end_ns - AVERAGED_NS:
            samples.popleft()
        return _grown(samples[0], samples[-1])


def _is_live(source: SourceState) -> bool:
    """Whether packets are read at the rate of their arrival, not from a file that is read again."""
    return source.kind == "live" and source.running and source.progress is None


def _grown(before: _Sample, now: _Sample) -> Rates:
    seconds = max(AVERAGED_NS, now.time_ns - before.time_ns) / 1e9
    grown = now.wire_bytes.astype(np.float64)
    grown[: len(before.wire_bytes)] -= before.wire_bytes
    return Rates(
        (now.packets - before.packets) / seconds,
        float(grown.sum()) * 8 / seconds,
        grown * 8 / seconds,
    )


# MRC for the screens: columns by flow, paths by plane, and its events.

_FLOW_COLUMNS = (
    "values", "fell_out", "planes", "resends", "trimmed", "nacks", "skips", "depth"
)  # fmt: skip
_SHARE_OF_TIME = 20
"""Minimum interval between updates, in multiples of the duration of an update."""


class MrcView:
    """MRC data of the screens, updated as packets arrive."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.columns: MrcColumns | None = None
        self.planes: PathColumns | None = None
        """None if nothing distinguishes planes."""
        self._packets = 0
        self._due = 0.0

    def update(self, measuring: Measuring, running: bool, make: Callable[[], Summary]) -> None:
        """Process new packets; call it while the engine is paused."""
        began, packets = time.monotonic(), measuring.mrc.packets
        if packets == self._packets or (running and began < self._due):
            return
        self._packets = packets
        summary = make()
        if summary.mrc is not None:
            self.events = summary.mrc_events()
            peer = measuring.tracker.flows["peer"].copy()
            self.columns, self.planes = _columns(measuring.mrc, summary.mrc, peer)
        now = time.monotonic()
        self._due = now + _SHARE_OF_TIME * (now - began)

    def of(self, flows: int) -> tuple[MrcColumns | None, PathColumns | None]:
        """Columns and planes with an entry for each flow, including new flows."""
        columns, planes = self.columns, self.planes
        if columns is not None and len(columns.values) < flows:
            longer: dict[str, Any] = {
                name: _padded(getattr(columns, name), flows, UNKNOWN) for name in _FLOW_COLUMNS
            }
            columns = replace(columns, **longer)
        if planes is not None and len(planes.width) < flows:
            planes = replace(
                planes,
                starts=_padded(planes.starts, flows + 1, int(planes.starts[-1])),
                width=_padded(planes.width, flows, 0),
            )
        return columns, planes


def _padded(values: Array, length: int, fill: int) -> Array:
    return np.concatenate([values, np.full(length - len(values), fill, values.dtype)])


def _columns(
    measure: MrcMeasure, summary: MrcSummary, peer: Int32s
) -> tuple[MrcColumns, PathColumns | None]:
    """peer: flow index of each flow's peer, -1 while it is unknown."""
    flows = len(peer)
    records = measure.flows(flows)
    sends = records["packets"] > 0
    sent, plane, names = summary.sent()
    flow = sent["lane"] // st.LANES
    values = np.bincount(flow, minlength=flows)
    out, out_of_plane, may_be = (
        np.zeros(flows, np.int64),
        Counter[str | None](),
        Counter[str | None](),
    )
    for f in np.flatnonzero(sends).tolist():
        for retired in summary.retirements(f):
            out[f] += retired.certain
            if not retired.certain:
                may_be[retired.plane] += 1
            elif retired.returned_time_ns is None:
                out_of_plane[retired.plane] += 1
    answers = records[np.maximum(peer, 0)]
    heard = sends & (peer >= 0) & ((answers["sacks"] > 0) | answers["nacks"].any(axis=1))

    def of_sender(values: Array) -> Ints:
        return np.where(sends, values, UNKNOWN).astype(np.int64)

    def of_answers(values: Array) -> Ints:
        return np.where(heard, values, UNKNOWN).astype(np.int64)

    known = plane >= 0
    by_plane = _by_plane(sent[known], flow[known], plane[known], flows, names)
    states = [
        MrcPlaneState(name, int((plane == i).sum()), out_of_plane[name], may_be[name])
        for i, name in enumerate(names)
    ]
    columns = MrcColumns(
        values=of_sender(values),
        fell_out=of_sender(out),
        planes=of_sender(by_plane.seen() if names else np.full(flows, UNKNOWN)),
        resends=of_sender(records["resends"]),
        trimmed=of_sender(records["trimmed"]),
        nacks=of_answers(answers["nacks"].sum(axis=1)),
        skips=of_answers(answers["skips"] + answers["always_skips"]),
        depth=of_answers(_largest(measure, st.OOO_DEPTH, flows)[np.maximum(peer, 0)]),
        plane_states=tuple(states),
        plane_by=summary.planes.by,
        outages=tuple(summary.outages),
    )
    return columns, by_plane if names else None


def _largest(measure: MrcMeasure, kind: int, flows: int) -> Ints:
    """The largest observed value of a kind per flow, 0 without any."""
    pool, largest = measure.histograms.arrays, np.zeros(flows, np.int64)
    row = pool.row[:flows, kind]
    largest[: len(row)] = np.where(row >= 0, pool.stats[np.maximum(row, 0), MAX], 0)
    return largest


def _by_plane(sent: Array, flow: Ints, plane: Ints, flows: int, names: list[str]) -> PathColumns:
    """Counts of each flow on each plane; the column of late packets holds retransmitted ones."""
    codes, of = np.unique(flow * max(1, len(names)) + plane, return_inverse=True)
    owner = codes // max(1, len(names))

    def total(column: str) -> Ints:
        return np.bincount(of, sent[column], len(codes)).astype(np.int64)

    wire_bytes = total("wire_bytes")
    return PathColumns(
        by="plane",
        starts=np.searchsorted(owner, np.arange(flows + 1)),
        key=codes % max(1, len(names)),
        packets=total("packets"),
        wire_bytes=wire_bytes,
        late=total("lost"),
        marked=total("marked"),
        width=widths(owner, wire_bytes.astype(np.float64), flows)[0],
        name=lambda key: names[key],
    )
