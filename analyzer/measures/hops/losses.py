"""Which packets were lost, and after which tap.

A packet that ends at a tap is lost only on evidence that it should have gone on (`Vantage`). Its
loss belongs to the network if it was retransmitted later, or if nothing says that it arrived; if it
was acknowledged and never retransmitted, the next capture missed it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ....kernels.kernel import Bools
from ...track.state import REQUESTS
from ...track.tracker import FlowTracker
from ...wire.bth import OPCODE_CLASS, PSN_HALF, PSN_MASK, REQUEST, SEQUENCED, UC, UD
from . import state
from .hops import ENDED, LOST, Missed, TapHop, TapHops, arrivals, spread_times
from .measure import HopMeasure
from .passing import FIRST_ENDS
from .state import END, START
from .testimony import (
    Misses,
    Testified,
    Testimony,
    VisitsByKey,
    add_skipped_packets,
    count_rows,
    packets_at_taps,
    plus,
    testified,
)
from .vantage import (
    MOST_DIRECT,
    Downstream,
    Evidence,
    FabricLinks,
    FabricTaps,
    Vantage,
    points_of,
    rows_of,
    short_names,
)

MOST_MOVES = 4
"""Flows that change their next tap more often are sprayed."""
MOST_ACKED = 0.5
"""Share of the requests of a flow that lost nothing that are acknowledged; others are in flight."""
UNANSWERED = (UC, UD)
RESENT_WITHIN_NS = 500_000_000
"""A sender retransmits what nobody answers within this time, at the usual ACK timeouts of NICs."""
ANSWERED_WITHIN_NS = 10_000_000
"""Answers so long after the last packet of a tap are for packets that it did not capture."""
LEAST_SILENT = 3
"""Retransmitted packets, none of which arrived, that show that a silent tap captured."""
LEAST_SILENT_FLOWS = 2
"""One flow alone must repeat a packet as often: go-back-N repeats what arrived after a loss."""
MOST_HEARD = 0.1
"""Answers that may seem to have arrived at a requester that repeats what they acknowledge."""
MOST_FURTHER = 0.1
"""Packets of a flow that go to a tap further away than its nearest next tap, up to this share."""
LIVE_GRACE_NS = 1_000_000_000
"""While the captures run, no packet counts as lost earlier: a paused output may hold it back, and
packets of other priorities pass."""

_TIMES = np.iinfo(np.int64)

Packets: TypeAlias = NDArray[Any]
"""LOST records."""
HopKey: TypeAlias = tuple[int, int]
"""The numbers of a tap and the next tap, -1 where that is unknown."""


def decide_losses(
    measure: HopMeasure,
    tracker: FlowTracker,
    tap_names: list[str],
    fabric: FabricLinks | None = None,
    addresses: Sequence[str] = (),
    unclocked: AbstractSet[int] = frozenset(),
    now_ns: int | None = None,
) -> TapHops:
    """The hops of a concluded measure. addresses: of all endpoints, for the fabric. unclocked: taps
    whose clock was set, so that their packets and those of other taps do not meet. now_ns: the
    present, while the captures run."""
    names = short_names(tap_names)
    fabric_taps = None if fabric is None else FabricTaps(fabric, points_of(names), addresses)
    flows = tracker.flows
    testimony = Testimony.of(measure, len(names), now_ns is not None, unclocked)
    counts = testified(measure, testimony, names)
    vantage = Vantage(counts.edges, flows["src"], flows["dst"], names, fabric_taps)
    losses = _Losses(measure, tracker, vantage, testimony, counts, unclocked, now_ns)
    losses.collect()
    losses.leave_out_flows_in_part()
    hops, misses = losses.decide()
    passes = measure.edges[measure.edges["flow"] >= 0]
    for (near, far), edge in vantage.hops.items():
        hop = hops.setdefault((near, far), TapHop(near, far))
        hop.total = edge
        hop.passed = passes[(passes["from_tap"] == near) & (passes["to_tap"] == far)]
        hop.windows = measure.state.windows[int(edge["hop"])]
    add_skipped_packets(misses, vantage, losses.moments, losses.start_numbers, unclocked)
    at_taps = packets_at_taps(measure, len(names))
    ended = np.zeros(len(vantage.ends), ENDED)
    for name, column in (("flow", "flow"), ("tap", "from_tap"), ("last_ns", "last_ns")):
        ended[name] = vantage.ends[column]
    clock = measure.state.clock
    devices = {hop: vantage.device_between(*hop) if hop[1] >= 0 else None for hop in hops}
    return TapHops(
        hops=sorted(hops.values(), key=lambda hop: -hop.packets),
        missed=[
            Missed(
                tap,
                np.concatenate([flows for flows, _ in parts]),
                np.concatenate([times for _, times in parts]),
                int(at_taps[tap]),
            )
            for tap, parts in sorted(misses.items())
        ],
        visits=counts.visits,
        window_ns=int(clock[state.WIDTH]),
        origin_ns=int(clock[state.ORIGIN] * clock[state.WIDTH]),
        newest_ns=losses.newest_ns,
        first_seen=testimony.first_ns,
        last_seen=testimony.last_ns,
        undecided=losses.undecided + int(measure.state.used[state.DOUBTED]),
        left=losses.left,
        open_sources=frozenset(source for source, _ in losses.open_ends) | vantage.partly_covered,
        elsewhere=len(losses.elsewhere),
        starts=vantage.starts,
        arrived=arrivals(measure.edges),
        ended=ended,
        unknown=losses.unknown,
        untapped=frozenset(losses.elsewhere),
        hurried=int(clock[state.HURRIED]),
        fabric_limits=() if fabric_taps is None else fabric_taps.limits,
        unlogged=int(measure.state.used[state.UNLOGGED]),
        names=names,
        devices={hop: device for hop, device in devices.items() if device is not None},
    )


class _Losses:
    """Packets that no later tap saw: the tables that the rules share, and what they decide."""

    def __init__(
        self,
        measure: HopMeasure,
        tracker: FlowTracker,
        vantage: Vantage,
        testimony: Testimony,
        counts: Testified,
        unclocked: AbstractSet[int],
        now_ns: int | None,
    ) -> None:
        self._tracker, self._vantage, self._testimony = tracker, vantage, testimony
        self._unclocked, self._now_ns = unclocked, now_ns
        self._counts = counts
        self.moments = counts.moments
        """By number of an edge: MOMENT records."""
        self._resent = measure.resent[
            np.lexsort((measure.resent["time"], _flow_and_psn(measure.resent)))
        ]
        edges = measure.edges
        self._hops = edges[measure.state.hops[: int(measure.state.used[state.HOPS])]]
        """EDGE of all flows by number of a hop."""
        of_flow = counts.edges["flow"] >= 0
        ends = of_flow & (counts.edges["to_tap"] == END)
        starts = of_flow & (counts.edges["from_tap"] == START)
        self._end_numbers = [counts.numbers[i] for i in np.flatnonzero(ends)]
        self.start_numbers = [counts.numbers[i] for i in np.flatnonzero(starts)]
        self._visits = VisitsByKey(counts.visits)
        self._moves = self._count_moves()
        """By flow and tap: consecutive packets that went to different next taps."""
        self.newest_ns = int(measure.state.clock[state.NEWEST])
        if unclocked:
            self.newest_ns = int(np.delete(testimony.last_ns, list(unclocked)).max(initial=-1))
        self.undecided = self.left = 0
        self.unknown: dict[int, int] = defaultdict(int)
        self.elsewhere: set[int] = set()
        self._ended: dict[HopKey, Packets] = {}
        """By hop: packets that should have passed it, in the order of time."""
        self._arrived: dict[HopKey, Bools] = {}
        """Which of them arrived."""
        self._evidence: dict[HopKey, set[Evidence]] = defaultdict(set)
        self._aside: dict[HopKey, list[Packets]] = defaultdict(list)
        """By hop: packets that the next tap could not see."""
        self.open_ends = self._find_open_ends()

    def _count_moves(self) -> dict[tuple[int, int], int]:
        """By flow and tap: moves of the flow; where it also skips next taps, all changes."""
        skips = self._counts.skipped
        visits = self._counts.visits
        visits = visits[(visits["moves"] > 0) | (visits["turns"] > 0)]
        return {
            (flow, tap): count
            for flow, tap, moves, turns in rows_of(visits, "flow", "tap", "moves", "turns")
            if (count := turns if (flow, tap) in skips else moves)
        }

    def collect(self) -> None:
        """Find the packets that a next tap should have seen, without those that nobody can judge
        and those that may have taken paths without a tap."""
        parts: dict[HopKey, list[Packets]] = defaultdict(list)
        for number, edge in zip(self._end_numbers, self._vantage.ends, strict=True):
            flow, near = int(edge["flow"]), int(edge["from_tap"])
            downstream = self._vantage.downstream(edge)
            if downstream is None or near in self._unclocked:
                continue
            far = downstream.point
            packets = self._packets_of(number, edge)
            is_judged = self._can_be_judged(packets, edge, far)
            if not is_judged.all():
                self._set_aside(edge, downstream, packets, is_judged, parts)
                packets = packets[is_judged]
            if not len(packets):
                continue
            if self._took_another_path(edge, len(packets)):
                self.elsewhere.add(flow)
                continue
            is_away = self._may_be_off_the_taps(edge, far, packets)
            if is_away.any():
                self.elsewhere.add(flow)
                self.left += self._count_unknown(packets[is_away])
                packets = packets[~is_away]
            is_beside = self._took_a_silent_path(edge, far, packets)
            if is_beside.any():
                self.undecided += self._count_unknown(packets[is_beside])
                packets = packets[~is_beside]
            is_unsure = self._may_use_another_link(edge, far, packets)
            if is_unsure.any():
                self.undecided += self._count_unknown(packets[is_unsure])
                packets = packets[~is_unsure]
            is_between = self._is_between_paths(edge, far, packets)
            if is_between.any() or self._may_be_beside(edge, far, packets):
                is_seen = self._can_be_judged(packets, edge, -1)
                is_unknown = ~is_seen if not is_between.any() else is_between & ~is_seen
                self.undecided += self._count_unknown(packets[is_unknown])
                packets, is_between = packets[~is_unknown], is_between[~is_unknown]
            for tap, some in ((far, packets[~is_between]), (-1, packets[is_between])):
                if len(some):
                    parts[near, tap].append(some)
                    self._evidence[near, tap].add(downstream.evidence)
        judged = {hop: list(some) for hop, some in parts.items()}
        for hop, aside in self._aside.items():
            for some in self._split_aside(hop, np.sort(np.concatenate(aside), order="time")):
                if self._shows_silence(hop, some, judged):
                    parts[hop].append(some)
                else:
                    self.undecided += self._count_unknown(some)
        for hop, some_parts in parts.items():
            packets = np.sort(np.concatenate(some_parts), order="time")
            arrived = _arrived(packets, self._tracker)
            is_unsure = arrived & self._may_be_resent_unseen(hop[0], packets)
            if is_unsure.any():
                self.undecided += self._count_unknown(packets[is_unsure])
                packets, arrived = packets[~is_unsure], arrived[~is_unsure]
            self._ended[hop], self._arrived[hop] = packets, arrived

    def _may_be_resent_unseen(self, near: int, packets: Packets) -> Bools:
        """Which packets may have been retransmitted after the capture of their tap ended: their
        sender retransmits, and answers came later."""
        flows = self._tracker.flows
        of_packets = flows[packets["flow"]]
        answered_ns = np.where(of_packets["peer"] >= 0, flows["last_time"][of_packets["peer"]], 0)
        ended_ns = self._testimony.last_ns[near]
        retransmits = of_packets["retransmitted_by"].sum(axis=1) > 0
        is_late: Bools = plus(packets["time"], RESENT_WITHIN_NS) > ended_ns
        return is_late & retransmits & (plus(answered_ns, -ANSWERED_WITHIN_NS) > ended_ns)

    def _set_aside(
        self,
        edge: Any,
        downstream: Downstream,
        packets: Packets,
        is_judged: Bools,
        parts: dict[HopKey, list[Packets]],
    ) -> None:
        """Set aside the packets of an END edge that the next tap could not see: the tap further on
        that saw others of the flow meanwhile may tell that they were lost, or nothing does."""
        flow, near, far = int(edge["flow"]), int(edge["from_tap"]), downstream.point
        self._count_rows(edge, packets, is_judged)
        aside = packets[~is_judged]
        instead = self._counts.instead.get((flow, near), {})
        if len(instead) == 1 and far >= 0:
            further = next(iter(instead))
            is_seen = self._testimony.sees_after(near, further, aside["time"])
            is_seen &= aside["time"] >= instead[further].first_ns
            if is_seen.any():
                parts[near, further].append(aside[is_seen])
                self._evidence[near, further].add(Evidence.FLOW)
                aside = aside[~is_seen]
        if len(aside):
            if far < 0:  # the others captured and saw none of them
                blind = [
                    tap
                    for tap in self._candidates(edge, far)
                    if not self._testimony.sees_after(near, tap, aside["time"]).all()
                ]
                is_next = len(blind) == 1 and blind[0] in self._vantage.next_of.get(
                    (flow, near), ()
                )
                far = blind[0] if is_next else far
            self._aside[near, far].append(aside)
            self._evidence[near, far].add(downstream.evidence)

    def _may_be_beside(self, edge: Any, far: int, packets: Packets) -> bool:
        """Whether these answers may have passed taps beside the next one that did not capture: many
        of their flow did not pass the next one, and nothing tells whether they arrived."""
        is_answer = not self._tracker.flows[int(edge["flow"])]["request_packets"]
        return far >= 0 and is_answer and self._is_scattered(edge, packets)

    def _count_rows(self, edge: Any, packets: Packets, is_judged: Bools) -> None:
        """Count the rows of lost packets of a flow without those that nobody can judge."""
        if (packets["run"][is_judged] == 0).any():
            return  # not all of them have a moment
        visits = self._counts.visits
        visit = visits[self._visits.number(int(edge["flow"]), int(edge["from_tap"]))]
        runs = packets["run"][is_judged]
        count_rows(visit, runs, bool(is_judged[-1]) and visit["run"] > 0)

    def _split_aside(self, hop: HopKey, packets: Packets) -> Iterator[Packets]:
        """Packets before the first and after the last packet of the next tap."""
        if hop[1] < 0:
            yield packets
            return
        is_early = packets["time"] < self._testimony.first_ns[hop[1]]
        for some in (packets[is_early], packets[~is_early]):
            if len(some):
                yield some

    def _shows_silence(
        self, hop: HopKey, packets: Packets, judged: Mapping[HopKey, list[Packets]]
    ) -> bool:
        """Whether the next tap saw none of these packets because nothing came: a link that is down
        is as silent as a tap that does not capture, but its packets are retransmitted, or what they
        answer is, or do not come to the link of their receiver. None of them arrives, their flows
        lose nothing elsewhere, and no tap further on sees others of them. So it is if the hop was
        down for the last or first packets that the tap could see.

        judged: by hop, packets that the next tap could see.
        """
        if hop[1] < 0 or _arrived(packets, self._tracker).any():
            return False
        if self._captures_others(hop, packets, judged.get(hop, [])):
            return False
        if self._is_down(hop, int(packets["time"][0]), judged.get(hop, [])):
            return True
        is_answer = self._tracker.flows["request_packets"][packets["flow"]] == 0
        is_missed = np.where(is_answer, self._was_answer_missed(packets), packets["resent"])
        is_missed |= self._is_missed_at_receiver(hop, packets)
        sprayed = [flow for (flow, _), moves in self._moves.items() if moves > MOST_MOVES]
        is_missed &= ~np.isin(packets["flow"], sprayed)
        if np.count_nonzero(is_missed) < max(LEAST_SILENT, MOST_ACKED * len(packets)):
            return False
        if np.count_nonzero(is_answer & ~is_missed) > MOST_HEARD * len(packets):
            return False
        missed = packets[is_missed]
        _, times = np.unique(_flow_and_psn(missed), return_counts=True)
        is_one_flow = len(np.unique(missed["flow"])) < LEAST_SILENT_FLOWS
        answers = np.count_nonzero(is_answer & is_missed)
        if is_one_flow and max(answers, times.max()) < LEAST_SILENT:
            return False
        if np.isin(missed["flow"], self._flows_losing_beside(hop, judged)).any():
            return False
        near, far = hop
        begin, end = int(packets["time"][0]), int(packets["time"][-1])
        return not any(
            tap == near
            and far in self._vantage.next_of.get((flow, tap), ())
            and any(onward.first_ns <= end and onward.last_ns >= begin for onward in taps.values())
            for (flow, tap), taps in self._counts.instead.items()
        )

    def _captures_others(self, hop: HopKey, packets: Packets, judged: list[Packets]) -> bool:
        """Whether the next tap captured packets of other hops while this one was down, and misses
        those of another one, too, after its last packet: its capture has ended, whatever came."""
        near, far = hop
        ended_ns = self._testimony.last_ns[far]
        if not judged or packets["time"][0] <= ended_ns:
            return False
        down_ns = min(int(some["time"][0]) for some in judged)
        hops = self._hops[(self._hops["to_tap"] == far) & (self._hops["last_ns"] > down_ns)]
        return any(
            other != near and any(some["time"][-1] > ended_ns for some in self._aside[other, far])
            for other in hops["from_tap"].tolist()
            if (other, far) in self._aside
        )

    def _is_missed_at_receiver(self, hop: HopKey, packets: Packets) -> Bools:
        """Which packets the tap on the link of their receiver must have seen, whatever a silent tap
        before it did: it saw others of their flows that passed the hop."""
        is_missed = np.zeros(len(packets), np.bool_)
        for flow in np.unique(packets["flow"]).tolist():
            path = list(hop)
            links = self._vantage.link_of.get(self._vantage.destinations[flow], set())
            while path[-1] not in links:
                onward = self._vantage.next_of.get((flow, path[-1]), {}).keys() - path
                if len(onward) != 1:
                    break
                path += onward
            else:
                if path[-1] != hop[1] and not self._unclocked & set(path):
                    mine = packets["flow"] == flow
                    is_missed[mine] = self._testimony.sees_at_end(path, packets["time"][mine])
        return is_missed

    def _flows_losing_beside(
        self, hop: HopKey, judged: Mapping[HopKey, list[Packets]]
    ) -> NDArray[np.int32]:
        """Flows with packets that ended before another hop, and should have passed it or were
        retransmitted. What ended before a tap whose clock was set may have passed it."""

        def is_beside(other: HopKey) -> bool:
            return other != hop and self._unclocked.isdisjoint(other)

        lost = [
            some["flow"] for other, parts in judged.items() if is_beside(other) for some in parts
        ]
        lost += [
            some["flow"][some["resent"]]
            for other, parts in self._aside.items()
            if is_beside(other)
            for some in parts
        ]
        return np.concatenate(lost) if lost else np.zeros(0, np.int32)

    def _is_down(self, hop: HopKey, begin: int, lost: Sequence[Packets]) -> bool:
        """Whether all packets were lost between the last one that passed a hop and this time, or
        between this time and the first one."""
        times = np.concatenate([some["time"] for some in lost]) if lost else np.zeros(0, np.int64)
        passed = self._vantage.hops.get(hop)
        if passed is None:
            return len(times) >= LEAST_SILENT
        before = np.count_nonzero((times > passed["last_ns"]) & (times <= begin))
        after = np.count_nonzero((times < passed["first_ns"]) & (times >= begin))
        return bool(before + after >= LEAST_SILENT)

    def _was_answer_missed(self, packets: Packets) -> Bools:
        """Which packets are answers that did not arrive: the requester then retransmitted what they
        acknowledge; after a NAK it begins with the PSN that this names."""
        is_missed = np.zeros(len(packets), np.bool_)
        for flow in np.unique(packets["flow"]).tolist():
            record = self._tracker.flows[flow]
            resent = self._resent[self._resent["flow"] == int(record["peer"])]
            if record["request_packets"] or not len(resent):
                continue
            resent = np.sort(resent, order="time")
            mine = np.flatnonzero(packets["flow"] == flow)
            first = np.int64(packets["label"][mine[0]])
            behind = _distance(resent["label"].astype(np.int64), first)
            least_later = np.minimum.accumulate(behind[::-1])[::-1]
            # What was retransmitted before the answer came passes a tap up to a transit later.
            times = plus(packets["time"][mine], 2 * self._testimony.longest_ns)
            at = np.searchsorted(resent["time"], times, "right")
            numbers = _distance(packets["label"][mine].astype(np.int64), first)
            is_later = at < len(resent)
            is_missed[mine] = is_later & (least_later[np.minimum(at, len(resent) - 1)] < numbers)
        return is_missed

    def leave_out_flows_in_part(self) -> None:
        """Leave out what may have been retransmitted on a path without a tap."""
        in_part = cache(self._tracker.in_part)
        for hop, packets in self._ended.items():
            is_hidden = _maybe_resent_elsewhere(packets, self._arrived[hop], in_part)
            self._arrived[hop] &= ~is_hidden
            if np.count_nonzero(is_hidden) > np.count_nonzero(packets["resent"]):
                self.left += self._leave_out(hop, is_hidden)

    def decide(self) -> tuple[dict[HopKey, TapHop], Misses]:
        """The hops with lost packets, and what the captures of the next taps missed."""
        hops: dict[HopKey, TapHop] = {}
        misses: Misses = defaultdict(list)
        missing = {far for (_, far), is_arrived in self._arrived.items() if is_arrived.any()}
        for (near, far), packets in self._ended.items():
            is_arrived = self._arrived[near, far]
            if far >= 0 and far in missing:
                is_unknown = ~is_arrived & ~packets["resent"]
                arrived, resent = map(np.count_nonzero, (is_arrived, packets["resent"]))
                if arrived > resent or is_unknown.all():
                    is_arrived |= is_unknown
            if far >= 0 and is_arrived.any():
                misses[far].append((packets["flow"][is_arrived], packets["time"][is_arrived]))
            if not is_arrived.all():
                evidence = min(self._evidence[near, far], key=list(Evidence).index)
                lost = packets[~is_arrived]
                hops[near, far] = TapHop(near, far, expected_by=evidence.value, lost=lost)
        return hops, misses

    def _count_unknown(self, packets: Packets) -> int:
        """Count packets as unknown, by flow; their number."""
        flows, counts = np.unique(packets["flow"], return_counts=True)
        for flow, count in zip(flows.tolist(), counts.tolist(), strict=True):
            self.unknown[flow] += count
        return len(packets)

    def _leave_out(self, hop: HopKey, is_out: Bools) -> int:
        """Leave out packets of a hop as unknown; their number."""
        packets = self._ended[hop]
        self._ended[hop], self._arrived[hop] = packets[~is_out], self._arrived[hop][~is_out]
        return self._count_unknown(packets[is_out])

    def _packets_of(self, number: int, edge: Any) -> Packets:
        """All packets of an END edge; those without a moment spread over its time."""
        moments = self.moments.get(number)
        logged = 0 if moments is None else len(moments)
        packets = np.zeros(int(edge["packets"]), LOST)
        packets["flow"] = edge["flow"]
        packets["hop_limit"] = edge["limit_max"]
        if moments is not None:
            for name in ("label", "time", "frame", "wire_bytes", "udp_sport", "run"):
                packets[name][:logged] = moments[name]
        packets["wait"] = -1
        if moments is not None:
            packets["wait"][:logged] = self._waits_beside(int(edge["from_tap"]), moments)
        rest = packets[logged:]
        if len(rest):
            early, last_ns = int(edge["unlogged_early"]), int(edge["last_ns"])
            times = [int(edge["first_ns"])] if moments is None else moments["time"].tolist()
            begin, until = times[min(len(times), FIRST_ENDS) - 1], int(edge["last_early_ns"])
            rest["time"][:early] = spread_times(begin, max(begin, until), early)
            rest["time"][early:] = spread_times(times[-1], last_ns, len(rest) - early)
            rest["wire_bytes"] = int(edge["wire_bytes"]) // int(edge["packets"])
        packets["resent"], packets["again"] = _sent_later(packets, self._resent)
        return packets

    def _waits_beside(self, near: int, moments: NDArray[Any]) -> NDArray[np.int64]:
        """The longer wait of the packets that left the device before and after each end, by the
        same output, ns; -1 without one."""
        waits = np.full(len(moments), -1)
        for hop, delay in (("hop_before", "delay_before"), ("hop_after", "delay_after")):
            for number in np.unique(moments[hop][moments[hop] >= 0]).tolist():
                beside = self._hops[number]
                other, far = int(beside["from_tap"]), int(beside["to_tap"])
                device = self._vantage.device_between(near, far)
                if other == near or self._vantage.device_between(other, far) == device is not None:
                    is_there = moments[hop] == number
                    wait = moments[delay][is_there] - beside["delay_min"]
                    waits[is_there] = np.maximum(waits[is_there], wait)
        return waits

    def _can_be_judged(self, packets: Packets, edge: Any, far: int) -> Bools:
        """Which packets a next tap must have seen: it captured, and they are not in flight."""
        near, times = int(edge["from_tap"]), packets["time"]
        is_judged = np.ones(len(packets), np.bool_)
        for tap in self._candidates(edge, far):
            is_judged &= self._testimony.sees_after(near, tap, times)
        if self._now_ns is not None:
            is_judged &= times + LIVE_GRACE_NS <= self._now_ns
        return is_judged

    def _candidates(self, edge: Any, far: int) -> Collection[int]:
        """The taps of which one sees the packets of an END edge next."""
        if far >= 0:
            return (far,)
        flow, near = int(edge["flow"]), int(edge["from_tap"])
        destination = self._vantage.destinations[flow]
        others = self._vantage.next_of_others(near, int(edge["limit_max"]), destination)
        taps = {*self._vantage.next_of.get((flow, near), ()), *others}
        taps = taps or self._vantage.link_of.get(destination, set())
        return taps - self._unclocked

    def _took_another_path(self, edge: Any, ended: int) -> bool:
        """Whether the packets that ended here continued where no tap is: their flow lost nothing,
        and a large part of it is not seen again, or it is sprayed.

        ended: packets that a next tap must have seen. Answers are lost without a trace. Those to a
        host whose every link has a tap have no other path.
        """
        flow = int(edge["flow"])
        onward = self._vantage.next_of.get((flow, int(edge["from_tap"])), {})
        if onward and self._vantage.destinations[flow] in self._vantage.tapped_hosts:
            if not self._tracker.flows[flow]["request_packets"]:
                return False
        went_on = sum(passed.packets for passed in onward.values())
        is_scattered = len(onward) > 1 or ended > MOST_DIRECT * (ended + went_on)
        return is_scattered and _lost_nothing(self._tracker, flow)

    def _may_use_another_link(self, edge: Any, far: int, packets: Packets) -> Bools:
        """Which packets were sent before the first of their flow that passed `far`, while a tap
        beside it did not capture: the flow may have moved here from there."""
        onward = self._vantage.next_of.get((int(edge["flow"]), int(edge["from_tap"])), {}).get(far)
        if onward is None:
            return np.zeros(len(packets), np.bool_)
        return (packets["time"] < onward.first_ns) & ~self._can_be_judged(packets, edge, -1)

    def _is_between_paths(self, edge: Any, far: int, packets: Packets) -> Bools:
        """Which packets ended while their flow, which has several next taps, did not use `far`:
        they took another path, or were lost on it before the flow moved."""
        onward = self._vantage.next_of.get((int(edge["flow"]), int(edge["from_tap"])), {})
        if len(onward) < 2 or far not in onward:
            return np.zeros(len(packets), np.bool_)
        is_outside: Bools = packets["time"] < onward[far].first_ns
        is_outside |= packets["time"] > onward[far].last_ns
        return is_outside

    def _took_a_silent_path(self, edge: Any, far: int, packets: Packets) -> Bools:
        """Which packets before the first or after the last of their flow that passed `far` went on
        while some tap did not capture: some of them arrived, so the flow moved."""
        is_beside = np.zeros(len(packets), np.bool_)
        onward = self._vantage.next_of.get((int(edge["flow"]), int(edge["from_tap"])), {})
        if far not in onward:
            return is_beside
        first_ns, last_ns = self._testimony.first_ns, self._testimony.last_ns
        used = first_ns <= last_ns
        time = packets["time"]
        is_unseen = (time < first_ns[used].max()) | (time > last_ns[used].min())
        is_unseen &= (time < onward[far].first_ns) | (time > onward[far].last_ns)
        if is_unseen.any():
            is_arrived = _arrived(packets, self._tracker)
            for is_side in (time < onward[far].first_ns, time > onward[far].last_ns):
                if (is_side & is_arrived).any():
                    is_beside |= is_side & is_unseen
        return is_beside

    def _may_be_off_the_taps(self, edge: Any, far: int, packets: Packets) -> Bools:
        """Which of the packets that ended here may have gone on where no tap is.

        The path of a flow is known between two packets that passed to the next tap. Before the
        first and after the last of them, and wherever packets of a sprayed flow are missing, some
        packets that arrived show that the flow has a path without a tap. The others may be lost on
        either path.
        """
        flow, near = int(edge["flow"]), int(edge["from_tap"])
        none = np.zeros(len(packets), np.bool_)
        destination = self._vantage.destinations[flow]
        if far in self._vantage.link_of.get(destination, ()):
            return none  # the tap on the link of the receiver sees what arrives on any path
        if destination in self._vantage.tapped_hosts:
            return none
        record = self._tracker.flows[flow]
        asks = bool(record["request_packets"])
        requester = flow if asks else int(record["peer"])
        if requester < 0 or record["transport"] in UNANSWERED:
            return none
        resent = self._resent[self._resent["flow"] == requester]
        onward = self._vantage.next_of.get((flow, near), {}).values()
        is_scattered = self._is_scattered(edge, packets)
        if (self._vantage.sources[flow], near) in self.open_ends:
            if is_scattered or (flow, near) in self._moves:
                return ~none
        elif is_scattered and asks and self._shows_a_path(packets):
            return ~none
        time = packets["time"]
        begin = min((passed.first_ns for passed in onward), default=_TIMES.max)
        end = max((passed.last_ns for passed in onward), default=-1)
        last = int(resent["time"].max()) if len(resent) else -1
        is_away = none
        for some, until in ((time < begin, begin), (time > end, self.newest_ns + 1)):
            is_quiet = some & (time > last) if onward and until > self.newest_ns else some
            if asks:
                shows = bool(_arrived(packets[is_quiet], self._tracker).any())
                shows |= not onward and self._all_ended(edge)
            else:
                shows = bool((time[some & (time > last)] + RESENT_WITHIN_NS < self.newest_ns).any())
                shows |= _was_answer_heard(packets[some], resent[resent["time"] < until])
            if shows:
                is_away = is_away | some
        return is_away

    def _all_ended(self, edge: Any) -> bool:
        """Whether every transmission of the flow ended at this tap although requests arrived."""
        flow = int(edge["flow"])
        record, requests = self._tracker.flows[flow], self._tracker.stream(flow, REQUESTS)
        acked = (int(record["ack_psn"]) - int(requests["first"])) & PSN_MASK
        is_complete = int(edge["packets"]) >= int(record["request_packets"])
        return bool(is_complete and record["acked"] and requests["started"] and acked < PSN_HALF)

    def _is_scattered(self, edge: Any, packets: Packets) -> bool:
        """Whether several taps see a sprayed flow, or one tap sees a part of it all the time."""
        flow, near = int(edge["flow"]), int(edge["from_tap"])
        onward = self._vantage.next_of.get((flow, near), {}).values()
        if not onward:
            return False
        begin = min(passed.first_ns for passed in onward)
        end = max(passed.last_ns for passed in onward)
        inside = np.count_nonzero((packets["time"] >= begin) & (packets["time"] <= end))
        went_on = sum(passed.packets for passed in onward)
        sees_part = inside > MOST_DIRECT * (inside + went_on)
        return bool(sees_part) or self._moves.get((flow, near), 0) > MOST_MOVES

    def _shows_a_path(self, packets: Packets) -> bool:
        """Whether packets of a scattered flow that ended at a tap arrived: more than a capture
        misses beside a loss."""
        arrived = np.count_nonzero(_arrived(packets, self._tracker))
        return bool(arrived > MOST_DIRECT * len(packets))

    def _find_open_ends(self) -> set[tuple[int, int]]:
        """Sources and taps after which sprayed packets take paths without a tap: requests arrived
        that no next tap saw, or of one flow some next taps are further away than others."""
        vantage = self._vantage
        open_ends: set[tuple[int, int]] = set()
        for number, edge in zip(self._end_numbers, vantage.ends, strict=True):
            flow, near = int(edge["flow"]), int(edge["from_tap"])
            if self._tracker.flows[flow]["request_packets"] and (flow, near) in vantage.next_of:
                packets = self._packets_of(number, edge)
                packets = packets[self._can_be_judged(packets, edge, -1)]
                if self._is_scattered(edge, packets) and self._shows_a_path(packets):
                    open_ends.add((vantage.sources[flow], near))
        drops: dict[tuple[int, int], dict[int, int]] = defaultdict(lambda: defaultdict(int))
        for flow, near, drop, n in rows_of(
            vantage.passes, "flow", "from_tap", "drop_max", "packets"
        ):
            drops[flow, near][drop] += n
        for (flow, near), by_drop in drops.items():
            further = sum(by_drop.values()) - by_drop[min(by_drop)]
            if further > MOST_FURTHER * sum(by_drop.values()):
                if self._moves.get((flow, near), 0) > MOST_MOVES:
                    open_ends.add((vantage.sources[flow], near))
        return open_ends


def _was_answer_heard(answers: Packets, resent: NDArray[Any]) -> bool:
    """Whether one of the answers arrived: the sender then retransmitted from a PSN after it on.

    resent: the retransmissions before any other answer could tell the sender the same.
    """
    for time, label in zip(answers["time"].tolist(), answers["label"].tolist(), strict=True):
        later = resent["label"][resent["time"] > time].astype(np.int64)
        beyond = (later - label) & PSN_MASK
        if len(later) and ((beyond > 0) & (beyond < PSN_HALF)).all():
            return True
    return False


def _lost_nothing(tracker: FlowTracker, flow: int) -> bool:
    """Whether a flow of requests was never retransmitted although its sender would have done so, or
    a flow of answers left none of its requests unanswered."""
    record = tracker.flows[flow]
    if not record["request_packets"]:
        peer = int(record["peer"])
        if peer >= 0:
            return bool(tracker.flows[peer]["request_packets"] and _lost_nothing(tracker, peer))
        waiting = tracker.flows[(tracker.flows["peer"] < 0) & (tracker.flows["rewinds"] > 0)]
        return not ((waiting["src"] == record["dst"]) & (waiting["dst"] == record["src"])).any()
    requests = tracker.stream(flow, REQUESTS)
    if not requests["started"] or record["transport"] in UNANSWERED:
        return False
    if requests["retransmitted"] or requests["recovered"] or record["rewinds"]:
        return False
    if not record["acked"]:
        return int(record["last_time"]) - int(record["first_time"]) > RESENT_WITHIN_NS
    sent = (int(requests["next"]) - int(requests["first"])) & PSN_MASK
    acked = (int(record["ack_psn"]) - int(requests["first"])) & PSN_MASK
    return acked <= sent and acked + 1 >= MOST_ACKED * sent


def _flow_and_psn(records: NDArray[Any]) -> NDArray[np.uint64]:
    """One number per flow and PSN."""
    psn = records["label"].astype(np.uint64) & np.uint64(PSN_MASK)
    return (records["flow"].astype(np.uint64) << np.uint64(24)) | psn


def _distance(psn: Any, other: Any) -> Any:
    """By how much one PSN is above another, modulo 2^24."""
    return ((psn - other + PSN_HALF) & PSN_MASK) - PSN_HALF


def _sent_later(packets: Packets, resent: NDArray[Any]) -> tuple[Bools, Bools]:
    """Which packets were retransmitted after they were last seen, and which ones before."""
    if not len(resent):
        none = np.zeros(len(packets), np.bool_)
        return none, none
    keys, times = _flow_and_psn(resent), resent["time"]
    wanted = _flow_and_psn(packets)
    begin, end = (np.searchsorted(keys, wanted, side) for side in ("left", "right"))
    is_resent = begin < end
    earliest = times[np.minimum(begin, len(times) - 1)]
    latest = times[np.maximum(end - 1, 0)]
    return is_resent & (latest > packets["time"]), is_resent & (earliest <= packets["time"])


def _arrived(packets: Packets, tracker: FlowTracker) -> Bools:
    """Requests that the peer acknowledged although each was sent only once."""
    flows = tracker.flows[packets["flow"]]
    bits = OPCODE_CLASS[packets["label"] >> np.uint32(24)]
    is_request = (bits & REQUEST != 0) & (bits & SEQUENCED != 0)
    psn = (packets["label"] & np.uint32(PSN_MASK)).astype(np.int64)
    distance = _distance(flows["ack_psn"].astype(np.int64), psn)
    is_known = is_request & (packets["frame"] > 0) & (flows["acked"] != 0)
    is_acked = is_known & (distance >= 0) & ~packets["resent"] & ~packets["again"]
    waits = is_known & (distance < 0)  # the captures ended before its ACK, or its loss
    requesters = np.unique(packets["flow"][flows["request_packets"] > 0]).tolist()
    complete = [flow for flow in requesters if _lost_nothing(tracker, flow)]
    return is_acked | (np.isin(packets["flow"], complete) & ~waits)


def _maybe_resent_elsewhere(
    packets: Packets, is_arrived: Bools, in_part: Callable[[int], bool]
) -> Bools:
    """Which of the packets that arrived may have been retransmitted on a path without a tap: their
    flows have many PSNs that no tap saw, and are seen `in_part`."""
    flows = [flow for flow in np.unique(packets["flow"][is_arrived]).tolist() if in_part(flow)]
    return is_arrived & np.isin(packets["flow"], flows)
