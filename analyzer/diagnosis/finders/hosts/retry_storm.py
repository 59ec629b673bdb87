"""Senders that retransmit the same packets again and again."""

from __future__ import annotations

from collections.abc import Iterator

from ....measures.troubles import RESENT
from ....results.diagnosis import Finding, Place
from ...case import Case
from ...finding import cheap, finding
from ...known import Known
from ...words import flow_name, hosts, packets_of
from ..groups import by_hosts
from ..one_packet import ROUNDS, rounds_of
from ..places import only


def retry_storms(case: Case, known: Known) -> Iterator[Finding]:
    """Flows that went back to the same PSN at least `ROUNDS` times in a row."""
    troubles = case.measuring.troubles
    stormy = []
    for f in troubles.flows(RESENT):
        resent = troubles.of(f, RESENT)
        few = rounds_of(case, f) < ROUNDS
        if resent is None or few or case.flows[f].retransmitted_packets is None:
            continue
        flow, span = case.flows[f], (resent.first_ns, resent.last_ns)
        explained = known.explains("retry-storm", f, *span)
        if not explained and not known.host_explains((flow.src, flow.dst), *span):
            stormy.append(flow)
    for group in by_hosts(stormy):
        resent_by = troubles.by_flow(RESENT, (flow.id for flow in group))
        packets = sum(trouble.packets for trouble in resent_by.values())
        could = sum(flow.request_packets for flow in group)
        most = max(rounds_of(case, f) for f in resent_by)
        who = flow_name(group[0]) if len(group) == 1 else hosts(group)
        yield finding(
            case,
            "retry-storm",
            Place(host=only(flow.dst for flow in group)),
            could,
            f"{packets_of(packets, could)} from {who} are retransmissions, one PSN"
            f" {most} times in a row",
            "find out why the receiver does not accept this packet: its state, its path, its size",
            confidence="proven",
            seen=resent_by.values(),
            severity="note" if cheap(group) else None,
        )
