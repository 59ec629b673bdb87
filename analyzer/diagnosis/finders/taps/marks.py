"""CE marks set before the tap, and notifications of marks set after it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ....measures.troubles import CNP_SENT, MARKED
from ....results.diagnosis import Finding, Place
from ....results.flow import Flow
from ....wire.packets import FULL_HOP_LIMITS
from ....words import printable
from ...case import Case
from ...finding import finding
from ...known import Known
from ...words import counted, hosts, packets_of
from ..groups import by_hosts, of_same_hosts
from ..places import before, only, tap_of

ENOUGH_MARKS = 10
"""Marks that a receiver answers with at least one CNP: NICs send one per flow and 50 us or so."""


def marks_before(case: Case, known: Known) -> Iterator[Finding]:
    """Packets that are marked CE at the first tap of their flow."""
    troubles = case.measuring.troubles
    for group in by_hosts(case.flows[f] for f in troubles.flows(MARKED)):
        marked = troubles.by_flow(MARKED, (flow.id for flow in group))
        could = sum(f.congestion.ecn_capable_packets for f in of_same_hosts(case, group))
        packets = sum(trouble.packets for trouble in marked.values())
        tap = tap_of(case, marked.values())
        yield finding(
            case,
            "ecn-marking",
            Place(to_tap=tap, direction="before the tap", host=only(f.dst for f in group)),
            could,
            f"{packets_of(packets, could)} from {hosts(group)} are marked CE {before(case, tap)}",
            "look for the full queue: a tap on each link of the path shows where marks begin",
            confidence="proven",
            seen=marked.values(),
            severity="warning",
            costs=False,
        )


def notifications_without_marks(case: Case, known: Known) -> Iterator[Finding]:
    """CNPs although no packet to their sender is marked at any tap.

    CNPs that a router forwarded before the tap: the packets may be marked on the rest of their way.
    CNPs straight from their sender: every mark passed the tap, unless the tap is at the other end
    of an unrouted network.
    """
    troubles = case.measuring.troubles
    notifying = _by_source(case, CNP_SENT)
    to_host: dict[str, list[Flow]] = {receiver: [] for receiver in notifying}
    for flow in case.flows:
        if flow.dst in to_host and flow.data_packets:
            to_host[flow.dst].append(flow)
    for receiver, flows in notifying.items():
        senders, data = {f.dst for f in flows}, to_host[receiver]
        notified = [f for f in data if f.src in senders]
        if not notified or any(_is_marked(case, f) for f in data):
            continue
        sent = troubles.by_flow(CNP_SENT, (flow.id for flow in flows))
        tap = tap_of(case, sent.values())
        at_link = all(_unrouted(case, f) for f in flows) and all(tap in f.taps for f in notified)
        total = sum(trouble.packets for trouble in sent.values())
        could = sum(f.data_packets for f in notified)
        name = printable(receiver)
        unrouted = all(_unrouted(case, f) for f in notified) and not case.measuring.many_taps
        yield finding(
            case,
            "cnp-without-mark" if at_link else "ecn-marking",
            Place(host=receiver, direction=None if at_link else "after the tap"),
            max(could, total),
            f"{name} sends {counted(total, 'CNP')}, none of {counted(could, 'packet')} to it is"
            f" marked CE {'here' if at_link else 'at the tap: they are marked after it'}",
            f"check the congestion control of {name}"
            if at_link
            else f"capture on the link of {name} and before it: that shows where marks begin",
            hits=dict.fromkeys((f.id for f in notified), 0),
            confidence="possible" if unrouted else "likely",
            seen=sent.values(),
            severity="warning",
            costs=False,
            packets=total,
        )


def marks_without_notification(case: Case, known: Known) -> Iterator[Finding]:
    """Receivers of marked packets that send no CNP, while others do.

    Without any CNP in the capture its transport sends none (Soft-RoCE, MRC), or the tap does not
    see them: no finding.
    """
    notifying = set(_by_source(case, CNP_SENT))
    if not notifying:
        return
    marked: dict[str, list[Flow]] = {}
    for flow in case.flows:
        if flow.ecn_marked_packets:
            marked.setdefault(flow.dst, []).append(flow)
    for receiver, flows in marked.items():
        answers = any((f.dst, f.src) in case.hosts_seen for f in flows)
        total = sum(flow.ecn_marked_packets for flow in flows)
        if receiver in notifying or total < ENOUGH_MARKS or not answers:
            continue
        yield finding(
            case,
            "mark-without-cnp",
            Place(host=receiver),
            sum(f.congestion.ecn_capable_packets for f in flows),
            f"{printable(receiver)} gets {counted(total, 'packet')} marked CE and sends no CNP",
            f"enable ECN and CNPs on {printable(receiver)}",
            hits={flow.id: flow.ecn_marked_packets for flow in flows},
            span=_marked_between(case, flows),
            seen=case.measuring.troubles.by_flow(MARKED, (f.id for f in flows)).values(),
            severity="warning",
            costs=False,
        )


def _marked_between(case: Case, flows: list[Flow]) -> tuple[int, int]:
    """Times of the first and the last mark of these flows, before the first tap or on a hop."""
    numbers = [flow.id for flow in flows]
    marked = case.measuring.troubles.by_flow(MARKED, numbers).values()
    spans = [(trouble.first_ns, trouble.last_ns) for trouble in marked]
    for hop in () if case.ways is None else case.ways.hops:
        rows = hop.passed[np.isin(hop.passed["flow"], numbers) & (hop.passed["marked"] > 0)]
        if len(rows):
            spans.append((int(rows["first_marked_ns"].min()), int(rows["last_marked_ns"].max())))
    return min(first for first, _ in spans), max(last for _, last in spans)


def _unrouted(case: Case, flow: Flow) -> bool:
    """Whether the tap sees the flow before any router does."""
    return int(case.measuring.troubles.progress(flow.id)["hop_limit"]) in FULL_HOP_LIMITS


def _is_marked(case: Case, flow: Flow) -> bool:
    """Whether any tap saw a mark on the flow."""
    return bool(flow.ecn_marked_packets) or any(
        hop.ce_marked_packets for hop in case.hops if hop.to_tap in flow.taps
    )


def _by_source(case: Case, kind: int) -> dict[str, list[Flow]]:
    found: dict[str, list[Flow]] = {}
    for f in case.measuring.troubles.flows(kind):
        found.setdefault(case.flows[f].src, []).append(case.flows[f])
    return found
