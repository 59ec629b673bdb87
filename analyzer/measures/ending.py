"""Ends idle flows of a running analysis: their sums stay, the flows leave memory.

The worst idle flows stay as they are, so that findings about them stay. The others, most of them
without any trouble, are added to `Measuring.ended`. The two flows of a connection leave together.
An analysis of captures ends those that are idle for longest when memory has no room for more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from ...kernels.kernel import Bools, Ints, Records
from ..results.base import Fact, facts_of
from ..results.captures import Ended
from ..results.flow import Flow
from ..statistics.per_flow import kept_flows
from ..track.pairing import settle
from ..track.tracker import PARTIAL_VIEW_SHARE, FlowTracker
from ..wire.taps import Gap
from .hops.hops import TapHops
from .hops.losses import decide_losses
from .measuring import Departed, Measuring

Gaps = Mapping[str, Sequence[Gap]]
"""By the name of a tap; losses of flows that live meanwhile are unknown."""
NO_GAPS: Gaps = MappingProxyType({})
Leaving = Callable[[Ints], None]
"""Called with the numbers of flows that are about to leave memory: its last chance to read them."""
IDLE_AFTER_NS = 60_000_000_000
"""Default time after its last packet when a flow is idle."""
IDLE_KEPT = 1000
"""Idle flows that stay: those with the most trouble, then those with the most bytes."""
LEAST_LEAVING, LEAVING_PART = 1000, 8
"""Fewer flows, or less than one part in N of all, are not worth a copy of all state."""
_EVERY_S, _SHARE = 1.0, 20
_GROWTH = 2
_TIMES = np.iinfo(np.int64)

TRACKED_FACTS = [fact for fact in facts_of(Flow) if fact.flow_column or fact.stream_columns]
"""The fields of `Flow` that are columns of the tracker."""


def end_idle(
    measuring: Measuring,
    idle_ns: int,
    tap_names: list[str],
    most_kept: int = IDLE_KEPT,
    least_leaving: int = LEAST_LEAVING,
    gaps: Gaps = NO_GAPS,
    leaving: Leaving | None = None,
) -> int:
    """End flows without a packet for `idle_ns` before the present of `measuring.clock`.

    Result: the number of flows that left; 0 where too few are idle to be worth it. With
    conformance no flow leaves: its checks span all flows of a host.
    """
    tracker, now_ns = measuring.tracker, measuring.clock.now_ns
    if now_ns is None or measuring.conformance is not None:
        return 0
    if len(tracker) < most_kept + least_leaving:
        return 0
    before = now_ns - idle_ns
    if _idle(tracker, before).sum() - most_kept < max(least_leaving, len(tracker) // LEAVING_PART):
        return 0
    settle(tracker, measuring.cm)
    idle = _idle(tracker, before)
    return _end_some(measuring, idle, before, tap_names, most_kept, gaps, leaving)


def make_room(
    measuring: Measuring,
    most: int,
    tap_names: list[str],
    most_kept: int = IDLE_KEPT,
    gaps: Gaps = NO_GAPS,
    leaving: Leaving | None = None,
) -> int:
    """End the flows without a packet for longest, so that about `most` and the worst stay.

    Result: the number of flows that left; 0 with conformance. Packets that may still be in
    flight to another tap keep their flows. `measuring.departed` counts flows that come back.
    """
    tracker, now_ns = measuring.tracker, measuring.clock.now_ns
    if now_ns is None or measuring.conformance is not None or len(tracker) <= most:
        return 0
    settle(tracker, measuring.cm)
    last = tracker.flows["last_time"].copy()
    paired = np.flatnonzero(tracker.flows["peer"] >= 0)
    last[paired] = np.maximum(
        last[paired], tracker.flows["last_time"][tracker.flows["peer"][paired]]
    )
    leaves = np.zeros(len(tracker), np.bool_)
    leaves[np.argsort(last, kind="stable")[: len(tracker) - most]] = True
    before = int(last[leaves].max()) + 1
    if len(tap_names) > 1:
        before = min(before, now_ns - measuring.hops.horizon_ns)
        leaves &= last < before
    if measuring.departed is None:
        measuring.departed = Departed()
        measuring.ended = measuring.ended.joined(Ended(returned_flows=0))
    return _end_some(measuring, leaves, before, tap_names, most_kept, gaps, leaving)


def _end_some(
    measuring: Measuring,
    leaves: Bools,
    before_ns: int,
    tap_names: list[str],
    most_kept: int,
    gaps: Gaps,
    leaving: Leaving | None,
) -> int:
    """End these flows, without a packet since `before_ns`, but for the worst of them."""
    tracker = measuring.tracker
    leaves[measuring.hops.conclude_before(before_ns)] = False
    _join_partners(tracker, leaves)
    hops = None
    if measuring.hops.between_taps():  # no flow that leaves has a packet in flight
        hops = decide_losses(measuring.hops.settled(), tracker, tap_names)
    troubled = _trouble(measuring, hops)
    idle = np.flatnonzero(leaves)
    wire_bytes = tracker.flows["wire_bytes"][idle]  # a view would keep all flows in memory
    worst = idle[np.lexsort((wire_bytes, troubled[idle]))[::-1][:most_kept]]
    leaves[worst] = False
    _join_partners(tracker, leaves)
    if leaving is not None and leaves.any():
        leaving(np.flatnonzero(leaves))
    return _end(measuring, leaves, troubled, hops, [gaps.get(name, ()) for name in tap_names])


class Turns:
    """When a live analysis looks for idle flows: at most one part of its time in `_SHARE`.

    That is processor time: on a busy machine looks take longer, and flows must not stay for that.
    When flows have doubled since the last look it is time at once: memory depends on them, and
    the cost of all looks then still grows with the flows ever seen, not faster.
    """

    def __init__(self) -> None:
        self._next = 0.0
        self._flows = LEAST_LEAVING

    def is_due(self, flows: int, now: float) -> bool:
        """flows: those in memory; now: seconds of a monotonic clock."""
        return now >= self._next or flows > _GROWTH * self._flows

    def taken(self, flows: int, spent_s: float, now: float) -> None:
        """A look took `spent_s` of processor time; `flows` are left."""
        self._next = now + max(_EVERY_S, _SHARE * spent_s)
        self._flows = max(flows, LEAST_LEAVING)


def _idle(tracker: FlowTracker, before_ns: int) -> Bools:
    """Flows whose connection has had no packet since this time."""
    idle: Bools = tracker.flows["last_time"] < before_ns
    _join_partners(tracker, idle)
    return idle


def _join_partners(tracker: FlowTracker, leaves: Bools) -> None:
    """A flow leaves only with the other flow of its connection."""
    flow = np.flatnonzero(tracker.flows["peer"] >= 0)
    peer = tracker.flows["peer"][flow]
    stays = ~leaves[flow] | ~leaves[peer]
    leaves[flow[stays]] = leaves[peer[stays]] = False


def _trouble(measuring: Measuring, hops: TapHops | None) -> Ints:
    """int64[flows]: packets in trouble of each flow, for the choice of the worst."""
    tracker = measuring.tracker
    flows, count = tracker.flows, len(tracker)
    streams = tracker.state.streams[: 2 * count].reshape(count, 2)
    packets = measuring.troubles.packets(count) + measuring.troubles.unanswered(count)
    for name in ("missing", "missing_evicted", "restarts", "recovered", "retransmitted"):
        packets += streams[name].sum(axis=1)
    packets += flows["nak_codes"].sum(axis=1, dtype=np.int64) + flows["rnr_received"]
    if hops is not None:
        for hop in hops.hops:
            for name in ("marked", "late", "copies"):
                np.add.at(packets, hop.passed["flow"], hop.passed[name])
            np.add.at(packets, hop.lost["flow"], 1)
        for missed in hops.missed:
            np.add.at(packets, missed.flows, 1)
    for change in measuring.mrc.port_changes:
        packets[change.flow] += 1
    return packets


def _end(
    measuring: Measuring,
    leaves: Bools,
    troubled: Ints,
    hops: TapHops | None,
    gaps: list[Sequence[Gap]],
) -> int:
    """gaps: by tap."""
    tracker = measuring.tracker
    gone = np.flatnonzero(leaves)
    if not len(gone):
        return 0
    flows = tracker.flows[gone]
    streams = tracker.state.streams[: 2 * len(tracker)].reshape(-1, 2)[gone]
    sums = {fact.name: sum_tracked(fact, flows, streams) for fact in TRACKED_FACTS}
    missing, in_part = _missing(streams)
    lost = {} if hops is None else hops.lost()
    late = {} if hops is None else hops.arisen("late")
    hidden = _hidden(measuring, gone, (missing > 0) | np.isin(gone, [*lost, *late]), gaps)
    missing[hidden], in_part[hidden] = 0, True
    unseen = set(gone[hidden].tolist())
    sums["missing_packets"] = int(missing.sum())
    sums["partial_flows"] = int(np.count_nonzero(in_part))
    carried = flows["request_packets"] + flows["response_packets"]
    sums["sequenced_packets"] = int(carried[streams["started"].any(axis=1)].sum())
    if hops is not None:
        for name, counts in (
            ("lost_between_taps", lost), ("reordered_between_taps", late),
            ("marked_between_taps", hops.arisen("marked")), ("unknown_between_taps", hops.unknown),
        ):  # fmt: skip
            sums[name] = sum(packets for flow, packets in counts.items() if leaves[flow])
        for name, counts in (("lost_between_taps", lost), ("reordered_between_taps", late)):
            sums[name] -= sum(packets for flow, packets in counts.items() if flow in unseen)
        sums["unknown_between_taps"] += sum(n for flow, n in lost.items() if flow in unseen)
        sums["untapped_flows"] = sum(bool(leaves[flow]) for flow in hops.untapped)
        sums["missed_by_captures"] = sum(int(leaves[m.flows].sum()) for m in hops.missed)
    sums["flows"] = len(gone)
    first_of_pair = np.where(flows["peer"] >= 0, np.minimum(gone, flows["peer"]), gone)
    sums["queue_pairs"] = len(np.unique(first_of_pair[carried > 0]))
    sums["connections"] = int(np.count_nonzero(flows["peer"] > gone))
    sums["flows_in_trouble"] = int(np.count_nonzero(troubled[gone]))
    first, last = int(flows["first_time"].min()), int(flows["last_time"].max())
    measuring.ended = measuring.ended.joined(Ended(first_time_ns=first, last_time_ns=last, **sums))
    if measuring.departed is not None:
        measuring.departed.add(flows)
    measuring.cm.forget(
        zip(*(flows[name].tolist() for name in ("src", "dst", "dest_qp")), strict=True)
    )
    measuring.keep(kept_flows(~leaves))
    return len(gone)


def _hidden(measuring: Measuring, gone: Ints, losing: Bools, gaps: list[Sequence[Gap]]) -> Bools:
    """Which of the flows `gone` that are `losing` lived during a gap of a tap that saw them, or
    during a gap of another tap all the time."""
    flows = measuring.tracker.flows[gone]
    hidden = np.zeros(len(gone), np.bool_)
    for tap, of_tap in enumerate(gaps):
        during, throughout = np.zeros((2, len(gone)), np.bool_)
        for gap in of_tap:
            begin = _TIMES.min if gap.from_ns is None else gap.from_ns
            end = _TIMES.max if gap.until_ns is None else gap.until_ns
            during |= (flows["last_time"] >= begin) & (flows["first_time"] <= end)
            throughout |= (flows["first_time"] >= begin) & (flows["last_time"] <= end)
        hidden |= throughout & losing
        for n in np.flatnonzero(during & losing & ~hidden).tolist():
            hidden[n] = not measuring.many_taps or _passed(measuring, int(gone[n]), tap)
    return hidden


def _passed(measuring: Measuring, flow: int, tap: int) -> bool:
    """Whether the tap saw a packet of the flow. Until another tap appears the first sees all."""
    seen, record = measuring.taps.packets_by_key(flow), measuring.tracker.flows[flow]
    earlier = int(record["packets"] + record["tap_copies"]) > sum(seen.values())
    return tap in seen or (tap == 0 and earlier)


def sum_tracked(fact: Fact, flows: Records, streams: Records) -> int:
    """One of `TRACKED_FACTS` over flows and their streams."""
    if fact.flow_column:
        return int(flows[fact.flow_column].sum())
    return sum(int(streams[column].sum()) for column in fact.stream_columns)


def _missing(streams: Records) -> tuple[Ints, Bools]:
    """PSNs never seen of each flow, and whether the tap seems to see only a part: then 0."""

    def both(*fields: str) -> Ints:
        return sum(
            (streams[field].sum(axis=1) for field in fields), np.zeros(len(streams), np.int64)
        )

    missing, seen = (
        both("missing", "missing_evicted"),
        both("new_packets", "reordered", "recovered"),
    )
    in_part: Bools = missing > PARTIAL_VIEW_SHARE * (missing + seen)
    return np.where(in_part, 0, missing), in_part
