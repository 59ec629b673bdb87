"""Loss or reordering after the tap: NAKs for packets that the tap saw in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ....measures.troubles import LATE_AFTER, LOST_AFTER, Trouble
from ....results.diagnosis import Finding, Kind, Place
from ....results.flow import Flow
from ....statistics.proportion import wilson
from ....summary.gaps import gaps_in
from ....words import printable
from ...case import Case, seen_in_part
from ...finding import cheap, finding
from ...interval import span_of
from ...known import Known
from ...words import hosts, packets_of
from ..groups import by_hosts, of_same_hosts
from ..one_packet import refuses_one
from ..places import LAST_SWITCH, after, link_of_receiver, may_be_incast, only, tap_of

LATE_SHARE = 0.25
"""Share of the NAKed packets that were only late, from which reordering is the cause: a go-back-N
receiver drops the packets that overtook a late one and NAKs these as well. Loss alone has none."""
RARE = 0.003
"""Upper end of the share of packets that a receiver drops, up to which it is a note if it costs
little time: every host drops a few packets when it starts or is busy."""
FEW = 10
"""Of fewer packets it is a note, whatever they cost: they show no fault that goes on."""


def losses_after(case: Case, known: Known) -> Iterator[Finding]:
    """Packets seen in order at the last tap of their flow that the receiver missed."""
    troubles = case.measuring.troubles
    hit: list[Flow] = []
    for f in sorted({*troubles.flows(LOST_AFTER), *troubles.flows(LATE_AFTER)}):
        seen = _seen(case, f)
        first, last = span_of(seen)
        explained = known.explains("loss", f, first, last)
        unknown = case.flows[f].retransmitted_packets is None
        if explained or unknown or refuses_one(case, f):
            continue
        hit.append(case.flows[f])
    for group in by_hosts(hit):
        late = [flow for flow in group if _late_share(case, [flow]) > LATE_SHARE]
        if late and _late_share(case, group) <= LATE_SHARE:
            late = []  # late packets that the sender retransmits at once look like lost ones
        lost = [flow for flow in group if flow not in late]
        yield from (_finding(case, "loss", part) for part in by_hosts(lost))
        yield from (_finding(case, "reordering", part) for part in by_hosts(late))


def _late_share(case: Case, flows: Iterable[Flow]) -> float:
    """Share of the NAKed packets of these flows that were only late."""
    late = everything = 0
    for flow in flows:
        overtaken = case.measuring.troubles.of(flow.id, LATE_AFTER)
        late += overtaken.packets if overtaken else 0
        everything += sum(trouble.packets for trouble in _seen(case, flow.id))
    return late / everything


def _seen(case: Case, f: int) -> list[Trouble]:
    found = (case.measuring.troubles.of(f, kind) for kind in (LATE_AFTER, LOST_AFTER))
    return [trouble for trouble in found if trouble is not None]


def _hidden(case: Case, flow: Flow) -> bool:
    """Whether packets of the flow may be lost or late between taps without a trace: hops from and
    to a tap with gaps are not judged, also when the flow does not live during a gap."""
    return bool(gaps_in(flow, case.gaps)) or any(tap in case.gaps for tap in flow.taps)


def _finding(case: Case, kind: Kind, group: list[Flow]) -> Finding:
    seen = [trouble for flow in group for trouble in _seen(case, flow.id)]
    could = sum(flow.data_packets for flow in of_same_hosts(case, group))
    packets = sum(trouble.packets for trouble in seen)
    rare = wilson(packets, could)[1] <= RARE
    hidden = case.measuring.many_taps and any(_hidden(case, flow) for flow in group)
    link = only(link_of_receiver(case, flow) or "" for flow in group) or None
    receiver = only(flow.dst for flow in group)
    tap = link or tap_of(case, seen)
    parted = any(seen_in_part(flow) for flow in group)
    if hidden or parted:  # they may be lost, or late, between taps, or on a way without one
        link = tap = None
    if kind == "reordering":
        where = "at the receiver" if hidden or parted else after(case, tap)
        says = f"{packets_of(packets, could)} from {hosts(group)} arrive late {where}"
    elif link:
        who = "the receivers" if receiver is None else printable(receiver)
        says = f"{packets_of(packets, could)} from {hosts(group)} reach their link, but {who} drop"
        says += "s them" if receiver else " them"
    else:
        says = f"{packets_of(packets, could)} from {hosts(group)} are lost or late"
        says += (
            " on their way: gaps in captures hide where"
            if hidden
            else " on their way, in part over paths without a tap"
            if parted
            else f" {after(case, tap)}"
        )
    return finding(
        case,
        kind,
        Place(
            from_tap=tap,
            direction=None if hidden or parted else "after the tap",
            host=receiver,
        ),
        could,
        says,
        "look at the drop counters of the receiving NIC and host"
        if link
        else LAST_SWITCH
        if may_be_incast(group)
        else "capture at the receiver as well: it separates loss from delay, and the network from "
        "the host",
        seen=seen,
        severity="note" if link and rare and (packets < FEW or cheap(group)) else None,
    )
