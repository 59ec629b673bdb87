"""Loss or reordering after the tap: NAKs for packets that the tap saw in order."""

from __future__ import annotations

from collections.abc import Iterator

from ...measures.troubles import LATE_AFTER, LOST_AFTER
from ...results.diagnosis import Finding, Kind, Place
from ...results.flow import Flow
from ..case import Case
from ..finding import finding, frames
from ..known import Known
from ..words import hosts, packets_of
from .groups import by_hosts

LATE_SHARE = 0.25
"""Share of the NAKed packets that were only late, from which reordering is the cause: a go-back-N
receiver drops the packets that overtook a late one and NAKs these as well. Loss alone has none."""


def losses_after(case: Case, known: Known) -> Iterator[Finding]:
    """Packets seen in order at the last tap of their flow that the receiver missed."""
    troubles = case.measuring.troubles
    kinds: dict[Kind, list[Flow]] = {"loss": [], "reordering": []}
    for f in sorted({*troubles.flows(LOST_AFTER), *troubles.flows(LATE_AFTER)}):
        late, lost = troubles.of(f, LATE_AFTER), troubles.of(f, LOST_AFTER)
        seen = [trouble for trouble in (late, lost) if trouble]
        first, last = min(t.first_ns for t in seen), max(t.last_ns for t in seen)
        if case.flows[f].retransmitted_packets is None:
            continue
        n_late = late.packets if late else 0
        n_lost = lost.packets if lost else 0
        kind: Kind = "reordering" if n_late > LATE_SHARE * (n_late + n_lost) else "loss"
        if not known.explains(kind, f, first, last) and not known.explains("loss", f, first, last):
            kinds[kind].append(case.flows[f])
    for kind, flows in kinds.items():
        for group in by_hosts(flows):
            yield _finding(case, kind, group)


def _finding(case: Case, kind: Kind, group: list[Flow]) -> Finding:
    troubles = case.measuring.troubles
    counted = (LOST_AFTER,) if kind == "loss" else (LATE_AFTER, LOST_AFTER)
    seen = {f.id: [t for k in counted if (t := troubles.of(f.id, k))] for f in group}
    hits = {f: sum(t.packets for t in found) for f, found in seen.items() if found}
    every = [trouble for found in seen.values() for trouble in found]
    ways = {(flow.src, flow.dst) for flow in group}
    could = sum(
        flow.request_packets + flow.response_packets
        for flow in case.flows
        if (flow.src, flow.dst) in ways
    )
    packets = sum(hits.values())
    what = "are lost after the tap" if kind == "loss" else "arrive late after the tap"
    taps = {tap for flow in group for tap in flow.taps}
    receivers = {flow.dst for flow in group}
    return finding(
        case,
        kind,
        Place(
            from_tap=next(iter(taps)) if len(taps) == 1 else None,
            direction="after the tap",
            host=next(iter(receivers)) if len(receivers) == 1 else None,
        ),
        hits,
        could,
        (min(t.first_ns for t in every), max(t.last_ns for t in every)),
        f"{packets_of(packets, could)} from {hosts(group)} {what}",
        "capture at the receiver as well: it tells whether the network or the host is at fault",
        confidence="likely",
        evidence=frames(case, every),
    )
