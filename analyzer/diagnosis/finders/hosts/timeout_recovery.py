"""Retransmissions after timeouts: no NAK asked for them."""

from __future__ import annotations

from collections.abc import Iterator

from ....measures.troubles import ACKED_AGAIN, RESENT, RESENT_AFTER_ACK
from ....results.diagnosis import Finding, Place
from ....results.flow import Flow
from ....summary.gaps import gaps_in
from ....words import printable
from ...case import Case
from ...deaths import answered_elsewhere
from ...finding import cheap, finding
from ...known import Known
from ...words import duration, hosts, packets_of
from ..groups import by_any_host
from ..places import only

SPURIOUS_SHARE = 0.5
"""Share of the retransmitted packets acknowledged twice, from which only ACKs were missed."""


def timeout_recoveries(case: Case, known: Known) -> Iterator[Finding]:
    """Flows whose sender waited for a timeout: tail loss, lost ACKs, or late answers."""
    flows = []
    for flow in case.flows:
        resent = case.measuring.troubles.of(flow.id, RESENT)
        if resent is None or not _by_timeout(flow):
            continue
        span = resent.first_ns, resent.last_ns
        ends = flow.src, flow.dst
        peer = case.peers.get(flow.id)
        taps = {*flow.taps, *(() if peer is None else case.flows[peer].taps)}
        if not (
            known.explains("timeout-recovery", flow.id, *span)
            or known.host_explains(ends, *span)
            or known.loses_answers(flow, *span)
            or known.queue_explains(taps, *span)
        ):
            flows.append(flow)
    for group in by_any_host(flows):
        yield _finding(case, group)


def _by_timeout(flow: Flow) -> int:
    return (flow.recovery.retransmitted_by or {}).get("timeout", 0)


def _finding(case: Case, group: list[Flow]) -> Finding:
    troubles = case.measuring.troubles
    hits = {flow.id: _by_timeout(flow) for flow in group}
    resent = [trouble for flow in group if (trouble := troubles.of(flow.id, RESENT))]
    twice = sum(t.packets for flow in group if (t := troubles.of(flow.id, ACKED_AGAIN)))
    could = sum(flow.request_packets for flow in group)
    packets = sum(hits.values())
    waits = [flow.recovery.timeout_ns for flow in group if flow.recovery.timeout_ns]
    longest = max((wait.max for wait in waits), default=0.0)
    arrived = twice >= SPURIOUS_SHARE * packets
    after_ack = sum(t.packets for flow in group if (t := troubles.of(flow.id, RESENT_AFTER_ACK)))
    late = arrived and after_ack < SPURIOUS_SHARE * sum(wait.count for wait in waits)
    answers = [case.flows[peer] for f in group if (peer := case.peers.get(f.id)) is not None]
    in_gaps = any(gaps_in(flow, case.gaps) for flow in (*group, *answers))
    one_way = len({(flow.src, flow.dst) for flow in group}) == 1
    way = f"from {hosts(group)}" if one_way else f"between {printable(_between(group))}"
    why = (
        "the ACKs arrived late"
        if late
        else "the ACKs were late or lost after the tap"
        if arrived
        else "no NAK was captured"
        if in_gaps
        else "no NAK came"
    )
    says = f"wait for timeouts (up to {duration(longest)}): {why}"
    step = "look for loss of last packets or of ACKs; a capture at the other host shows where"
    unseen = all(answered_elsewhere(case, flow) for flow in group)
    if unseen:
        says = "are retransmitted: lost or late after the tap; their answers are seen at no tap"
        step = "capture the paths of the answers as well, and the links after this one"
    return finding(
        case,
        "timeout-recovery",
        Place(
            direction=f"between {_between(group)}",
            host=only(flow.dst for flow in group)
            or only(flow.src for flow in group)
            or _shared(group),
        ),
        could,
        f"{packets_of(packets, could)} {way} {says}",
        "look for a busy receiver, or raise the ACK timeout" if late else step,
        hits=hits,
        confidence="possible" if unseen else "likely",
        seen=resent,
        severity="note" if cheap(group) else None,
    )


def _between(group: list[Flow]) -> str:
    names = sorted({flow.src for flow in group} | {flow.dst for flow in group})
    if len(names) <= 2:
        return " and ".join(names)
    shared = _shared(group)
    return f"{len(names)} hosts" if shared is None else f"{shared} and {len(names) - 1} hosts"


def _shared(group: list[Flow]) -> str | None:
    """The one host of all these flows."""
    hosts = frozenset.intersection(*(frozenset((flow.src, flow.dst)) for flow in group))
    return next(iter(hosts)) if len(hosts) == 1 else None
