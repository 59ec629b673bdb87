"""The records of flows, connections, hops, clocks and events, from the tracker and the measures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import UNSET, structs
from numpy.typing import NDArray

from ...kernels.kernel import Floats, Ints, Records
from ..decode.control import GENERAL_SERVICES_QP, CmMessage
from ..measures.congestion import dscp_outliers
from ..measures.hops import state
from ..measures.hops.hops import TapHop, TapHops
from ..measures.hops.losses import decide_losses
from ..measures.hops.measure import HopMeasure
from ..measures.hops.testimony import without_hidden
from ..measures.hops.vantage import FabricLinks, name_devices
from ..measures.measuring import Measuring
from ..measures.spraying import entropy_imbalances, tap_imbalances, tap_places
from ..results.analysis import CaptureLoss, Hop, LostAt, TapClock
from ..results.base import Event, Imbalance, Quantiles, facts_of
from ..results.flow import Connection, Flow, Owner, Recovery, Reordering
from ..results.mrc import SegmentList
from ..statistics.density import MAX_THRESHOLD
from ..statistics.histogram import HistogramPool
from ..track import state as st
from ..track.pairing import service_name, settle
from ..track.tracker import FlowTracker
from ..wire.bth import NAK_NAMES, TRANSPORT_NAMES, opcode_name
from ..wire.registry import Registry, name_links
from .mrc import MrcSummary, segment_lists, unknowns
from .names import Names, PathBy, PlaneBy
from .trust import PSN_EVENTS, Gaps, as_hidden, as_sampled, gaps_of, sampled_taps

# Events of the tracker, of connection management and of traffic classes.


def first_events(
    measuring: Measuring,
    names: Names,
    sampled: Collection[str],
    mrc_events: list[Event],
    limit: int,
) -> tuple[list[Event], int]:
    """The first `limit` events in capture order, and the number of further events.

    Findings about the whole capture are first. sampled: names of the taps with samples only, where
    gaps between samples look like PSN jumps.
    """
    used = measuring.tracker.state.used
    known = int(used[st.USED_EVENTS])
    shown = min(known, limit)
    omitted = known - shown + int(used[st.OMITTED_EVENTS])
    in_order = [
        event
        for event in tracked_events(measuring, names, 0, shown)
        if event.kind not in PSN_EVENTS or event.tap not in sampled
    ]
    in_order += cm_events(measuring, names)
    in_order += mrc_events
    omitted += measuring.mrc.omitted
    in_order.sort(key=lambda event: event.time_ns)
    omitted += max(len(in_order) - limit, 0) + measuring.cm.omitted
    return _odd_dscps(measuring, names) + in_order[:limit], omitted


def tracked_events(measuring: Measuring, names: Names, first: int, stop: int) -> list[Event]:
    """Tracked events number `first` up to `stop`, in the order of detection."""
    events = measuring.tracker.state.events[first:stop]
    flow_names = {flow: names.flow(flow) for flow in np.unique(events["flow"]).tolist()}
    return [_event(event, flow_names[int(event["flow"])], names.taps) for event in events]


def _event(event: Any, where: str, taps: Sequence[str]) -> Event:
    """One record of the tracker; `where` names its flow."""
    kind, value = st.EVENT_NAMES[event["kind"]], int(event["value"])
    psn = int(event["psn"])
    if kind == "nak":
        text = f"{where}: NAK, {NAK_NAMES.get(value, f'code 0x{value:02x}')}, PSN {psn}"
    elif kind == "rnr_nak":
        text = f"{where}: RNR NAK, PSN {psn}"
    elif kind == "rewind":
        text = f"{where}: retransmits from PSN {psn} ({st.TRIGGER_NAMES[value]})"
    else:
        text = f"{where}: PSN jumps to {psn}: the queue pair restarted or packets were not captured"
    return Event(
        time_ns=int(event["time"]),
        kind=kind,
        flow=int(event["flow"]),
        frame_number=int(event["frame_number"]),
        tap=taps[event["tap"]],
        text=text,
    )


def cm_events(measuring: Measuring, names: Names) -> list[Event]:
    """Connection setup and teardown (CM messages)."""
    return [
        Event(
            time_ns=message.time_ns,
            kind="cm",
            flow=None,
            frame_number=message.frame_number,
            tap=names.taps[message.tap],
            text=_cm_text(message, names.addresses),
        )
        for message in measuring.cm.messages
    ]


def _cm_text(message: CmMessage, addresses: list[str]) -> str:
    src, dst = addresses[message.src], addresses[message.dst]
    text = f"{src} > {dst}: CM {message.kind}"
    if message.qpn is not None:
        text += f", QP 0x{message.qpn:06x}"
    if message.starting_psn is not None:
        text += f", starting PSN {message.starting_psn}"
    if message.service_id is not None:
        text += f", service {service_name(message.service_id)}"
    if message.reason is not None:
        text += f", reason {message.reason}"
    return text


def _odd_dscps(measuring: Measuring, names: Names) -> list[Event]:
    """Queue pairs in another traffic class than comparable queue pairs."""
    flows = measuring.tracker.flows
    with_data = np.flatnonzero(
        (flows["payload_bytes"] > 0) & (flows["dest_qp"] != GENERAL_SERVICES_QP)
    ).tolist()
    usual = {f: measuring.congestion.usual_dscp(f) for f in with_data}
    known = {f: dscp for f, dscp in usual.items() if dscp is not None}
    events = []
    for finding in dscp_outliers(known, flows["src"], flows["dst"]):
        hosts = [names.addresses[h] for h in finding.hosts or ()]
        first = min(f for odd in finding.flows.values() for f in odd)
        events.append(
            Event(
                time_ns=int(flows[first]["first_time"]),
                kind="dscp",
                flow=first,
                frame_number=None,
                tap=None,
                text=finding.text(*hosts),
            )
        )
    return events


# Hops, capture losses and clocks as result records.

LISTED_FLOWS = 1_000
LISTED_FRAMES = 1_000
_QUANTILES = (0.5, 0.9, 0.99, 0.999)
_STEP_NS = 100_000
"""A clock step changes the offset of two taps by at least this from one window to the next."""
_DRIFT_WINDOWS = 8
_QUEUED_NS = 20_000
"""A round trip this much above the minimum waits in a queue: its offset shows nothing."""
_LEAST_DRIFT_NS = 50_000
"""Drifts that reach less than this over all windows stay in the delays."""
_USUAL_DRIFT = 0.00015
"""Two oscillators drift apart by no more, as a rule."""
_MOST_DRIFT = 0.0005
"""No oscillator of a NIC or server drifts faster."""


def hop_records(tap_hops: TapHops, measure: HopMeasure, names: Sequence[str]) -> list[Hop]:
    """One record per hop and direction, most packets first."""
    return [_hop(i, hop, tap_hops, measure, names) for i, hop in enumerate(tap_hops.hops)]


def _hop(
    number: int, hop: TapHop, tap_hops: TapHops, measure: HopMeasure, names: Sequence[str]
) -> Hop:
    total, lost = hop.total, hop.lost
    if total is not None:  # with the delays as the histograms have them
        total = measure.state.edges[measure.state.hops[int(total["hop"])]]
    drop = None
    if total is not None and total["drop_min"] == total["drop_max"]:
        drop = int(total["drop_min"])
    delay = None if total is None else delays(measure.histograms, total)
    queueing = None
    if delay is not None:
        queueing = Quantiles(
            delay.count,
            0.0,
            delay.mean - delay.min,
            delay.p50 - delay.min,
            delay.p90 - delay.min,
            delay.p99 - delay.min,
            delay.p999 - delay.min,
            delay.max - delay.min,
        )
    flows = np.union1d(hop.passed["flow"], lost["flow"])

    def counted(name: str) -> int:
        return 0 if total is None else int(total[name])

    return Hop(
        id=number,
        from_tap=names[hop.from_tap],
        to_tap=names[hop.to_tap] if hop.to_tap >= 0 else None,
        device=tap_hops.devices.get((hop.from_tap, hop.to_tap)),
        expected_by=hop.expected_by if len(lost) else None,
        flows=len(flows),
        packets=hop.packets,
        wire_bytes=counted("wire_bytes") + int(lost["wire_bytes"].sum()),
        passed_packets=hop.passed_packets,
        lost_packets=len(lost),
        lost_percent=100 * len(lost) / hop.packets,
        lost_by_flow=_lost_by_flow(hop),
        lost_frames=_lost_frames(hop),
        first_lost_ns=int(lost["time"].min()) if len(lost) else None,
        last_lost_ns=int(lost["time"].max()) if len(lost) else None,
        ce_marked_packets=counted("marked"),
        reordered_packets=counted("late"),
        overtaken_by=None
        if total is None
        else measure.histograms.quantiles(int(total["hop"]), state.OVERTAKEN),
        duplicate_packets=counted("copies"),
        trimmed_packets=counted("trimmed"),
        dscp_changed_packets=counted("dscp_changed"),
        hop_limit_drop=drop,
        delay_ns=delay,
        queueing_ns=queueing,
    )


def _lost_frames(hop: TapHop) -> list[int]:
    known = hop.lost[hop.lost["frame"] > 0]
    first = known[np.argsort(known["time"], kind="stable")][:LISTED_FRAMES]
    frames: list[int] = first["frame"].tolist()
    return frames


def _lost_by_flow(hop: TapHop) -> list[LostAt]:
    flows, index, counts = np.unique(hop.lost["flow"], return_inverse=True, return_counts=True)
    passed = dict(zip(hop.passed["flow"].tolist(), hop.passed["packets"].tolist(), strict=True))
    losses = []
    for i in np.argsort(-counts, kind="stable")[:LISTED_FLOWS].tolist():
        flow, times = int(flows[i]), hop.lost["time"][index == i]
        lost = int(counts[i])
        losses.append(
            LostAt(flow, lost, lost + passed.get(flow, 0), int(times.min()), int(times.max()))
        )
    return losses


def delays(histograms: HistogramPool, edge: Records | Any) -> Quantiles | None:
    """The delays of a hop: two histograms, of delays above and below the first one."""
    hop, base = int(edge["hop"]), int(edge["delay_base"])
    above = [(b.low, b.high, b.count) for b in histograms.bins(hop, state.AHEAD)]
    below = [(1 - b.high, 1 - b.low, b.count) for b in reversed(histograms.bins(hop, state.BEHIND))]
    bins = below + above
    count = sum(n for _, _, n in bins)
    if not count:
        return None
    low, high = int(edge["delay_min"]), int(edge["delay_max"])

    def quantile(q: float) -> float:
        rank, passed = q * (count - 1), 0
        for start, stop, n in bins:
            if passed + n > rank:
                value = base + start + (rank - passed + 0.5) / n * (stop - 1 - start)
                return float(min(max(value, low), high))
            passed += n
        return float(high)

    total = sum(
        sign * int(histograms.arrays.stats[row, 1])
        for kind, sign in ((state.AHEAD, 1), (state.BEHIND, -1))
        if (row := int(histograms.arrays.row[hop, kind]) - 1) >= 0
    )
    p50, p90, p99, p999 = (quantile(q) for q in _QUANTILES)
    return Quantiles(count, low, base + total / count, p50, p90, p99, p999, high)


def capture_losses(tap_hops: TapHops, names: Sequence[str]) -> list[CaptureLoss]:
    """What each capture missed."""
    return [
        CaptureLoss(
            tap=names[missed.tap],
            packets=len(missed.flows),
            of_packets=len(missed.flows) + missed.passed,
            first_ns=int(missed.times.min()),
            last_ns=int(missed.times.max()),
            flows=np.unique(missed.flows)[:LISTED_FLOWS].tolist(),
        )
        for missed in tap_hops.missed
    ]


def clocks(tap_hops: TapHops, names: Sequence[str]) -> list[TapClock]:
    """The clocks of neighbouring taps with packets in both directions."""
    by_taps = {(hop.from_tap, hop.to_tap): hop for hop in tap_hops.hops if hop.total is not None}
    slopes = _slopes(tap_hops)
    records = []
    for (near, far), there in by_taps.items():
        back = by_taps.get((far, near))
        if back is None or far < near:
            continue
        forth_ns, back_ns = int(there.total["delay_min"]), int(back.total["delay_min"])
        offsets, trips = _offsets(there, back)
        drift = _drift(offsets, trips)
        steady = [slope for slope in (drift, slopes[near, far]) if slope]
        begins = (
            _steps(offsets, trips, steady, tap_hops.window_ns) * tap_hops.window_ns
            + tap_hops.origin_ns
        ).tolist()
        records.append(
            TapClock(
                tap=names[far],
                relative_to=names[near],
                offset_ns=(forth_ns - back_ns) / 2,
                uncertainty_ns=abs(forth_ns + back_ns) / 2,
                drift_ppm=None if drift is None else drift / tap_hops.window_ns * 1e6,
                steps=len(begins),
                first_step_ns=begins[0] if begins else None,
                last_step_ns=begins[-1] if begins else None,
            )
        )
    return records


def _offsets(there: TapHop, back: TapHop) -> tuple[Floats, Floats]:
    """Offset and round trip per window with packets of both directions, from the least delays."""
    both = (there.windows[:, state.PACKETS_IN] > 0) & (back.windows[:, state.PACKETS_IN] > 0)
    forth, backward = (
        np.where(both, hop.windows[:, state.DELAY_LEAST], 0).astype(np.float64)
        for hop in (there, back)
    )
    unknown = np.where(both, 0.0, np.nan)
    return (forth - backward) / 2 + unknown, forth + backward + unknown


def _drift(offsets: Floats, trips: Floats) -> float | None:
    """Drift per window: the median slope between windows without a queue; None with too few."""
    least = np.nanmin(trips, initial=np.inf)
    at = np.flatnonzero(trips <= least + max(_QUEUED_NS, abs(least) / 2))
    return _slope(at, offsets[at]) if len(at) >= _DRIFT_WINDOWS else None


def _slope(at: Ints, values: Floats) -> float:
    """The median slope between any two of these values (Theil-Sen): jumps and queues that last for
    a small part of the time do not change it."""
    first, second = np.triu_indices(len(at), 1)
    return float(np.median((values[second] - values[first]) / (at[second] - at[first])))


def _steps(offsets: Floats, trips: Floats, slopes: Sequence[float], window_ns: int) -> Ints:
    """The windows after jumps of the offset that neither a queue nor a steady drift explains.

    A queue changes the round trip too; one that empties while that of the other direction fills
    leaves it as it is, but the offset stays within half a round trip of what was measured. A clock
    that drifts is as far off after a pause as its usual slope says.

    slopes: of the drift per window, as this hop and its neighbours tell; where none does, any
    oscillator may explain it.
    """
    # Below 0: the clock moved inside the window.
    known = np.flatnonzero(~np.isnan(offsets) & (trips >= 0))
    offsets, trips = offsets[known], trips[known]
    change, jump, apart = np.abs(np.diff(trips)), np.diff(offsets), np.diff(known)
    unexplained = np.abs(jump)
    for slope in slopes:
        unexplained = np.minimum(unexplained, np.abs(jump - slope * apart))
    if not slopes:
        unexplained = np.maximum(unexplained - _USUAL_DRIFT * window_ns * apart, 0)
    jump = unexplained
    within = (trips[1:] + trips[:-1]) / 2
    return known[1:][(jump > np.maximum(_STEP_NS, within)) & (change < jump / 4)]


def without_drift(tap_hops: TapHops) -> TapHops:
    """With the delays that clocks without a steady drift would show, in `windows`, and in the least
    and longest delay of `total` and `passed`.

    The drift of each clock is that against the clocks of most taps, from neighbour to neighbour; of
    a hop without packets of the other direction it is the slope of its least delays, if that is one
    of an oscillator.
    """
    slopes = _slopes(tap_hops)
    if not any(slopes.values()):
        return tap_hops
    hops = []
    for hop in tap_hops.hops:
        slope = slopes.get((hop.from_tap, hop.to_tap), 0.0)
        if hop.total is None or abs(slope) * state.WINDOWS < _LEAST_DRIFT_NS:
            hops.append(hop)
            continue
        used = np.flatnonzero(hop.windows[:, state.PACKETS_IN])
        middle = used[0]
        shift = np.round((used - middle) * slope).astype(np.int64)
        windows, total, passed = hop.windows.copy(), hop.total.copy(), hop.passed.copy()
        for column in (state.DELAY_LEAST, state.DELAY_MOST):
            windows[used, column] -= shift
        total["delay_min"] = windows[used, state.DELAY_LEAST].min()
        total["delay_max"] = windows[used, state.DELAY_MOST].max()
        slowest = passed["shown_ns"][:, state.SLOWEST] - passed["delay_max"]
        at = (slowest - tap_hops.origin_ns) / tap_hops.window_ns
        passed["delay_max"] -= np.round((at - middle) * slope).astype(np.int64)
        hops.append(replace(hop, windows=windows, total=total, passed=passed))
    return replace(tap_hops, hops=hops)


def _slopes(tap_hops: TapHops) -> dict[tuple[int, int], float]:
    """By tap and next tap: drift of the clock of the next tap against the other one per window."""
    by_taps = {(hop.from_tap, hop.to_tap): hop for hop in tap_hops.hops if hop.total is not None}
    beside: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for (near, far), there in by_taps.items():
        back = by_taps.get((far, near))
        drift = None if back is None or far < near else _drift(*_offsets(there, back))
        if drift is not None:
            beside[near].append((far, drift))
            beside[far].append((near, -drift))
    drifts: dict[int, float] = {}
    group: dict[int, int] = {}
    for root in beside:
        if root in drifts:
            continue
        drifts[root], group[root], waiting = 0.0, root, [root]
        for tap in waiting:
            for other, drift in beside[tap]:
                if other not in drifts:
                    drifts[other], group[other] = drifts[tap] + drift, root
                    waiting.append(other)
    slopes = {}
    for (near, far), hop in by_taps.items():
        if near in group and group[near] == group.get(far):
            slopes[near, far] = drifts[far] - drifts[near]
        else:
            slopes[near, far] = _slope_of_one_way(hop, tap_hops.window_ns)
    return slopes


def _slope_of_one_way(hop: TapHop, window_ns: int) -> float:
    """Drift per window by the least delays of one direction; 0 if they do not lie on a line, or if
    no oscillator drifts so fast."""
    at = np.flatnonzero(hop.windows[:, state.PACKETS_IN])
    if len(at) < _DRIFT_WINDOWS:
        return 0.0
    least = hop.windows[at, state.DELAY_LEAST].astype(np.float64)
    slope = _slope(at, least)
    rest = least - slope * at
    is_line = np.percentile(rest, 90) - np.percentile(rest, 10) < abs(slope) * (at[-1] - at[0]) / 4
    return slope if is_line and abs(slope) <= _MOST_DRIFT * window_ns else 0.0


# Builds the record of one flow from all measures.


class FlowSummary:
    """Makes the records of flows.

    connection_of, owners: connection number and process by flow index. sampled: of
    `sampled_taps`. mrc: None when there is no MRC. tap_hops: None with one tap.
    gaps: of `gaps_of`.
    """

    def __init__(
        self,
        measuring: Measuring,
        names: Names,
        path_by: PathBy,
        connection_of: Mapping[int, int],
        owners: Mapping[int, Owner],
        sampled: Mapping[str, float],
        mrc: MrcSummary | None,
        tap_hops: TapHops | None,
        gaps: Gaps,
    ) -> None:
        self._m = measuring
        self._names = names
        self._path_by = path_by
        self._connection_of = connection_of
        self._owners = owners
        self._sampled = sampled
        self._gaps = gaps
        self._mrc = mrc
        self._marked = {} if tap_hops is None else tap_hops.arisen("marked")
        self._late = {} if tap_hops is None else tap_hops.arisen("late")
        self._lost = {} if tap_hops is None else tap_hops.lost()

    @cached_property
    def places(self) -> NDArray[np.int64]:
        """The place of each tap; parallel taps share one, see `tap_places`."""
        m, flows = self._m, self._m.tracker.flows
        copies = m.tracker.copies
        return tap_places(m.taps, flows["src"], flows["dst"], copies, len(self._names.taps))

    @cached_property
    def _key(self) -> str:
        """The key of paths: of `auto` taps, or the links in a tap, where some are parallel."""
        if self._path_by != "auto":
            return "tap" if self._path_by == "link" else self._path_by
        several = self._m.many_taps and len(set(self.places.tolist())) < len(self.places)
        return "tap" if several else "entropy"

    @cached_property
    def _unpaired_answers(self) -> set[tuple[int, int]]:
        """Source and destination of flows without a peer that carry answers."""
        flows = self._m.tracker.flows
        answers = flows["ack_packets"] + flows["response_packets"] > 0
        lone = flows[(flows["peer"] < 0) & answers]
        return set(zip(lone["src"].tolist(), lone["dst"].tolist(), strict=True))

    def flow(self, f: int) -> Flow:
        """Everything about one flow."""
        m, t = self._m, self._m.tracker
        record: Any = t.flows[f]
        requests, responses = t.stream(f, st.REQUESTS), t.stream(f, st.RESPONSES)
        packets = t.opcodes(np.array([f]))[0]
        sequenced = bool(requests["started"] or responses["started"])
        notes: list[str] = []
        missing = acknowledged = None
        if not sequenced:
            only_acks = record["ack_packets"] == record["packets"]
            what = "only ACKs were seen: they have" if only_acks else "datagrams and CNPs have"
            if TRANSPORT_NAMES[record["transport"]] == "MRC" and not only_acks:
                what = "only control packets were seen: they have"
            notes.append(f"{what} no PSN sequence that could show reordering or loss")
        if sequenced:
            missing, acknowledged = (
                sum(pair)
                for pair in zip(t.missing(f, st.REQUESTS), t.missing(f, st.RESPONSES), strict=True)
            )
            if t.in_part(f):
                notes.append(
                    f"{missing} PSNs were never seen here: this tap seems to see only some of"
                    " the flow's paths, so losses are unknown"
                )
                missing = acknowledged = None
        entropy = m.entropy.spraying(f)
        by_tap = m.taps.spraying(f, self._names.tap, self.places) if m.many_taps else None
        by_segments = m.srv6.spraying(f, self._names.segments.name)
        spraying = [s for s in (entropy, by_tap, by_segments) if s is not None]
        chosen = next((s for s in spraying if s.path_by == self._key), entropy)
        messages = m.messages.messages(f)
        untracked = m.messages.untracked(f)
        peer = int(record["peer"])
        cut = peer >= 0 and bool(t.flows[peer]["cut_answers"])
        latency = m.messages.latency(f)
        if cut:
            messages = structs.replace(messages, completion_ns=None, max_outstanding=None)
            notes.append(
                "the snap length cuts off the AETH of its answers: NAKs, completion times and"
                " goodput are unknown"
            )
        elif untracked:
            notes.append(
                f"{untracked} requests exceeded the tracking limit: they are missing from"
                " the completion times"
            )
        elif m.messages.unacknowledged(f):
            ends = int(record["dst"]), int(record["src"])
            what = "no answer to its requests was seen"
            if peer < 0 and ends in self._unpaired_answers:
                what = "which answers between the hosts are its own is unknown"
            notes.append(f"{what}: goodput is unknown")

        mrc = self._mrc.flow(f) if self._mrc else None
        if mrc is not None:
            notes += unknowns(mrc)
        answered_again = int(responses["recovered"] + responses["retransmitted"])
        if answered_again:
            notes.append(
                f"{answered_again} retransmitted packets answer READs or atomics, mostly repeated"
                " ones: rewinds and triggers are those of the requests only"
            )
        counts = _counts(record, requests, responses, sequenced) | m.counters.of(f)
        counts["ecn_marked_packets"] += self._marked.get(f, 0)
        several = bool(record["tap_copies"]) or f in self._lost
        summary = Flow(
            id=f,
            src=self._names.addresses[record["src"]],
            dst=self._names.addresses[record["dst"]],
            dest_qp=int(record["dest_qp"]),
            transport=TRANSPORT_NAMES[record["transport"]],
            connection=self._connection_of.get(f),
            first_time_ns=int(record["first_time"]),
            last_time_ns=int(record["last_time"]),
            opcodes={opcode_name(int(op)): int(packets[op]) for op in np.flatnonzero(packets)},
            path_mtu=int(record["path_mtu"]) or None,
            messages=messages.count,
            reordered_between_taps=self._late.get(f, 0) if several else None,
            lost_between_taps=self._lost.get(f, 0) if several else None,
            missing_packets=missing,
            capture_loss_suspected_packets=acknowledged,
            entropy_values=m.entropy.paths_seen(f),
            spraying_width=chosen.width if chosen else 1.0,
            paths=chosen.paths if chosen else [],
            spraying=spraying,
            reordering=self._reordering(f, requests, responses),
            recovery=self._recovery(
                f, record, cut, known=not answered_again or requests["started"]
            ),
            message_statistics=messages,
            latency=structs.replace(latency, request_to_ack_ns=None) if cut else latency,
            congestion=m.congestion.congestion(f, self._marked.get(f, 0)),
            idle_gaps=m.idle.gaps(f),
            goodput_bits_per_second=None if cut else m.messages.goodput_bits_per_second(f),
            activity_bytes=m.activity.column(f),
            activity_bin_ns=m.activity.width_ns,
            taps=self._seen_at(f, record),
            owner=self._owners.get(f),
            notes=notes,
            mrc=mrc or UNSET,
            **counts,
        )
        return as_hidden(as_sampled(summary, self._sampled), self._gaps)

    def _seen_at(self, f: int, record: Any) -> dict[str, int]:
        if not self._m.many_taps:
            return {self._names.taps[0]: int(record["packets"])}
        seen = {self._names.taps[tap]: n for tap, n in self._m.taps.packets_by_key(f).items()}
        earlier = int(record["packets"] + record["tap_copies"]) - sum(seen.values())
        if earlier:  # all packets were at the first tap until another tap appeared
            seen = {self._names.taps[0]: seen.pop(self._names.taps[0], 0) + earlier, **seen}
        return seen

    def _reordering(self, f: int, requests: Any, responses: Any) -> Reordering | None:
        """RFC metrics over both streams of the flow; None without PSNs of its own."""
        unique = int(requests["arrivals"] + responses["arrivals"])
        if unique == 0:
            return None
        tracker = self._m.tracker
        h, d = tracker.histograms, tracker.densities
        n_counts = tracker.n_counts(f, st.REQUESTS) + tracker.n_counts(f, st.RESPONSES)
        # A 3-reordered packet is also 1- and 2-reordered.
        n_reordering = np.cumsum(n_counts[::-1])[::-1]
        return Reordering(
            ratio=int(requests["reordered"] + responses["reordered"]) / unique,
            max_extent=int(max(requests["max_extent"], responses["max_extent"])),
            extent_packets=h.quantiles(f, st.EXTENT),
            extent_histogram=h.bins(f, st.EXTENT),
            late_time_ns=h.quantiles(f, st.LATE_TIME),
            late_time_histogram=h.bins(f, st.LATE_TIME),
            held_packets=h.quantiles(f, st.HELD_PACKETS),
            byte_offset=h.quantiles(f, st.BYTE_OFFSET),
            gap_packets=h.quantiles(f, st.GAP_PACKETS),
            gap_time_ns=h.quantiles(f, st.GAP_TIME),
            n_reordering=[int(n) for n in n_reordering if n],
            max_n_reordering=int(max(requests["max_n"], responses["max_n"])),
            runs=int(requests["runs"] + responses["runs"]),
            run_packets=int(requests["run_packets"] + responses["run_packets"]),
            run_packets_squared=int(
                requests["run_packets_squared"] + responses["run_packets_squared"]
            ),
            displacement_threshold=MAX_THRESHOLD,
            density=_sum(d.density(f, st.REQUESTS), d.density(f, st.RESPONSES)),
            buffer_density=_sum(
                d.buffer_density(f, st.REQUESTS), d.buffer_density(f, st.RESPONSES)
            ),
        )

    def _recovery(self, f: int, record: Any, cut: bool, known: bool) -> Recovery:
        """cut: the AETHs of its answers are cut off. known: the retransmissions of the flow have
        triggers of its own."""
        h = self._m.tracker.histograms
        codes = {
            NAK_NAMES.get(0x60 | code, "other"): int(n)
            for code, n in enumerate(record["nak_codes"])
            if n
        }
        return Recovery(
            naks=None if cut else codes,
            rnr_naks=None if cut else int(record["rnr_received"]),
            retransmitted_by={
                name: int(n)
                for name, n in zip(st.TRIGGER_NAMES, record["retransmitted_by"], strict=True)
                if n
            }
            if known
            else None,
            rewinds=int(record["rewinds"]) if known else None,
            rewound_bytes=int(record["rewound_bytes"]) if known else None,
            retransmission=self._m.troubles.retransmits(f),
            gap_to_nak_ns=h.quantiles(f, st.GAP_TO_NAK),
            nak_to_resend_ns=h.quantiles(f, st.NAK_TO_RESEND),
            timeout_ns=h.quantiles(f, st.TIMEOUT),
        )


def _counts(record: Any, requests: Any, responses: Any, sequenced: bool) -> dict[str, Any]:
    """The fields of `Flow` that are columns of the tracker, by name."""
    counts: dict[str, Any] = {}
    for fact in facts_of(Flow):
        if fact.flow_column:
            counts[fact.name] = int(record[fact.flow_column])
            if record["cut_answers"] and fact.name in ("naks", "rnr_naks"):
                counts[fact.name] = None
        elif fact.stream_columns:
            streams = sum(requests[name] + responses[name] for name in fact.stream_columns)
            counts[fact.name] = int(streams) if sequenced else fact.unsequenced
    return counts


def _sum(counts: dict[int, int], other: dict[int, int]) -> dict[int, int]:
    return {k: counts.get(k, 0) + other.get(k, 0) for k in sorted({*counts, *other})}


# Pairs flows as the two directions of a connection.


def connections(
    measuring: Measuring, addresses: list[str]
) -> tuple[dict[int, int], list[Connection]]:
    """The connection of each flow that has a partner, by flow index; and the connections."""
    t = measuring.tracker
    of: dict[int, int] = {}
    records: list[Connection] = []
    services = t.find(measuring.cm.services)
    service_of = {services[key]: measuring.cm.services[key] for key in services}
    for f in np.flatnonzero(t.flows["peer"] >= 0).tolist():
        g = int(t.flows[f]["peer"])
        if g < f:
            continue
        flow, other = t.flows[f], t.flows[g]
        evidence = int(flow["evidence"] | other["evidence"])
        service = service_of.get(f, service_of.get(g))
        of[f] = of[g] = len(records)
        records.append(
            Connection(
                id=len(records),
                flows=[f, g],
                a=addresses[flow["src"]],
                a_qp=int(other["dest_qp"]),
                b=addresses[flow["dst"]],
                b_qp=int(flow["dest_qp"]),
                transport=TRANSPORT_NAMES[flow["transport"]],
                evidence=[name for bit, name in st.EVIDENCE_NAMES if evidence & bit],
                path_mtu=int(max(flow["path_mtu"], other["path_mtu"])) or None,
                service=None if service is None else service_name(service),
                read_responses_missing=_responses_missing(t, f, g),
            )
        )
    return of, records


def _responses_missing(tracker: FlowTracker, f: int, g: int) -> int | None:
    """PSNs of READ responses between the two flows that were never seen; None without READs."""
    if not tracker.flows[f]["read_requests"] + tracker.flows[g]["read_requests"]:
        return None
    return int(tracker.missing(f, st.RESPONSES)[0] + tracker.missing(g, st.RESPONSES)[0])


# The summary of an analysis: all of its records.


class Summary:
    """Builds the records; one instance per result, whose creation settles the pairing.

    owners: processes by flow index, from the probes of this host. in_passing: for single flows of a
    running analysis; pairing stays unchanged and connections have no numbers. fabric: shows the
    next taps of lost packets where no other packet does. now_ns: the present, while
    the captures run.
    """

    def __init__(
        self,
        measuring: Measuring,
        registry: Registry,
        path_by: PathBy,
        owners: Mapping[int, Owner] | None = None,
        in_passing: bool = False,
        *,
        plane_by: PlaneBy | None = None,
        fabric: FabricLinks | None = None,
        now_ns: int | None = None,
    ) -> None:
        self._m = measuring
        self._settled = None if in_passing or not measuring.many_taps else measuring.hops.settled()
        if self._settled is not None and registry.taps.show_links:
            edges, sources = self._settled.edges, measuring.tracker.flows["src"]
            name_links(registry, name_devices(edges, sources, registry))
        self._names = names = Names(measuring.tracker, registry)
        connection_of: dict[int, int] = {}
        self.connections: list[Connection] = []
        if not in_passing:
            settle(measuring.tracker, measuring.cm)
            connection_of, self.connections = connections(measuring, names.addresses)
        self._sampled = sampled_taps(registry.taps)
        self._shared = {tap for tap in range(len(registry.taps)) if registry.taps[tap].shared}
        gaps = gaps_of(registry.taps)
        self.tap_hops: TapHops | None = None
        self._clocks: list[TapClock] = []
        if self._settled is not None:
            taps = registry.taps
            unplaced = self._shared | {names.taps.index(tap) for tap in self._sampled}
            set_back = {tap for tap in range(len(taps)) if taps.carrier(tap).clock_steps}
            clock_of = [taps.clock(tap) for tap in range(len(taps))]
            set_forward = self._settled.times.jumps(clock_of, set_back)
            unclocked = set_back | set(set_forward)
            hops = decide_losses(
                self._settled, measuring.tracker, names.taps, fabric, names.addresses, unclocked,
                now_ns,
            )  # fmt: skip
            hops.set_forward = set_forward
            hops = hops.without(unplaced | unclocked)
            in_gaps = {names.taps.index(tap): of_tap for tap, of_tap in gaps.items()}
            if gaps:
                flows = measuring.tracker.flows
                hops = without_hidden(hops, in_gaps, flows["first_time"], flows["last_time"])
            self._clocks = clocks(hops, names.taps)
            self.tap_hops = without_drift(hops)
        self.mrc: MrcSummary | None = None
        if measuring.mrc.packets:
            self.mrc = MrcSummary(measuring, names, plane_by or PlaneBy())
        self._flows = FlowSummary(
            measuring,
            names,
            path_by,
            connection_of,
            owners or {},
            self._sampled,
            self.mrc,
            self.tap_hops,
            gaps,
        )

    def flow(self, f: int) -> Flow:
        """Everything about one flow."""
        return self._flows.flow(f)

    def flows(self) -> list[Flow]:
        """All flows in order of their first packet."""
        return [self.flow(f) for f in range(len(self._m.tracker))]

    def events(self, limit: int) -> tuple[list[Event], int]:
        """The first `limit` events, and the number of further events; see `first_events`."""
        return first_events(self._m, self._names, self._sampled, self.mrc_events(), limit)

    def events_between(self, first: int, stop: int) -> list[Event]:
        """Tracked events number `first` up to `stop`, in the order of detection."""
        return tracked_events(self._m, self._names, first, stop)

    def cm_events(self) -> list[Event]:
        """Connection setup and teardown (CM messages)."""
        return cm_events(self._m, self._names)

    def mrc_events(self) -> list[Event]:
        """NACKs, retired and returned entropy values, ports down and up; empty without MRC."""
        return [] if self.mrc is None else self.mrc.events()

    def imbalance(self) -> list[Imbalance]:
        """Parallel taps per direction, then the entropy values of the largest sprayed flows."""
        m, flows, names = self._m, self._m.tracker.flows, self._names
        imbalances = []
        if m.many_taps:
            copies = m.tracker.copies
            ends = flows["src"], flows["dst"]
            imbalances += tap_imbalances(
                m.taps, *ends, copies, names.taps, names.addresses, self._shared
            )
        return imbalances + entropy_imbalances(m.entropy, len(flows), names.flow)

    def hops(self) -> tuple[list[Hop], list[CaptureLoss], list[TapClock]]:
        """Hops between taps, what captures missed, and the clocks of taps."""
        if self.tap_hops is None or self._settled is None:
            return [], [], []
        names = self._names.taps
        hops = hop_records(self.tap_hops, self._settled, names)
        return hops, capture_losses(self.tap_hops, names), self._clocks

    def segment_lists(self) -> list[SegmentList]:
        """The SRv6 paths with the most bytes."""
        return segment_lists(self._m.srv6, self._names.segments)
