"""Checks that passed: claims with what they cover, and only for what was really checked."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from msgspec import UNSET, UnsetType

from ..results.captures import Ended
from ..results.diagnosis import Finding, Kind
from ..results.flow import Flow
from ..track.state import REQUESTS, RESPONSES
from .case import Case, queue_pairs
from .deaths import death_of, may_be_answered
from .words import counted

LOSSES: Final[frozenset[Kind]] = frozenset(
    ("loss", "selective-loss", "blackhole", "outage", "rate-limit", "link-down", "incast")
)


def healthy(case: Case, findings: Sequence[Finding]) -> list[str]:
    """One claim per check that ran on every packet it names and found nothing."""
    sampled = any(flow.sampling is not UNSET for flow in case.flows)
    if case.filtered or sampled:
        return []  # packets that were left out look like loss, or hide it
    kinds = {finding.kind for finding in findings}
    checks = (
        _sequence(case, kinds),
        _hops(case, kinds),
        _answers(case),
        _marks(case, kinds),
        _icrc(case),
    )
    return [claim for claims in checks for claim in claims]


def _sequence(case: Case, kinds: Collection[Kind]) -> Iterator[str]:
    """PSNs of every flow that has any: loss, reordering, duplicates, retransmissions."""
    flows = [flow for flow in case.flows if flow.retransmitted_packets is not None]
    in_part = case.ended.partial_flows or any(flow.missing_packets is None for flow in flows)
    if not flows or in_part:
        return
    every: list[Flow | Ended] = [*flows, case.ended]
    packets = sum(flow.data_packets for flow in flows)
    packets += case.ended.sequenced_packets
    checked = {
        "lost": sum((f.missing_packets or 0) + (f.recovered_packets or 0) for f in every)
        or not LOSSES.isdisjoint(kinds)
        or case.ended.flows_in_trouble,  # their sums leave out flows seen in part
        "retransmitted": sum(f.retransmitted_packets or 0 for f in every),
        "reordered": sum(f.reordered_packets or 0 for f in every) or "reordering" in kinds,
        "duplicated": sum(f.duplicate_packets or 0 for f in every) or "duplication" in kinds,
    }
    none = [name for name, count in checked.items() if not count]
    where = "the first tap" if case.measuring.many_taps else "the tap"
    since = ""
    if "lost" in none and not _from_the_first_psn(case, flows):
        since = ", from the first captured packet of each flow on"
    if none:
        yield (
            f"{counted(packets, 'request and response packet')}: none {_either(none)}"
            f" before {where}{since}"
        )


def _from_the_first_psn(case: Case, flows: Sequence[Flow]) -> bool:
    """Whether CM messages name the PSN with which each flow began: nothing is lost before it."""
    tracker, agreed = case.measuring.tracker, case.measuring.cm.first_psns
    for flow in flows:
        record = tracker.flows[flow.id]
        key = int(record["src"]), int(record["dst"]), int(record["dest_qp"])
        requests, responses = (tracker.stream(flow.id, which) for which in (REQUESTS, RESPONSES))
        if responses["started"] or agreed.get(key) != int(requests["first"]):
            return False
    return not case.ended.sequenced_packets


def _hops(case: Case, kinds: Collection[Kind]) -> Iterator[str]:
    """What entered a hop and left it; nothing while packets may have been lost after a tap."""
    hops = [hop for hop in case.hops if hop.to_tap is not None]
    if (
        not hops
        or (case.tap_hops is not None and (case.tap_hops.left or case.tap_hops.hidden))
        or case.ended.lost_between_taps
        or any(hop.lost_packets for hop in case.hops)
        or not LOSSES.isdisjoint(kinds)
    ):
        return
    passed = sum(hop.passed_packets for hop in hops)
    yield f"{counted(len(hops), 'hop')}, {counted(passed, 'packet hop')}: no loss"


def _nacked(flow: Flow) -> bool:
    """Whether the receiver of MRC asks for packets again, such as trimmed ones."""
    answers = None if isinstance(flow.mrc, UnsetType) else flow.mrc.answers
    return answers is not None and any(answers.nacks.values())


def _answers(case: Case) -> Iterator[str]:
    """NAKs, and stalls of queue pairs whose both directions were seen, unless their answers may
    have passed no tap."""
    flows = [flow for flow in case.flows if flow.data_packets and _is_answered(case, flow)]
    every: list[Flow | Ended] = [*case.flows, case.ended]
    acks = sum(flow.ack_packets for flow in every)
    refused = any(flow.naks or flow.rnr_naks for flow in every) or any(map(_nacked, case.flows))
    if acks and not refused:
        yield f"{counted(acks, 'ACK')}: no NAK, no RNR NAK"
    if case.ended.flows_in_trouble or any(death_of(case, flow) for flow in flows):
        return
    unknown = [flow for flow in flows if may_be_answered(case, flow)]
    checked = queue_pairs(flows) - queue_pairs(unknown)
    if checked:
        yield f"{counted(checked, 'queue pair')}: none stalled"


def _is_answered(case: Case, flow: Flow) -> bool:
    return flow.id in case.peers and flow.retransmitted_packets is not None


def _marks(case: Case, kinds: Collection[Kind]) -> Iterator[str]:
    ended = case.ended
    if "ecn-marking" in kinds or ended.ecn_marked_packets or ended.marked_between_taps:
        return
    capable = sum(flow.congestion.ecn_capable_packets for flow in case.flows)
    if capable and not any(flow.ecn_marked_packets for flow in case.flows):
        yield f"{counted(capable, 'ECN-capable packet')}: none marked CE"


def _icrc(case: Case) -> Iterator[str]:
    counts = [capture.icrc for capture in case.captures if capture.icrc is not None]
    good = sum(count["ok"] for count in counts)
    if good and not any(count["bad"] for count in counts):
        yield f"{counted(good, 'ICRC')}: none wrong"


def _either(names: list[str]) -> str:
    """`lost, reordered or duplicated`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
