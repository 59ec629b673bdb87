"""Builds one finding: its words, its place, its victims and what they cost."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from msgspec import UNSET, UnsetType

from .. import words
from ..measures.troubles import FATAL_SENT, NAK_SENT, Trouble
from ..results.diagnosis import Affected, Confidence, Evidence, Finding, Kind, Place, Severity
from ..results.flow import Flow
from ..statistics.shares import wilson
from ..wire.bth import PSN_HALF, PSN_MASK
from ..wire.packets import FULL_HOP_LIMITS
from ..words import printable
from .case import Case, queue_pairs, seen_in_part

# How findings write numbers, times and names.


def number(value: int) -> str:
    """`7,904`."""
    return f"{value:,}"


def counted(value: int, noun: str) -> str:
    """`1 flow`, `1,200 flows`."""
    return f"{value:,} {words.noun(value, noun)}"


def percent(share: float) -> str:
    """A share of 1: `0.9 %`; two digits that count below 1 %."""
    value = 100 * share
    if value in (0, 100):
        return f"{value:.0f} %"
    if value >= 99.95:
        return ">99.9 %"
    return f"{value:.1f} %" if value >= 0.95 else f"{value:.2g} %" if value >= 1e-4 else "<0.0001 %"


def packets_of(hits: int, of: int) -> str:
    """`0.9 % of the packets (71 of 7,904)`; `3 of 10,000 packets` when few."""
    if hits < 10 or of <= 0:
        return f"{hits:,} of {counted(of, 'packet')}"
    return f"{percent(hits / of)} of the packets ({hits:,} of {of:,})"


def duration(ns: float) -> str:
    """`1.2 s`, `310 ms`, `12 us`, `850 ns`."""
    return words.short(words.duration(ns))


def rate(bits_per_second: float) -> str:
    """`9.8 Gb/s`, `312 Mb/s`."""
    return words.short(words.scaled(bits_per_second, "b/s"))


def moment(case: Case, ns: int) -> str:
    """Time since the first packet, to about a thousandth of the capture: `1.2 s`, `0.950 s`."""
    since, duration_ns = max(0, ns - case.first_ns), case.last_ns - case.first_ns
    for least, scale, unit, digits in _MOMENTS:
        if duration_ns >= least:
            return f"{since / scale:.{digits}f} {unit}"
    return f"{since} ns"


_MOMENTS = ((1e10, 1e9, "s", 1), (1e8, 1e9, "s", 3), (1e7, 1e6, "ms", 1), (1e4, 1e3, "us", 0))
"""Shortest capture, unit in ns, its name, digits."""


def when(case: Case, from_ns: int, until_ns: int | None, uncertain_ns: int = 0) -> str:
    """`all the time`, `from 1.2 s to the end`, `at 1.2 s`, `from 1.2 s to 1.9 s`."""
    from_start = from_ns - uncertain_ns <= case.first_ns
    if until_ns is None:
        return "all the time" if from_start else f"from {moment(case, from_ns)} to the end"
    begin, end = moment(case, from_ns), moment(case, until_ns)
    if begin == end:
        return f"at {begin}"
    return f"until {end}" if from_start else f"from {begin} to {end}"


def flow_name(flow: Flow) -> str:
    """`10.0.0.1 to 10.0.0.2 QP 0x000022`."""
    return f"{printable(flow.src)} to {printable(flow.dst)} QP 0x{flow.dest_qp:06x}"


def ranks(flows: Collection[Flow]) -> str:
    """` (rank 11 to rank 3)`, ` (ranks 11 to 3, 3 to 7)`; empty where logs name no pair."""
    pairs = sorted(
        {
            (sender, receiver)
            for flow in flows
            if flow.owner is not None
            for sender, receiver in (flow.owner.ranks,)
            if sender is not None and receiver is not None
        }
    )
    if not pairs:
        return ""
    if len(pairs) == 1:
        return f" (rank {pairs[0][0]} to rank {pairs[0][1]})"
    listed = ", ".join(f"{sender} to {receiver}" for sender, receiver in pairs[:_RANKS_NAMED])
    more = len(pairs) - _RANKS_NAMED
    return f" (ranks {listed}{f' and {more:,} more' if more > 0 else ''})"


def hosts(flows: Sequence[Flow]) -> str:
    """`10.0.0.1 to 10.0.0.2`, `3 hosts to 10.0.0.2`: the way of these flows."""
    return f"{_some({f.src for f in flows})} to {_some({f.dst for f in flows})}"


_RANKS_NAMED = 3


def _some(names: Collection[str]) -> str:
    return printable(next(iter(names))) if len(names) == 1 else f"{len(names)} hosts"


# Flows that share a fault, and words for the place of a finding that one tap shows.


def by_hosts(flows: Iterable[Flow]) -> list[list[Flow]]:
    """Groups of flows joined by a common source or a common destination.

    One fault before or after a tap hits what one host sends or what one host receives; flows of
    both directions between two hosts are never one group.
    """
    return _joined(flows, lambda flow: (("from", flow.src), ("to", flow.dst)))


def by_any_host(flows: Iterable[Flow]) -> list[list[Flow]]:
    """Groups of flows joined by a common host, whatever the direction."""
    return _joined(flows, lambda flow: (("host", flow.src), ("host", flow.dst)))


_Node = tuple[str, str]


def _joined(flows: Iterable[Flow], ends: Callable[[Flow], tuple[_Node, _Node]]) -> list[list[Flow]]:
    """The connected components, in order of their first flow."""
    parent: dict[_Node, _Node] = {}

    def root(node: _Node) -> _Node:
        while parent.setdefault(node, node) != node:
            node = parent[node]
        return node

    flows = list(flows)
    for flow in flows:
        one, other = ends(flow)
        parent[root(one)] = root(other)
    groups: dict[_Node, list[Flow]] = {}
    for flow in flows:
        groups.setdefault(root(ends(flow)[0]), []).append(flow)
    return list(groups.values())


def of_same_hosts(case: Case, group: Iterable[Flow]) -> list[Flow]:
    """All flows with the sources and destinations of a group, hit or not."""
    host_pairs = {(flow.src, flow.dst) for flow in group}
    return [flow for flow in case.flows if (flow.src, flow.dst) in host_pairs]


def only(values: Iterable[str]) -> str | None:
    """The value, if there is just one."""
    different = set(values)
    return next(iter(different)) if len(different) == 1 else None


def tap_of(case: Case, troubles: Iterable[Trouble]) -> str | None:
    """The tap that saw all of these packets first, if it is one."""
    names = case.registry.tap_names
    return only(names[tap] for trouble in troubles for _, _, tap in trouble.frames)


def before(case: Case, tap: str | None) -> str:
    """`before the tap`, `before leaf1-spine1`, `before the first tap`."""
    return f"before {called(case, tap, 'first')}"


def after(case: Case, tap: str | None) -> str:
    """`after the tap`, `after leaf1-spine1`, `after the last tap`."""
    return f"after {called(case, tap, 'last')}"


INCAST_SOURCES = 3
"""Loss from this many hosts on the way to one host may be an egress that they overload."""


LAST_SWITCH = (
    "check the last switch: an egress that these hosts overload (incast) or a bad link; taps "
    "before and after it show which"
)
"""The next step where it may be one."""


def may_be_incast(flows: Iterable[Flow]) -> bool:
    """Whether several hosts send these flows to one."""
    flows = list(flows)
    return len({f.src for f in flows}) >= INCAST_SOURCES and len({f.dst for f in flows}) == 1


def called(case: Case, tap: str | None, which: str) -> str:
    """The short name of a tap; `the tap` if there is one, `the first tap` if it is not known."""
    if not case.measuring.many_taps:
        return "the tap"
    if tap is None:
        return f"the {which} tap"
    short = [] if case.tap_hops is None else case.tap_hops.names
    return printable(short[case.registry.tap_names.index(tap)] if short else tap)


def link_of_receiver(case: Case, flow: Flow) -> str | None:
    """The tap on the link of the flow's receiver, which the packets of `flow` pass last.

    The receiver's NAKs come there first, with a hop limit that no router has lowered. None where
    that is not known, and where one tap sees the packets or the NAKs, unless a router has lowered
    the hop limit of the packets: without a router every tap looks like this.
    """
    peer = case.peers.get(flow.id)
    if peer is None or not case.measuring.many_taps:
        return None
    troubles = case.measuring.troubles
    naks = troubles.of(peer, NAK_SENT)
    if naks is None or int(troubles.progress(peer)["hop_limit"]) not in FULL_HOP_LIMITS:
        return None
    alone = len(flow.taps) == 1 or len(case.flows[peer].taps) == 1
    if alone and int(troubles.progress(flow.id)["hop_limit"]) in FULL_HOP_LIMITS:
        return None
    tap = tap_of(case, [naks])
    if tap not in flow.taps or (case.tap_hops is not None and _is_after_a_router(case, peer, tap)):
        return None
    return tap


def _is_after_a_router(case: Case, flow: int, tap: str) -> bool:
    """Whether a flow comes to a tap with a lower hop limit than to another one: what captured
    before this tap has ended."""
    assert case.tap_hops is not None
    arrived = case.tap_hops.arrived
    of_flow = arrived[arrived["flow"] == flow]
    at_tap = of_flow["limit"][of_flow["tap"] == case.registry.tap_names.index(tap)]
    return bool(len(at_tap) and at_tap.max() < of_flow["limit"].max())


# Queue pairs that are dead: refused permanently, or without any answer until the end.

ROUNDS = 3
"""Rewinds to one PSN without an answer that prove death. With a loss of 1 % on both ways, three in
a row at the end of a capture happen to one queue pair in 100,000."""
SILENCE_NS = 500_000_000
"""Time without an answer after which two rewinds are enough; four times as long, one. ACK timeouts
of NICs are below this at their usual settings (4.096 us * 2^14 = 67 ms)."""
QUEUE_FACTOR = 2
"""The silence is also this many times the longest wait on a hop that the requests or their answers
pass: packets at the end of a growing queue wait longer than all that left it."""
SILENCE_FACTOR = 4
"""The silence is also this much longer than any gap that the flow survived."""


class Death(NamedTuple):
    """How a queue pair ended."""

    why: Literal["refused", "unanswered", "silent"]
    since_ns: int
    """The first request for an ACK after the last answer, or that answer."""
    packets: int
    """Retransmissions without an answer; 1 for a refused request."""


def death_of(case: Case, flow: Flow) -> Death | None:
    """How the sender of `flow` ended; None while it lives or the capture cannot tell."""
    death = _death_as_seen(case, flow)
    return None if death is None or _is_hidden(case, flow, death) else death


def may_be_answered(case: Case, flow: Flow) -> bool:
    """Whether the sender gets no answer at the taps, and answers may take paths without a tap."""
    death = _death_as_seen(case, flow)
    return death is not None and _is_hidden(case, flow, death)


def _is_hidden(case: Case, flow: Flow, death: Death) -> bool:
    return death.why != "refused" and (
        seen_in_part(flow)
        or flow.dst in case.partly_seen
        or answered_elsewhere(case, flow)
        or _answered_in_a_gap(case, flow, death.since_ns)
    )


def _answered_in_a_gap(case: Case, flow: Flow, since_ns: int) -> bool:
    """Whether the capture of a tap of the connection has a gap after this time."""
    peer = case.peers.get(flow.id)
    taps = {*flow.taps, *(() if peer is None else case.flows[peer].taps)}
    ends = [gap.until_ns for tap in taps for gap in case.gaps.get(tap, ())]
    return any(until_ns is None or until_ns >= since_ns for until_ns in ends)


def answered_elsewhere(case: Case, flow: Flow) -> bool:
    """Whether the sender went back to a packet after its first one and no tap saw any answer: what
    it did not go back to was acknowledged. Not so if answers that are too few to be paired name its
    packets, or if it goes back there again and again and they may be its own."""
    progress = case.measuring.troubles.progress(flow.id)
    ahead = int(progress["base_psn"]) - int(progress["first_psn"]) & PSN_MASK
    if not progress["rounds"] or progress["answer_time"] or not 0 < ahead < PSN_HALF:
        return False
    if flow.id in case.likely_peers or case.has_unknown_answers(flow):
        return False
    return bool(progress["rounds"] < ROUNDS) or not case.unpaired_answers(flow)


def _death_as_seen(case: Case, flow: Flow) -> Death | None:
    troubles, progress = case.measuring.troubles, case.measuring.troubles.progress(flow.id)
    if flow.retransmitted_packets is None or not flow.request_packets:
        return None
    peer = case.peers.get(flow.id)
    refusal = None if peer is None else troubles.of(peer, FATAL_SENT)
    new_ns = int(progress["new_time"])
    if refusal is not None and new_ns <= refusal.last_ns:
        return Death("refused", refusal.first_ns, 1)
    resent, rounds = int(progress["resent_unanswered"]), int(progress["rounds_unanswered"])
    answer_ns, asked_ns = int(progress["answer_time"]), int(progress["asked_time"])
    resent_ns = int(progress["resent_unanswered_time"])
    if case.has_unknown_answers(flow) and (progress["rounds"] < ROUNDS or new_ns > resent_ns):
        return None
    since = max(asked_ns, answer_ns) if answer_ns else min(new_ns or resent_ns, resent_ns)
    # Where answers pass the tap, new packets after a request for an ACK show none.
    owed_ns = min(asked_ns, new_ns) if asked_ns > answer_ns > 0 else new_ns
    # The taps of the flow and of its answers must capture for the whole silence.
    last_ns = case.heard_until_ns(flow.id, peer)
    silent = last_ns - max(owed_ns, answer_ns)
    waits = case.longest_waits
    queued = max(waits.get(flow.id, 0), 0 if peer is None else waits.get(peer, 0))
    if last_ns - since < QUEUE_FACTOR * queued:
        return None
    if resent:
        # Where no answer was ever seen, the tap may see one direction only: then new packets show
        # that the sender got one.
        answered_here = (flow.dst, flow.src) in case.hosts_seen
        heard = answer_ns > 0 or resent_ns >= new_ns or answered_here
        patience = SILENCE_NS if rounds > 1 else 4 * SILENCE_NS
        if answer_ns > 0 and resent_ns - answer_ns <= case.clocks_apart_ns(flow.id, peer):
            return None  # perhaps the answer to this retransmission
        if heard and (rounds >= ROUNDS or silent >= patience):
            return Death("unanswered", since, resent)
        return None
    if peer is None or not progress["acked"] or asked_ns <= answer_ns:
        return None
    outstanding = (int(progress["run_next"]) - 1 - int(progress["ack_psn"])) & 0xFFFFFF
    silent = last_ns - flow.last_time_ns
    patience = max(2 * SILENCE_NS, SILENCE_FACTOR * flow.idle_gaps.max_ns)
    if progress["run_known"] and 0 < outstanding < 1 << 23 and silent >= patience:
        return Death("silent", since, outstanding)
    return None


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
