"""From the tracker and the measures to the records of results.py."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from ..decode.headers.cm import GENERAL_SERVICES_QP, CmMessage
from ..measures.congestion import dscp_outliers
from ..measures.measuring import Measuring
from ..measures.paths.hops import hops
from ..measures.paths.tapsets import entropy_imbalances, tap_imbalances, tap_places
from ..results.analysis import (
    Connection,
    Event,
    Flow,
    Hop,
    Imbalance,
    Owner,
    PathShare,
    Recovery,
    Reordering,
    Spraying,
)
from ..results.mrc import SegmentList
from ..statistics.density import MAX_THRESHOLD
from ..track import state as st
from ..track.connections import service_name, settle
from ..wire.opcodes import NAK_NAMES, TRANSPORT_NAMES, opcode_name
from ..wire.registry import Registry
from .mrc import MrcSummary, PlaneBy, unknowns
from .sampling import PSN_EVENTS, as_sampled, sampled_taps
from .segments import segment_lists

PARTIAL_VIEW_SHARE = 0.2
"""With more than this share of the PSNs never seen, the tap is taken to see a part of the paths."""


class Summary:
    """Makes the records; one use per result. Pairing is settled when it is made.

    owners: processes by flow index, from the probes of this host. in_passing: only
    single flows of an analysis that goes on are asked for; pairing is left as it is
    and connections have no numbers.
    """

    def __init__(
        self,
        measuring: Measuring,
        registry: Registry,
        path_by: str,
        owners: Mapping[int, Owner] | None = None,
        in_passing: bool = False,
        *,
        plane_by: PlaneBy | None = None,
    ) -> None:
        self._m = measuring
        self._addresses = registry.endpoints.texts()
        self._tap_names = registry.tap_names
        self._path_by = path_by
        self._owners = owners or {}
        self._connection_of: dict[int, int] = {}
        self.connections: list[Connection] = []
        self._dscp_findings: list[Event] = []
        if not in_passing:
            settle(measuring.tracker, measuring.cm)
            self._connection_of, self.connections = self._connections()
            self._dscp_findings = self._odd_dscps()
        self._sampled = sampled_taps(registry.taps)
        self._segments = registry.segments
        self.mrc: MrcSummary | None = None
        if measuring.mrc.packets:
            self.mrc = MrcSummary(measuring, registry, plane_by or PlaneBy())

    def flows(self) -> list[Flow]:
        """All flows in order of their first packet."""
        return [self.flow(f) for f in range(len(self._m.tracker))]

    def events(self, limit: int) -> tuple[list[Event], int]:
        """The first `limit` events in capture order, and how many more there were.

        Findings about the capture as a whole stand first.
        """
        used = self._m.tracker.state.used
        found = int(used[st.USED_EVENTS])
        events = self._m.tracker.state.events[: min(found, limit)]
        omitted = found - len(events) + int(used[st.OMITTED_EVENTS])
        in_order = [event for e in events if self._is_certain(event := self._event(e))]
        in_order += self.cm_events()
        in_order += self.mrc_events()
        omitted += self._m.mrc.omitted
        in_order.sort(key=lambda event: event.time_ns)
        omitted += max(len(in_order) - limit, 0) + self._m.cm.omitted
        return self._dscp_findings + in_order[:limit], omitted

    def _is_certain(self, event: Event) -> bool:
        """Gaps between samples look like jumps of the PSN."""
        return event.kind not in PSN_EVENTS or event.tap not in self._sampled

    def events_between(self, first: int, stop: int) -> list[Event]:
        """Tracked events number `first` up to `stop`, in the order they were noticed."""
        return [self._event(event) for event in self._m.tracker.state.events[first:stop]]

    def imbalance(self) -> list[Imbalance]:
        """Parallel taps per direction, then the entropy values of the largest sprayed flows."""
        m, flows = self._m, self._m.tracker.flows
        found = []
        if m.many_taps:
            copies = m.tracker.state.copies
            found += tap_imbalances(
                m.taps, flows["src"], flows["dst"], copies, self._tap_names, self._addresses
            )
        return found + entropy_imbalances(m.entropy, len(flows), self._flow_name)

    def hops(self) -> list[Hop]:
        """What was lost between taps in series."""
        m = self._m
        if not m.many_taps:
            return []
        found = hops(m.taps, self._places, self._tap_names, self._flow_name)
        # Different samples at both ends are no loss.
        return [h for h in found if not self._sampled.keys() & {*h.from_taps, *h.to_taps}]

    @cached_property
    def _places(self) -> NDArray[np.int64]:
        """Which taps are parallel, see `tap_places`."""
        m, flows = self._m, self._m.tracker.flows
        copies = m.tracker.state.copies
        return tap_places(m.taps, flows["src"], flows["dst"], copies, len(self._tap_names))

    def _odd_dscps(self) -> list[Event]:
        """Queue pairs that travel in another traffic class than those beside them."""
        flows = self._m.tracker.flows
        with_data = np.flatnonzero(
            (flows["payload_bytes"] > 0) & (flows["dest_qp"] != GENERAL_SERVICES_QP)
        ).tolist()
        usual = {f: self._m.congestion.usual_dscp(f) for f in with_data}
        known = {f: dscp for f, dscp in usual.items() if dscp is not None}
        events = []
        for finding in dscp_outliers(known, flows["src"], flows["dst"]):
            hosts = [self._addresses[h] for h in finding.hosts or ()]
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

    def mrc_events(self) -> list[Event]:
        """NACKs, entropy values out of use and back, ports down and up; empty without MRC."""
        return [] if self.mrc is None else self.mrc.events(self._flow_name)

    def cm_events(self) -> list[Event]:
        """Connections being made and taken down."""
        return [
            Event(
                time_ns=message.time_ns,
                kind="cm",
                flow=None,
                frame_number=message.frame_number,
                tap=self._tap_names[message.tap],
                text=self._cm_text(message),
            )
            for message in self._m.cm.messages
        ]

    def _cm_text(self, message: CmMessage) -> str:
        src, dst = self._addresses[message.src], self._addresses[message.dst]
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

    def _flow_name(self, f: int) -> str:
        flow = self._m.tracker.flows[f]
        hosts = f"{self._addresses[flow['src']]} > {self._addresses[flow['dst']]}"
        return f"{hosts} QP 0x{int(flow['dest_qp']):06x}"

    def flow(self, f: int) -> Flow:
        """Everything about one flow."""
        m, t = self._m, self._m.tracker
        record: Any = t.flows[f]
        requests, responses = t.stream(f, st.REQUESTS), t.stream(f, st.RESPONSES)
        sequenced = bool(requests["started"] or responses["started"])
        notes: list[str] = []
        missing = acknowledged = None
        if not sequenced:
            only_acks = record["ack_packets"] == record["packets"]
            what = "only ACKs were seen: they have" if only_acks else "datagrams and CNPs have"
            if TRANSPORT_NAMES[record["transport"]] == "MRC" and not only_acks:
                what = "only control packets were seen: they have"
            notes.append(f"{what} no PSN order in which reordering or loss would show")
        if sequenced:
            missing, acknowledged = (
                sum(pair)
                for pair in zip(t.missing(f, st.REQUESTS), t.missing(f, st.RESPONSES), strict=True)
            )
            seen = sum(
                int(stream[name])
                for stream in (requests, responses)
                for name in ("new_packets", "reordered", "recovered")
            )
            if missing > PARTIAL_VIEW_SHARE * (missing + seen):
                notes.append(
                    f"{missing} PSNs were never seen here: this tap seems to see only a part of"
                    " the flow's paths, so nobody can tell what was lost"
                )
                missing = acknowledged = None
        entropy = m.entropy.spraying(f)
        by_tap = m.taps.spraying(f, self._tap_name, self._places) if m.many_taps else None
        by_segments = m.srv6.spraying(f, self._segments.name)
        spraying = [s for s in (entropy, by_tap, by_segments) if s is not None]
        chosen = next((s for s in spraying if s.path_by == self._path_by), entropy)
        messages = m.messages.messages(f)
        untracked = m.messages.untracked(f)
        if untracked:
            notes.append(
                f"{untracked} requests were outstanding beyond those watched: they are left out of"
                " the completion times"
            )

        def count(field: str) -> int | None:
            return int(requests[field] + responses[field]) if sequenced else None

        mrc = self.mrc.flow(f) if self.mrc else None
        if mrc is not None:
            notes += unknowns(mrc)
        recovered = count("recovered")
        retransmitted = count("retransmitted")
        summary = Flow(
            id=f,
            src=self._addresses[record["src"]],
            dst=self._addresses[record["dst"]],
            dest_qp=int(record["dest_qp"]),
            transport=TRANSPORT_NAMES[record["transport"]],
            connection=self._connection_of.get(f),
            first_time_ns=int(record["first_time"]),
            last_time_ns=int(record["last_time"]),
            packets=int(record["packets"]),
            wire_bytes=int(record["wire_bytes"]),
            payload_bytes=int(record["payload_bytes"]),
            request_packets=int(record["request_packets"]),
            response_packets=int(record["response_packets"]),
            ack_packets=int(record["ack_packets"]),
            opcodes={
                opcode_name(int(op)): int(t.opcodes[f, op]) for op in np.flatnonzero(t.opcodes[f])
            },
            path_mtu=int(record["path_mtu"]) or None,
            messages=messages.count,
            reordered_packets=count("reordered"),
            retransmitted_packets=None
            if recovered is None or retransmitted is None
            else recovered + retransmitted,
            recovered_packets=recovered,
            duplicate_packets=count("duplicates"),
            mirror_duplicates=count("mirror_duplicates"),
            tap_copies=int(record["tap_copies"]),
            missing_packets=missing,
            capture_loss_suspected_packets=acknowledged,
            sequence_restarts=int(requests["restarts"] + responses["restarts"]),
            naks=int(record["naks"]),
            rnr_naks=int(record["rnr_naks"]),
            cnps=int(record["cnps"]),
            ecn_marked_packets=int(record["ecn_marked"]),
            entropy_values=m.entropy.paths_seen(f),
            spraying_width=chosen.width if chosen else 1.0,
            paths=self._paths(chosen),
            spraying=spraying,
            reordering=self._reordering(f, requests, responses),
            recovery=self._recovery(f, record),
            message_statistics=messages,
            latency=m.messages.latency(f),
            congestion=m.congestion.congestion(f),
            idle_gaps=m.idle.gaps(f),
            goodput_bits_per_second=m.messages.goodput_bits_per_second(f),
            activity_bytes=m.activity.of(f),
            activity_bin_ns=m.activity.bin_ns,
            taps=self._seen_at(f, record),
            owner=self._owners.get(f),
            notes=notes,
            mrc=mrc or UNSET,
        )
        return as_sampled(summary, self._sampled)

    def segment_lists(self) -> list[SegmentList]:
        """The SRv6 paths that carried most."""
        return segment_lists(self._m.srv6, self._segments)

    def _paths(self, spraying: Spraying | None) -> list[PathShare]:
        return spraying.paths if spraying else []

    def _tap_name(self, tap: int) -> str:
        return self._tap_names[tap]

    def _seen_at(self, f: int, record: Any) -> dict[str, int]:
        if not self._m.many_taps:
            return {self._tap_names[0]: int(record["packets"])}
        seen = {self._tap_names[tap]: n for tap, n in self._m.taps.packets_by_key(f).items()}
        earlier = int(record["packets"] + record["tap_copies"]) - sum(seen.values())
        if earlier:  # all were at the first tap until another one appeared
            seen = {self._tap_names[0]: seen.pop(self._tap_names[0], 0) + earlier, **seen}
        return seen

    def _reordering(self, f: int, requests: Any, responses: Any) -> Reordering | None:
        """RFC metrics over both streams of the flow; None without PSNs of its own."""
        unique = int(requests["arrivals"] + responses["arrivals"])
        if unique == 0:
            return None
        h, d = self._m.tracker.histograms, self._m.tracker.densities
        n_counts = requests["n_counts"] + responses["n_counts"]
        n_reordering = np.cumsum(n_counts[::-1])[::-1]  # a 3-reordered packet is 1- and 2- too
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

    def _recovery(self, f: int, record: Any) -> Recovery:
        h = self._m.tracker.histograms
        codes = {
            NAK_NAMES.get(0x60 | code, "other"): int(n)
            for code, n in enumerate(record["nak_codes"])
            if n
        }
        return Recovery(
            naks=codes,
            rnr_naks=int(record["rnr_received"]),
            retransmitted_by={
                name: int(n)
                for name, n in zip(st.TRIGGER_NAMES, record["retransmitted_by"], strict=True)
                if n
            },
            rewinds=int(record["rewinds"]),
            rewound_bytes=int(record["rewound_bytes"]),
            gap_to_nak_ns=h.quantiles(f, st.GAP_TO_NAK),
            nak_to_resend_ns=h.quantiles(f, st.NAK_TO_RESEND),
            timeout_ns=h.quantiles(f, st.TIMEOUT),
        )

    def _connections(self) -> tuple[dict[int, int], list[Connection]]:
        t = self._m.tracker
        of: dict[int, int] = {}
        connections: list[Connection] = []
        services = t.find(self._m.cm.services)
        service_of = {services[key]: self._m.cm.services[key] for key in services}
        for f in np.flatnonzero(t.flows["peer"] >= 0).tolist():
            g = int(t.flows[f]["peer"])
            if g < f:
                continue
            one, other = t.flows[f], t.flows[g]
            evidence = int(one["evidence"] | other["evidence"])
            service = service_of.get(f, service_of.get(g))
            of[f] = of[g] = len(connections)
            connections.append(
                Connection(
                    id=len(connections),
                    flows=[f, g],
                    a=self._addresses[one["src"]],
                    a_qp=int(other["dest_qp"]),
                    b=self._addresses[one["dst"]],
                    b_qp=int(one["dest_qp"]),
                    transport=TRANSPORT_NAMES[one["transport"]],
                    evidence=[name for bit, name in st.EVIDENCE_NAMES if evidence & bit],
                    path_mtu=int(max(one["path_mtu"], other["path_mtu"])) or None,
                    service=None if service is None else service_name(service),
                    read_responses_missing=_responses_missing(t, f, g),
                )
            )
        return of, connections

    def _event(self, event: Any) -> Event:
        kind, value = st.EVENT_NAMES[event["kind"]], int(event["value"])
        where = self._flow_name(int(event["flow"]))
        psn = int(event["psn"])
        if kind == "nak":
            text = f"{where}: NAK, {NAK_NAMES.get(value, f'code 0x{value:02x}')}, PSN {psn}"
        elif kind == "rnr_nak":
            text = f"{where}: RNR NAK, PSN {psn}"
        elif kind == "rewind":
            text = f"{where}: sends again from PSN {psn} ({st.TRIGGER_NAMES[value]})"
        else:
            text = f"{where}: PSN jumps to {psn}: the queue pair restarted or much was not captured"
        return Event(
            time_ns=int(event["time"]),
            kind=kind,
            flow=int(event["flow"]),
            frame_number=int(event["frame_number"]),
            tap=self._tap_names[event["tap"]],
            text=text,
        )


def _sum(one: dict[int, int], other: dict[int, int]) -> dict[int, int]:
    return {k: one.get(k, 0) + other.get(k, 0) for k in sorted({*one, *other})}


def _responses_missing(tracker: Any, f: int, g: int) -> int | None:
    """Response PSNs of READs between the two flows that never came; None without READs."""
    if not tracker.flows[f]["read_requests"] + tracker.flows[g]["read_requests"]:
        return None
    return int(tracker.missing(f, st.RESPONSES)[0] + tracker.missing(g, st.RESPONSES)[0])
