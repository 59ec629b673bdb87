"""Pairs flows into connections, with the evidence.

The tracker pairs flows packet by packet, from the PSNs that they acknowledge (answers.py). This
module adds evidence from several packets: CM messages, which name the queue pairs exactly, and the
UDP source port of transports without ACKs. A wrong pair is worse than none: doubtful pairs are
dissolved.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...kernels.kernel import NamedTuple
from ..decode.control import CmMessage
from ..wire.bth import UC
from ..wire.registry import Endpoints
from . import state as st
from .answers import rdma_udp_sport
from .matching import RESEND_WITHIN_NS
from .tracker import FlowTracker

MESSAGES_KEPT = 1000
PAIRS_KEPT = 20_000
"""Latest pairs, and requests without a reply, that are kept when flows leave memory."""
PAIRS_AT_MOST = 200_000
"""Maximum of these, against floods of forged messages; beyond it the oldest are forgotten."""

_DOUBT = 4
"""A pair is dissolved if more than one answer in N names a PSN that the peer never sent, or if the
peer goes back to the PSN of less than one NAK in N."""
_LEAST_NAKS = 4
"""NAKs from which that is told."""


@dataclass(frozen=True, slots=True)
class _Request:
    """A CM REQ that waits for its REP."""

    src: int
    dst: int
    qpn: int
    service_id: int | None


@dataclass(slots=True)
class CmPairs:
    """Pairs of queue pairs learned from CM messages (REQ and the REP that answers it)."""

    pairs: dict[tuple[int, int, int], tuple[int, int, int]] = field(default_factory=dict)
    """(source, destination, destination QPN) of the active side's flow -> that of the answer."""
    peers: dict[tuple[int, int, int], tuple[int, int, int]] = field(default_factory=dict)
    """The same from both sides."""
    services: dict[tuple[int, int, int], int] = field(default_factory=dict)
    """Service id by flow of the active side."""
    first_psns: dict[tuple[int, int, int], int] = field(default_factory=dict)
    """First PSN of requests by flow, as REQ and REP name it."""
    messages: list[CmMessage] = field(default_factory=list)
    """The first `MESSAGES_KEPT` messages; a message seen at several taps counts once."""
    omitted: int = 0
    """Number of further messages."""
    _seen: set[tuple[object, ...]] = field(default_factory=set)
    _waiting: dict[tuple[int, int, int], _Request] = field(default_factory=dict)

    def note(self, messages: Iterable[CmMessage]) -> None:
        """Process CM messages in capture order; copies of a message have no effect."""
        for message in messages:
            self._keep(message)
            if message.kind in ("REQ", "REP") and message.qpn and message.starting_psn is not None:
                flow = message.dst, message.src, message.qpn
                self.first_psns[flow] = message.starting_psn
            if message.kind == "REQ" and message.qpn and message.local_comm_id is not None:
                key = (message.src, message.dst, message.local_comm_id)
                self._waiting[key] = _Request(
                    message.src, message.dst, message.qpn, message.service_id
                )
            elif message.kind == "REP" and message.qpn and message.remote_comm_id is not None:
                request = self._waiting.get((message.dst, message.src, message.remote_comm_id))
                if request is not None:
                    active = (request.src, request.dst, message.qpn)
                    passive = request.dst, request.src, request.qpn
                    self.pairs[active] = passive
                    self.peers[active], self.peers[passive] = passive, active
                    if request.service_id is not None:
                        self.services[active] = request.service_id
        if any(len(table) > PAIRS_AT_MOST for table in self._tables()):
            self._shorten(PAIRS_AT_MOST // 2)

    def forget(self, left: Iterable[tuple[int, int, int]]) -> None:
        """Forget the pairs of flows that were removed from memory, and all but the latest
        others."""
        for key in left:
            self.pairs.pop(key, None)
            self.peers.pop(key, None)
            self.services.pop(key, None)
            self.first_psns.pop(key, None)
        self._shorten(PAIRS_KEPT)

    def _tables(self) -> tuple[dict[tuple[int, int, int], Any], ...]:
        return self.pairs, self.peers, self.services, self.first_psns, self._waiting

    def _shorten(self, entries: int) -> None:
        """Keep the latest entries of each table."""
        for table in self._tables():
            for key in list(table)[: max(len(table) - entries, 0)]:
                del table[key]

    def _keep(self, message: CmMessage) -> None:
        if len(self.messages) >= MESSAGES_KEPT:
            self.omitted += 1
            return
        identity = (
            message.kind,
            message.src,
            message.dst,
            message.transaction_id,
            message.local_comm_id,
        )
        if identity not in self._seen:
            self._seen.add(identity)
            self.messages.append(message)


def service_name(service_id: int) -> str:
    """`rdma_cm tcp 4420` for the RDMA IP CM service (annex A11), else the number."""
    if service_id >> 24 == 1:
        space = {0x06: "tcp", 0x11: "udp", 0x3F: "ib"}.get(service_id >> 16 & 0xFF)
        if space:
            return f"rdma_cm {space} {service_id & 0xFFFF}"
    return f"0x{service_id:016x}"


def settle(tracker: FlowTracker, cm: CmPairs) -> None:
    """Finish the pairing at the end of a capture: dissolve doubtful pairs, then use exact evidence,
    then weak evidence."""
    _dissolve_doubtful(tracker)
    flow_of = tracker.find([*cm.pairs.keys(), *cm.pairs.values()])
    for active, passive in cm.pairs.items():
        if active in flow_of and passive in flow_of:
            tracker.pair(flow_of[active], flow_of[passive], st.EVIDENCE_CM)
    _pair_by_port(tracker)


def _dissolve_doubtful(tracker: FlowTracker) -> None:
    flows = tracker.flows
    doubtful = (flows["mismatches"] > 0) | (flows["naks"] > 0)
    for f in np.flatnonzero((flows["peer"] >= 0) & doubtful).tolist():
        flow = flows[f]
        if flow["peer"] < 0 or flow["evidence"] & (st.EVIDENCE_CM | st.EVIDENCE_HOST_PROBE):
            continue
        peer = int(flow["peer"])
        is_ignored = _ignores_naks(flow, flows[peer])
        if is_ignored or int(flow["mismatches"]) * _DOUBT > int(flow["answers"]):
            flow["early_naks"] += flows[peer]["nak_codes"][0]
            flows[peer]["nak_codes"] = 0
            for number in (f, peer):
                flows[number]["peer"] = flows[number]["candidate"] = -1
                for name in ("evidence", "answers", "mismatches", "mismatches_in_row"):
                    flows[number][name] = 0  # a running analysis may pair it again


def _ignores_naks(answers: Any, requests: Any) -> bool:
    """Whether a sender, paired by PSNs alone, retransmits for none of the NAKs of its peer, or goes
    back to other PSNs than most of them name: they name packets of another queue pair. Both are
    FLOW records."""
    if answers["ports_vary"] or requests["ports_vary"]:
        return False
    if answers["udp_sport"] == requests["udp_sport"]:
        return False
    naks = int(requests["nak_codes"][0])
    if naks >= _LEAST_NAKS and int(requests["heeded_naks"]) * _DOUBT < naks:
        return True
    if requests["retransmitted_by"][st.BY_NAK]:
        return False
    is_open = requests["nak_kind"] == st.NAK_PSN
    is_open &= requests["nak_time"] < int(requests["last_time"]) - RESEND_WITHIN_NS
    return bool(answers["early_naks"] or is_open.any())


def _pair_by_port(tracker: FlowTracker) -> None:
    """Pair UC flows without a peer whose port follows from both QP numbers, if only one fits."""
    flows = tracker.flows
    lonely = np.flatnonzero(
        (flows["peer"] < 0) & (flows["transport"] == UC) & (flows["request_packets"] > 0)
    ).tolist()
    by_hosts: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for f in lonely:
        flow = flows[f]
        by_hosts[int(flow["src"]), int(flow["dst"]), int(flow["udp_sport"])].append(f)
    for f in lonely:
        flow = flows[f]
        port = int(flow["udp_sport"])
        fitting = [
            g
            for g in by_hosts.get((int(flow["dst"]), int(flow["src"]), port), [])
            if rdma_udp_sport(int(flow["dest_qp"]), int(flows[g]["dest_qp"])) == port
        ]
        if len(fitting) == 1 and flows[fitting[0]]["peer"] in (-1, f) and flow["peer"] < 0:
            tracker.pair(f, fitting[0], st.EVIDENCE_UDP_SOURCE_PORT)


class NamedFlow(NamedTuple):
    """A flow of the capture."""

    number: int
    src: str
    dst: str
    dest_qp: int
    peer: int
    first_ns: int
    last_ns: int


def named_flows(tracker: FlowTracker, endpoints: Endpoints) -> list[NamedFlow]:
    """The flows of a tracker by their numbers."""
    texts = endpoints.texts()
    return [
        NamedFlow(
            number,
            texts[flow["src"]],
            texts[flow["dst"]],
            int(flow["dest_qp"]),
            int(flow["peer"]),
            int(flow["first_time"]),
            int(flow["last_time"]),
        )
        for number, flow in enumerate(tracker.flows)
    ]
