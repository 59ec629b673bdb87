"""Builds one finding from what a finder knows: victims, cost, severity, share and sentence."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from msgspec import UNSET, UnsetType

from ..measures.troubles import Trouble
from ..results.diagnosis import Affected, Confidence, Evidence, Finding, Kind, Place, Severity
from ..results.flow import Flow
from ..statistics.shares import wilson
from .case import Case, queue_pairs
from .deaths import death_of
from .words import counted, duration, ranks, when

MOST_AFFECTED = 1000
MOST_EVIDENCE = 20
WORTH_A_WARNING = 0.01
MOST_OF_THE_TIME = 0.5
"""Share of their time that queue pairs lose to a critical fault."""


def finding(
    case: Case,
    kind: Kind,
    place: Place,
    of_packets: int,
    says: str,
    next_step: str,
    *,
    hits: Mapping[int, int] | None = None,
    span: tuple[int, int] | None = None,
    confidence: Confidence = "likely",
    evidence: Iterable[Evidence] = (),
    severity: Severity | None = None,
    until_ns: int | UnsetType | None = UNSET,
    costs: bool = True,
    sure_onset: bool = False,
    uncertain_ns: int = 0,
    packets: int | None = None,
    seen: Collection[Trouble] = (),
    details: dict[str, str | int | float] | UnsetType = UNSET,
) -> Finding:
    """A finding of `kind`.

    of_packets: packets that the fault could have hit. says: the sentence without time and victims.
    seen: the hits as the troubles of single flows; they give the evidence and the pace.
    hits: packets that it hit, by flow; default those of `seen`. span: first and last hit in ns;
    default those of `seen`, else the life of the flows. severity: default by victims and cost.
    until_ns: default by the pace of the hits. sure_onset: nothing can have been hit before the
    first hit. uncertain_ns: the onset is at least so uncertain. costs: False for kinds that cost
    the flows no time; True: by `cost_ns`. packets: default the sum of `hits`.
    """
    if hits is None:
        hits = packets_by_flow(seen)
    flows = [case.flows[f] for f in sorted(hits)]
    packets = sum(hits.values()) if packets is None else packets
    if span is None:
        span = span_of(seen) if seen else life_of(case, flows)
    active = interval(case, flows, packets, span, longest_pause_ns(list(seen)))
    first, uncertain = active.from_ns, 0 if sure_onset else active.uncertain_ns
    uncertain = max(uncertain, uncertain_ns)
    if until_ns is UNSET:
        until_ns = active.until_ns
    victims = [victim_of(case, flow) for flow in flows]
    affected = [
        _affected(flow, hits[flow.id], cost_ns(victim) if costs else 0)
        for flow, victim in zip(flows, victims, strict=True)
    ]
    affected.sort(key=lambda a: (-(a.cost_ns or 0), -a.packets, a.flow))
    cost = cost_of(victims) if costs else 0
    low, high = wilson(min(packets, of_packets), of_packets)
    time = when(case, first, until_ns, uncertain)
    return Finding(
        kind=kind,
        severity=severity or severity_of(case, victims, cost),
        place=place,
        from_ns=first,
        until_ns=until_ns,
        onset_uncertainty_ns=uncertain,
        flows=[flow.id for flow in flows],
        affected=affected[:MOST_AFFECTED],
        queue_pairs=queue_pairs(suffering(victims)),
        packets=packets,
        of_packets=of_packets,
        share_percent=100 * packets / of_packets if of_packets else 0.0,
        share_low_percent=100 * low if of_packets else None,
        share_high_percent=100 * high if of_packets else None,
        cost_ns=cost,
        confidence=confidence,
        sentence="; ".join(filter(None, (f"{says}, {time}", sufferers(case, victims, cost)))),
        evidence=sorted(
            (*evidence, *frames(case, seen)), key=lambda e: (e.time_ns, e.tap, e.frame_number)
        )[:MOST_EVIDENCE],
        next_step=next_step,
        details=details,
    )


def severity_of(case: Case, flows: Sequence[Flow], cost: int | None) -> Severity:
    """critical when a queue pair is dead or all together lose most of their time."""
    if any(death_of(case, flow) for flow in flows):
        return "critical"
    different = {flow.id: flow for flow in flows}.values()
    time = sum(flow.last_time_ns - flow.first_time_ns for flow in different)
    return "critical" if cost and cost > MOST_OF_THE_TIME * time else "warning"


def cheap(flows: Iterable[Flow]) -> bool:
    """Whether recovery cost these flows less than a hundredth of their time."""
    flows = list(flows)
    time = sum(flow.last_time_ns - flow.first_time_ns for flow in flows)
    return sum(cost_ns(flow) or 0 for flow in flows) < WORTH_A_WARNING * time


def sufferers(case: Case, flows: Sequence[Flow], cost: int | None) -> str:
    """`8 of 40 QPs lost 3.1 s in total`, and their ranks where logs name them."""
    victims = suffering(flows)
    hit = queue_pairs(victims)
    if not hit:
        return ""
    who = f"{hit:,} of {counted(case.queue_pairs, 'QP')}"
    dead = queue_pairs(flow for flow in victims if death_of(case, flow) is not None)
    if dead:
        text = f"{who}, {dead} of them dead" if dead < hit else f"{who} dead"
    else:
        lost = f"{who} lost {duration(cost)}" if cost else who
        text = f"{lost} in total" if cost and hit > 1 else lost
    return text + ranks(victims)


def suffering(flows: Iterable[Flow]) -> list[Flow]:
    """The flows of queue pairs that suffer: those with more than ACKs and CNPs, each once."""
    return [flow for flow in {flow.id: flow for flow in flows}.values() if flow.data_packets]


def frames(case: Case, troubles: Iterable[Trouble]) -> list[Evidence]:
    """The first frames of these troubles."""
    names = case.registry.tap_names
    return [
        Evidence(names[tap], frame, time, trouble.flow)
        for trouble in troubles
        for time, frame, tap in trouble.frames
    ]


def victim_of(case: Case, flow: Flow) -> Flow:
    """The flow that suffers when packets of `flow` are lost: for answers, the one they answer."""
    peer = case.peers.get(flow.id)
    return flow if flow.data_packets or peer is None else case.flows[peer]


def cost_of(victims: Iterable[Flow]) -> int | None:
    """Time that these flows lost, each counted once; None when it is unknown for all."""
    costs = [cost_ns(flow) for flow in {flow.id: flow for flow in victims}.values()]
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known else None


def _affected(flow: Flow, packets: int, cost: int | None) -> Affected:
    return Affected(
        flow=flow.id,
        src=flow.src,
        dst=flow.dst,
        dest_qp=flow.dest_qp,
        connection=flow.connection,
        owner=flow.owner,
        packets=packets,
        cost_ns=cost,
    )


EXPECTED = 5.0
"""Hits that the traffic before the first hit (after the last) would have had at the pace between
them, from which the fault begins with the first hit (ends with the last). A random fault leaves so
much traffic alone with a probability of exp(-5) = 0.7 %."""
PAUSES = 2
"""This time is also this many times the longest pause between two hits, because hits come in
bursts: a go-back-N receiver sends one NAK for many packets."""
ONSET = 3.0
"""The same for the uncertainty of the onset: exp(-3) = 5 %."""


class Interval(NamedTuple):
    """When a fault was active."""

    from_ns: int
    until_ns: int | None
    """None: still going on at the end of the capture."""
    uncertain_ns: int
    """The onset is at most this much before `from_ns`."""


def interval(
    case: Case, flows: Sequence[Flow], hits: int, span: tuple[int, int], pause_ns: int
) -> Interval:
    """The interval of a fault that hit `flows`.

    span: time of its first and last hit; pause_ns: longest time between two hits.
    """
    first, last = span
    begin = min((flow.first_time_ns for flow in flows), default=first)
    if hits < 2 or last <= first:
        return Interval(first, last, 0)
    between = traffic_bytes(case, flows, first, last)
    pace = (hits - 1) / between if between else 0.0
    before = pace * traffic_bytes(case, flows, begin, first)
    after = pace * traffic_bytes(case, flows, last, case.last_ns)
    uncertain = round(ONSET * (last - first) / (hits - 1))
    if before < EXPECTED or first - begin <= PAUSES * pause_ns:
        uncertain = first - begin
    is_over = after >= EXPECTED and case.last_ns - last > PAUSES * pause_ns
    goes_on = not is_over and _still_sends(case, flows, last)
    return Interval(first, None if goes_on else last, max(0, min(uncertain, first - begin)))


def life_of(case: Case, flows: Sequence[Flow]) -> tuple[int, int]:
    """Time of the first and of the last packet of these flows; without any, of the captures."""
    return (
        min((flow.first_time_ns for flow in flows), default=case.first_ns),
        max((flow.last_time_ns for flow in flows), default=case.last_ns),
    )


def packets_by_flow(troubles: Iterable[Trouble]) -> dict[int, int]:
    """Packets in trouble of each flow."""
    packets: dict[int, int] = {}
    for trouble in troubles:
        packets[trouble.flow] = packets.get(trouble.flow, 0) + trouble.packets
    return packets


def span_of(troubles: Iterable[Trouble]) -> tuple[int, int]:
    """Time of the first and of the last packet of these troubles, at least one."""
    spans = [(trouble.first_ns, trouble.last_ns) for trouble in troubles]
    return min(first for first, _ in spans), max(last for _, last in spans)


def longest_pause_ns(troubles: Sequence[Trouble]) -> int:
    """No two hits in a row of any of these flows are farther apart than this.

    Between two neighbouring first or last hits of flows, a pause is at most that of every flow
    that is hit before and after it.
    """
    first = np.array([trouble.first_ns for trouble in troubles], np.int64)
    last = np.array([trouble.last_ns for trouble in troubles], np.int64)
    pause = np.array([trouble.pause_ns for trouble in troubles], np.int64)
    times = np.unique(np.concatenate([first, last])).tolist()
    longest = 0
    # Differences of Python's integers: wild times are farther apart than int64 holds.
    for start, stop in sorted(pairwise(times), key=lambda two: two[0] - two[1]):
        if stop - start <= longest:
            break
        around = pause[(first <= start) & (last >= stop)]
        longest = max(longest, min([stop - start, *around.tolist()]))
    return longest


def traffic_bytes(case: Case, flows: Sequence[Flow], from_ns: int, until_ns: int) -> float:
    """Wire bytes of `flows` between two times, from the bins of their activity."""
    start, width = case.measuring.activity.start_ns, case.measuring.activity.width_ns
    total = 0.0
    first = max(0, (from_ns - start) // width)
    bins = max((len(flow.activity_bytes) for flow in flows), default=0)
    for at in range(first, min(bins, (until_ns - start) // width + 1)):
        low, high = start + at * width, start + (at + 1) * width
        part = (min(high, until_ns) - max(low, from_ns)) / width
        if part > 0:
            total += part * sum(f.activity_bytes[at] for f in flows if at < len(f.activity_bytes))
    return total


def _still_sends(case: Case, flows: Sequence[Flow], last: int) -> bool:
    """False when the flows ended long before the capture: nobody saw the fault continue."""
    end = max((flow.last_time_ns for flow in flows), default=last)
    return case.last_ns - end <= (case.last_ns - case.first_ns) / 20


def cost_ns(flow: Flow) -> int | None:
    """Time the flow lost to retransmission and silence; None where the capture does not show it.

    The sum of all waits of its recovery: from a gap to its NAK, from a NAK to the retransmission,
    and silence before a retransmission without a NAK (timeout). They follow one another, so the sum
    is a time; at most the flow's duration. The time that retransmitted packets take on the wire is
    not in it.
    """
    if flow.retransmitted_packets is None:
        return None
    r = flow.recovery
    waits = [
        wait for wait in (r.gap_to_nak_ns, r.nak_to_resend_ns, r.timeout_ns) if wait is not None
    ]
    lost = sum(wait.count * wait.mean for wait in waits)
    return min(round(lost), flow.last_time_ns - flow.first_time_ns)
