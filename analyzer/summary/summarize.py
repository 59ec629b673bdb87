"""Builds result records from the tracker and the measures."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..measures.hops.captures import without_hidden
from ..measures.hops.hops import TapHops
from ..measures.hops.losses import tap_hops
from ..measures.hops.vantage import FabricLinks
from ..measures.measuring import Measuring
from ..measures.tap_sets import entropy_imbalances, tap_imbalances
from ..results.base import Event, Imbalance
from ..results.flow import Connection, Flow, Owner
from ..results.hops import CaptureLoss, Hop, TapClock
from ..results.mrc import SegmentList
from ..track import state as st
from ..track.pairing import service_name, settle
from ..track.tracker import FlowTracker
from ..wire.bth import TRANSPORT_NAMES
from ..wire.registry import Registry
from .events import cm_events, first_events, tracked_events
from .flows import FlowSummary
from .hidden import gaps_of, sampled_taps
from .hops import capture_losses, clocks, hop_records
from .mrc import MrcSummary, segment_lists
from .names import Names, PathBy, PlaneBy

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
        self._names = names = Names(measuring.tracker, registry)
        connection_of: dict[int, int] = {}
        self.connections: list[Connection] = []
        if not in_passing:
            settle(measuring.tracker, measuring.cm)
            connection_of, self.connections = connections(measuring, names.addresses)
        self._sampled = sampled_taps(registry.taps)
        self._shared = {tap for tap in range(len(registry.taps)) if registry.taps[tap].shared}
        gaps = gaps_of(registry.taps)
        self._settled = None if in_passing or not measuring.many_taps else measuring.hops.settled()
        self.tap_hops: TapHops | None = None
        if self._settled is not None:
            taps = registry.taps
            unplaced = self._shared | {names.taps.index(tap) for tap in self._sampled}
            set_back = {tap for tap in range(len(taps)) if taps.carrier(tap).clock_steps}
            clocks = [taps.clock(tap) for tap in range(len(taps))]
            set_forward = self._settled.times.jumps(clocks, set_back)
            unclocked = set_back | set(set_forward)
            hops = tap_hops(
                self._settled, measuring.tracker, names.taps, fabric, names.addresses, unclocked,
                now_ns,
            )  # fmt: skip
            hops.set_forward = set_forward
            hops = hops.without(unplaced | unclocked)
            in_gaps = {names.taps.index(tap): of_tap for tap, of_tap in gaps.items()}
            if gaps:
                flows = measuring.tracker.flows
                hops = without_hidden(hops, in_gaps, flows["first_time"], flows["last_time"])
            self.tap_hops = hops
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
        return hops, capture_losses(self.tap_hops, names), clocks(self.tap_hops, names)

    def segment_lists(self) -> list[SegmentList]:
        """The SRv6 paths with the most bytes."""
        return segment_lists(self._m.srv6, self._names.segments)
