"""Loss before the tap: the tap sees the gap, then the retransmission."""

from __future__ import annotations

from collections.abc import Iterator

from ...measures.troubles import JUMPED, LATE, LATE_AFTER, RECOVERED_LOSS
from ...results.diagnosis import Finding, Place
from ...results.flow import Flow
from ...wire.opcodes import TRANSPORT_NAMES, UC
from ..case import Case
from ..finding import finding, frames
from ..known import Known
from ..words import hosts, packets_of
from .groups import by_hosts


def losses_before(case: Case, known: Known) -> Iterator[Finding]:
    """Packets of the sender that never reached the first tap of their flow."""
    lost = {flow.id: n for flow in case.flows if (n := lost_before(case, flow))}
    for group in by_hosts(case.flows[f] for f in lost):
        yield _finding(case, group, {flow.id: lost[flow.id] for flow in group})


def lost_before(case: Case, flow: Flow) -> int:
    """Packets of the flow that were lost before the tap; 0 where the capture cannot tell.

    Without late packets every PSN that a run of the sender skips is a lost packet, also when it is
    a retransmission that was lost. With late packets only those that a retransmission replaced
    count. UC packets are never retransmitted: their missing PSNs are lost.
    """
    if flow.retransmitted_packets is None:
        return 0
    troubles = case.measuring.troubles
    recovered = flow.recovered_packets or 0
    missing = (flow.missing_packets or 0) - (flow.capture_loss_suspected_packets or 0)
    if flow.transport == TRANSPORT_NAMES[UC]:
        return max(missing, 0)
    jumped = troubles.of(flow.id, JUMPED)
    if not recovered and not jumped:
        return 0
    if troubles.of(flow.id, LATE) or flow.missing_packets is None:
        return recovered
    overtaken = troubles.of(flow.id, LATE_AFTER)
    return recovered if overtaken else max(recovered, 0 if jumped is None else jumped.packets)


def _finding(case: Case, group: list[Flow], lost: dict[int, int]) -> Finding:
    troubles = case.measuring.troubles
    seen = [
        trouble
        for flow in group
        for kind in (RECOVERED_LOSS, JUMPED)
        if (trouble := troubles.of(flow.id, kind))
    ]
    ways = {(flow.src, flow.dst) for flow in group}
    same = [flow for flow in case.flows if (flow.src, flow.dst) in ways]
    packets = sum(lost.values())
    could = packets + sum(flow.request_packets + flow.response_packets for flow in same)
    first = min((t.first_ns for t in seen), default=min(flow.first_time_ns for flow in group))
    last = max((t.last_ns for t in seen), default=max(flow.last_time_ns for flow in group))
    sources = {flow.src for flow in group}
    return finding(
        case,
        "loss",
        Place(
            to_tap=_tap(case, group),
            direction="before the tap",
            host=next(iter(sources)) if len(sources) == 1 else None,
        ),
        lost,
        could,
        (first, last),
        f"{packets_of(packets, could)} from {hosts(group)} are lost before the tap",
        "check the links and devices between the sender and the tap; a capture at the sender"
        " tells which",
        confidence="proven",
        evidence=frames(case, seen),
    )


def _tap(case: Case, group: list[Flow]) -> str | None:
    """The tap that sees these flows, if it is one."""
    taps = {tap for flow in group for tap in flow.taps}
    return next(iter(taps)) if len(taps) == 1 else None
