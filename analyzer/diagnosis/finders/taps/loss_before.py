"""Loss before the tap: the tap sees the gap, then the retransmission."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET

from ....measures.troubles import JUMPED, RECOVERED_LOSS
from ....results.diagnosis import LOST_AGAIN, Finding, Place
from ....results.flow import Flow
from ...case import Case
from ...finding import finding
from ...interval import span_of
from ...known import SLOW_PATH, Known
from ...words import counted, hosts, packets_of
from ..groups import by_hosts, of_same_hosts
from ..lost_before import lost_before
from ..places import LAST_SWITCH, before, may_be_incast, only, tap_of
from .late import late_over


def losses_before(case: Case, known: Known) -> Iterator[Finding]:
    """Packets of the sender that never reached the first tap of their flow."""
    lost = {}
    for flow in case.flows:
        n = lost_before(case, flow)
        if n and not _is_explained(case, known, flow):
            lost[flow.id] = n
    for group in by_hosts(case.flows[f] for f in lost):
        yield _finding(case, group, {flow.id: lost[flow.id] for flow in group})


def _is_explained(case: Case, known: Known, flow: Flow) -> bool:
    """Whether the sender lost a port or all of its links, or a wrong clock makes it seem so."""
    troubles = case.measuring.troubles
    seen = [t for kind in (RECOVERED_LOSS, JUMPED) if (t := troubles.of(flow.id, kind))]
    span = span_of(seen) if seen else (flow.first_time_ns, flow.last_time_ns)
    return (
        known.hit_by("mrc-path", flow.id, *span)
        or known.overflows(flow)
        or known.cut_off(flow.src, *span)
        or known.misplaced(flow, *span)
    )


def _retransmissions(flow: Flow, lost: int) -> int:
    """Of the lost packets, those that were retransmissions: the flow counts each PSN once, as
    recovered or missing."""
    missing = (flow.missing_packets or 0) - (flow.capture_loss_suspected_packets or 0)
    return max(lost - (flow.recovered_packets or 0) - max(missing, 0), 0)


def _finding(case: Case, group: list[Flow], lost: dict[int, int]) -> Finding:
    troubles = case.measuring.troubles
    seen = [
        trouble
        for flow in group
        for kind in (RECOVERED_LOSS, JUMPED)
        if (trouble := troubles.of(flow.id, kind))
    ]
    packets = sum(lost.values())
    could = packets + sum(flow.data_packets for flow in of_same_hosts(case, group))
    first = min((t.first_ns for t in seen), default=min(flow.first_time_ns for flow in group))
    last = max((t.last_ns for t in seen), default=max(flow.last_time_ns for flow in group))
    tap = tap_of(case, seen)
    says = f"{packets_of(packets, could)} from {hosts(group)} are lost {before(case, tap)}"
    again = sum(_retransmissions(flow, lost[flow.id]) for flow in group)
    if again:
        says += f", {again:,} of them " + ("a retransmission" if again == 1 else "retransmissions")
    late = late_over(case, tap, first, last) if tap is not None else {}
    if late:  # one queue overflows and delays: one cause
        first, last = min(first, span_of(late.values())[0]), max(last, span_of(late.values())[1])
        overtaken = counted(sum(trouble.packets for trouble in late.values()), "packet")
        says += f", and {overtaken} of {counted(len(late), 'flow')} over this path are late"
    details: dict[str, str | int | float] = {LOST_AGAIN: again} if again else {}
    if late and tap is not None:
        details[SLOW_PATH] = tap
    return finding(
        case,
        "loss",
        Place(to_tap=tap, direction="before the tap", host=only(flow.src for flow in group)),
        could,
        says,
        "look for a queue that overflows on this path"
        if late
        else LAST_SWITCH
        if may_be_incast(group)
        else "check links and devices between the sender and the tap; a capture at the sender "
        "shows which",
        hits=dict.fromkeys(late, 0) | lost,
        span=(first, last),
        confidence="possible" if tap in case.dropping else "proven",
        seen=[*seen, *late.values()],
        packets=packets,
        details=details or UNSET,
    )
