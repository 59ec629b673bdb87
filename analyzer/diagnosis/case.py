"""What findings are made from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from msgspec import UNSET

from ...kernels.kernel import Ints
from ..jobs.training import TrainingJobs
from ..measures.hops.hops import TapHops
from ..measures.measuring import Measuring
from ..measures.spraying import tap_places
from ..measures.troubles import LATE, LATE_AFTER
from ..results.analysis import CaptureLoss, Hop, TapClock
from ..results.base import Imbalance
from ..results.captures import CaptureSummary, Ended
from ..results.flow import Connection, Flow
from ..results.mrc import Mrc
from ..summary.trust import Gaps, gaps_of
from ..wire.registry import Registry


@dataclass(frozen=True)
class Case:
    """The results of one analysis, and the state of the measures behind them."""

    measuring: Measuring
    registry: Registry
    captures: Sequence[CaptureSummary]
    flows: Sequence[Flow]
    """Flow i has the id i."""
    connections: Sequence[Connection]
    imbalance: Sequence[Imbalance]
    tap_hops: TapHops | None
    """The packets behind `hops`, which has the same order; None with one tap."""
    hops: Sequence[Hop]
    capture_losses: Sequence[CaptureLoss]
    clocks: Sequence[TapClock]
    mrc: Mrc | None
    complete: bool
    """False when the analysis was interrupted."""
    filtered: bool
    """True when a filter, also that of a capture, or a limit dropped packets before tracking."""
    dscp_priority: Mapping[int, int] | None = None
    """Priority by DSCP, as far as the user states the setting of the switches; None: no option of
    this analysis states it."""
    failed_in_logs: Collection[int] = ()
    """Flows whose queue pair the logs of the job report as failed."""
    training: TrainingJobs = TrainingJobs([], [])
    """Training jobs, and what the network costs them."""

    @property
    def is_whole(self) -> bool:
        """Whether all packets of all captures were read: no limit, interruption or damage."""
        return self.complete and not any(
            capture.damaged_places or capture.gaps is not UNSET for capture in self.captures
        )

    @property
    def ended(self) -> Ended:
        """Sums of the flows that were removed from memory: claims about all packets include
        them."""
        return self.measuring.ended

    @cached_property
    def gaps(self) -> Gaps:
        """Gaps in the captures of taps."""
        return gaps_of(self.registry.taps)

    @cached_property
    def parallel_places(self) -> Ints:
        """int64[taps]: parallel taps share a number."""
        measuring, flows = self.measuring, self.measuring.tracker.flows
        copies, taps = measuring.tracker.copies, len(self.registry.taps)
        return tap_places(measuring.taps, flows["src"], flows["dst"], copies, taps)

    @cached_property
    def dropping(self) -> frozenset[str]:
        """Taps whose captures dropped frames: a packet that is missing there may have passed."""
        taps = (tap for capture in self.captures for tap in capture.taps)
        dropped = {tap.name for tap in taps if tap.dropped_frames}
        names, carrier = self.registry.tap_names, self.registry.taps.clock
        carried = {name for n, name in enumerate(names) if names[carrier(n)] in dropped}
        return frozenset(dropped | carried)

    @cached_property
    def first_ns(self) -> int:
        """Time of the first RoCE packet; 0 without packets."""
        first = min((flow.first_time_ns for flow in self.flows), default=0)
        left = self.ended.first_time_ns
        return first if left is None else min(first, left)

    @cached_property
    def last_ns(self) -> int:
        """Time of the last RoCE packet; 0 without packets."""
        return max((flow.last_time_ns for flow in self.flows), default=0)

    def heard_until_ns(self, flow: int, peer: int | None) -> int:
        """Until when taps that see a flow, and taps that see its answers, capture."""
        if self.tap_hops is None:
            return self.last_ns
        names, last = self.registry.tap_names, self.tap_hops.last_seen.tolist()
        last_seen = dict(zip(names, last, strict=False))
        until = [self.last_ns]
        for seen in (flow, peer):
            if seen is not None:
                taps = self.flows[seen].taps
                until.append(max(last_seen.get(tap, self.last_ns) for tap in taps))
        return min(until)

    def clocks_apart_ns(self, flow: int, peer: int | None) -> float:
        """How far the clocks of neighbouring taps differ, where one of them sees a flow or its
        answers: an answer may seem to come so long before its request."""
        taps = {tap for seen in (flow, peer) if seen is not None for tap in self.flows[seen].taps}
        time = self.last_ns - self.first_ns
        return max(
            (
                abs(clock.offset_ns) + abs(clock.drift_ppm or 0.0) * time / 1e6
                for clock in self.clocks
                if not taps.isdisjoint((clock.tap, clock.relative_to))
            ),
            default=0.0,
        )

    def transmitted_beside(self, flow: Flow) -> int:
        """How many packets without identification, taken for copies, passed a tap beside the one
        that saw their PSN first: further transmissions, or late packets."""
        if self.tap_hops is None or not flow.tap_copies:
            return 0
        return max(flow.tap_copies - self._passes.get(flow.id, 0), 0)

    @cached_property
    def _passes(self) -> Mapping[int, int]:
        """Passes from tap to tap, by flow."""
        return {} if self.tap_hops is None else self.tap_hops.arisen("packets")

    @cached_property
    def first_sightings(self) -> Mapping[tuple[int, int], int]:
        """By flow and tap: when the tap saw the first of its packets that no tap saw before."""
        if self.tap_hops is None:
            return {}
        columns = (self.tap_hops.starts[name].tolist() for name in ("flow", "to_tap", "first_ns"))
        return {(flow, tap): first_ns for flow, tap, first_ns in zip(*columns, strict=True)}

    @cached_property
    def peers(self) -> Mapping[int, int]:
        """The other flow of each flow's connection; flows without a known connection are left
        out."""
        both = {}
        for connection in self.connections:
            if len(connection.flows) == 2:
                flow, other = connection.flows
                both[flow], both[other] = other, flow
        return both

    @cached_property
    def longest_waits(self) -> Mapping[int, int]:
        """Longest delay above the minimum, in ns, of each flow on a hop between taps whose clocks
        do not jump."""
        if self.tap_hops is None:
            return {}
        jumping = {tap for c in self.clocks if c.steps for tap in (c.tap, c.relative_to)}
        longest = np.zeros(len(self.flows), np.int64)
        for way, hop in zip(self.tap_hops.hops, self.hops, strict=True):
            if way.total is None or jumping & {hop.from_tap, hop.to_tap}:
                continue
            above = way.passed["delay_max"] - way.total["delay_min"]
            np.maximum.at(longest, way.passed["flow"], above)
        waited = np.flatnonzero(longest).tolist()
        return dict(zip(waited, longest[waited].tolist(), strict=True))

    @cached_property
    def partly_seen(self) -> frozenset[str]:
        """Hosts that spray packets, some of them over paths without a tap."""
        sources = self.measuring.tracker.flows["src"]
        open_sources = frozenset() if self.tap_hops is None else self.tap_hops.open_sources
        return frozenset(
            flow.src
            for flow in self.flows
            if seen_in_part(flow) or int(sources[flow.id]) in open_sources
        )

    @cached_property
    def queue_pairs(self) -> int:
        """Queue pairs that carry requests or READ responses."""
        return (
            queue_pairs(flow for flow in self.flows if flow.data_packets) + self.ended.queue_pairs
        )

    @cached_property
    def _unpaired(self) -> Counter[tuple[str, str, bool]]:
        """Number of flows without a known connection, by source, destination and whether they
        carry data."""
        return Counter(
            (flow.src, flow.dst, flow.data_packets > 0)
            for flow in self.flows
            if flow.connection is None
        )

    def unpaired_answers(self, flow: Flow) -> bool:
        """Whether each unpaired flow between the hosts of `flow` has unpaired answers."""
        needing = self._unpaired[flow.src, flow.dst, True]
        return 0 < needing <= self._unpaired[flow.dst, flow.src, False]

    def has_unknown_answers(self, flow: Flow) -> bool:
        """Whether the answers to an unpaired flow are among those to several such flows."""
        if flow.connection is not None or flow.id in self.likely_peers:
            return False
        return self._unpaired[flow.src, flow.dst, True] > 1 and self.unpaired_answers(flow)

    @cached_property
    def likely_peers(self) -> Mapping[int, int]:
        """The likely other flow of flows without a known connection: all answers of one of them, at
        least two, name packets of the other. Too few for a connection, but no other flow has sent
        these packets."""
        flows = self.measuring.tracker.flows
        hits = flows["candidate_hits"]
        names = (flows["peer"] < 0) & (flows["candidate"] >= 0)
        names &= (hits >= 2) & (hits == flows["pairing_tries"])
        named, first, times = np.unique(
            flows["candidate"][names], return_index=True, return_counts=True
        )
        answering = np.flatnonzero(names)[first]
        pairs = list(zip(named[times == 1].tolist(), answering[times == 1].tolist(), strict=True))
        return dict(pairs) | {answers: asked for asked, answers in pairs}

    @cached_property
    def hosts_seen(self) -> frozenset[tuple[str, str]]:
        """(source, destination) of all flows."""
        return frozenset((flow.src, flow.dst) for flow in self.flows)


def queue_pairs(flows: Iterable[Flow]) -> int:
    """How many queue pairs these flows belong to.

    Both flows of a connection are one, whether they are two directions of WRITEs or the requests
    and responses of READs. A flow without a known connection counts as one.
    """
    flows = list(flows)
    known = {flow.connection for flow in flows} - {None}
    return len(known) + sum(flow.connection is None for flow in flows)


def lost_or_late(case: Case, flow: Flow) -> bool:
    """Whether late packets look like lost ones: the sender sprays, some paths have no tap, and taps
    see packets of the same flow earlier on one way than on another."""
    troubles = case.measuring.troubles
    return flow.src in case.partly_seen and any(
        troubles.of(flow.id, kind) is not None for kind in (LATE, LATE_AFTER)
    )


def seen_in_part(flow: Flow) -> bool:
    """Whether taps see some paths of the flow only: of what a queue pair loses, most is
    retransmitted and so recovered. A sprayed flow with more PSNs that no tap saw at all has paths
    without a tap."""
    if flow.retransmitted_packets is None:
        return False
    missing = flow.missing_packets
    several = any(kind.path_by == "tap" and kind.paths_seen > 1 for kind in flow.spraying)
    return missing is None or (several and missing > (flow.recovered_packets or 0))


ALL_PRIORITIES = frozenset(range(8))


def usual_priority(dscp: int) -> int:
    """The priority of a DSCP where switches have no other mapping: its class selector."""
    return dscp >> 3


def priorities_of(case: Case, flow: Flow) -> frozenset[int]:
    """Priorities that packets of a flow may have in flight.

    A VLAN tag has the priority (PCP), at whatever tap. Without a tag, and with PCP 0, where
    switches may trust the DSCP, it follows from the DSCP. Flows of CNPs only: any.
    """
    tags, untagged = case.measuring.congestion.tags(flow.id)
    if untagged or 0 in tags:
        dscps = flow.congestion.dscp
        known = case.dscp_priority or {}
        tags |= {known.get(dscp, usual_priority(dscp)) for dscp in dscps}
    return frozenset(tags) if tags else ALL_PRIORITIES


def unmapped(case: Case) -> list[int]:
    """DSCPs of packets without their own priority, of which no option shows the priority."""
    untagged = [flow for flow in case.flows if case.measuring.congestion.tags(flow.id)[1]]
    seen = {dscp for flow in untagged for dscp in flow.congestion.dscp}
    return sorted(seen - (case.dscp_priority or {}).keys())
