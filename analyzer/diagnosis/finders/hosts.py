"""Faults of queue pairs and hosts: refusals, silence, timeouts, retries, odd traffic classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np

from ...decode.control import GENERAL_SERVICES_QP
from ...measures.troubles import (
    ACKED_AGAIN,
    FATAL_SENT,
    LOST_AFTER,
    RESENT,
    RESENT_AFTER_ACK,
    RNR_SENT,
    Trouble,
)
from ...results.diagnosis import Finding, Kind, Place, Severity
from ...results.flow import Flow
from ...summary.trust import gaps_in
from ...wire.packets import FULL_HOP_LIMITS
from ...words import printable
from ..case import Case, seen_in_part
from ..finding import (
    Death,
    after,
    answered_elsewhere,
    before,
    by_any_host,
    by_hosts,
    cheap,
    counted,
    death_of,
    duration,
    finding,
    flow_name,
    hosts,
    only,
    packets_of,
)
from ..known import DISORDER, LOSSES, REFUSALS, SLOWNESS, Finder, Known

STALL_CAUSES: Final[tuple[Kind, ...]] = (*LOSSES, *REFUSALS)
TIMEOUT_CAUSES: Final[tuple[Kind, ...]] = (*STALL_CAUSES, *DISORDER, "stalled", "pause", *SLOWNESS)
RETRY_CAUSES: Final[tuple[Kind, ...]] = (*TIMEOUT_CAUSES, "timeout-recovery")
"""Kinds of causes that explain such an effect in the same flows at the same time."""

_STEPS = {
    "invalid request": "compare opcode, length and limits of the request with the queue pair's",
    "remote access error": "check rkey, address range and access flags that the peers exchanged",
    "remote operational error": "look for the local error in the responder's log",
}


def fatal_naks(case: Case, known: Known) -> Iterator[Finding]:
    """One finding per responder and NAK code; the requester's queue pair goes to the error state
    (InfiniBand Architecture Specification, volume 1, 9.9.2)."""
    groups: dict[tuple[str, str], dict[int, Trouble]] = {}
    for f, trouble in case.measuring.troubles.by_flow(FATAL_SENT).items():
        groups.setdefault((case.flows[f].src, _code(case, f)), {})[f] = trouble
    for (host, code), naks in groups.items():
        hits = {case.peers.get(f, f): trouble.packets for f, trouble in naks.items()}
        total = sum(hits.values())
        dead = any(death_of(case, case.flows[f]) for f in hits)
        severity: Severity = "critical" if dead else "warning"
        yield finding(
            case,
            "fatal-nak",
            Place(host=host),
            max(total, sum(case.flows[f].request_packets for f in hits)),
            f"{printable(host)} refuses requests: {counted(total, 'NAK')} {code}",
            _STEPS.get(code, "look up the NAK code of the responder"),
            hits=hits,
            confidence="proven",
            seen=naks.values(),
            severity=severity,
        )


def _code(case: Case, carrier: int) -> str:
    """Names of the NAK codes that the carrier's peer received, PSN sequence errors left out."""
    peer = case.peers.get(carrier)
    if peer is None:
        return "of a fatal code"
    codes = [
        code for code in (case.flows[peer].recovery.naks or ()) if code != "PSN sequence error"
    ]
    return ", ".join(codes) or "of a fatal code"


def receivers_not_ready(case: Case, known: Known) -> Iterator[Finding]:
    """One finding per host that sends RNR NAKs; a network fault never causes one."""
    by_host: dict[str, dict[int, Trouble]] = {}
    for f, trouble in case.measuring.troubles.by_flow(RNR_SENT).items():
        by_host.setdefault(case.flows[f].src, {})[f] = trouble
    for host, naks in by_host.items():
        hits = {case.peers.get(f, f): trouble.packets for f, trouble in naks.items()}
        total = sum(hits.values())
        yield finding(
            case,
            "receiver-not-ready",
            Place(host=host),
            max(total, sum(case.flows[f].request_packets for f in hits)),
            f"{printable(host)} is not ready to receive: {counted(total, 'RNR NAK')}",
            f"post more receive buffers on {printable(host)}, or earlier; raise its min RNR timer",
            hits=hits,
            confidence="proven",
            seen=naks.values(),
        )


MOST_TAPS = 4
"""Taps that a sentence names."""


def stalled(case: Case, known: Known) -> Iterator[Finding]:
    """Senders that retransmit without an answer, or fell silent after an unanswered request."""
    dead: dict[int, Death] = {}
    for flow in case.flows:
        death = death_of(case, flow)
        if death is None or death.why == "refused":
            continue
        span = death.since_ns, case.last_ns
        explained = known.explains(STALL_CAUSES, flow.id, *span) or known.cut_off(flow.src, *span)
        if not explained and not known.way_explains(_taps_of(case, flow), {flow.dst}, *span):
            dead[flow.id] = death
    near = _near_the_taps(case) if dead else set()
    for group in by_hosts(case.flows[f] for f in dead):
        yield _stall(case, group, {flow.id: dead[flow.id] for flow in group}, near)


def _stall(case: Case, group: list[Flow], dead: dict[int, Death], near: set[str]) -> Finding:
    hits = {f: death.packets for f, death in dead.items()}
    since = min(death.since_ns for death in dead.values())
    resends = any(death.why == "unanswered" for death in dead.values())
    who = flow_name(group[0]) if len(group) == 1 else f"{len(group)} flows from {hosts(group)}"
    verb = "retransmit" if len(group) > 1 else "retransmits"
    what = f"{verb} without an answer" if resends else "wait for an answer that is never seen"
    sources, receivers = {flow.src for flow in group}, {flow.dst for flow in group}
    step = "check that the receiver's queue pair exists and answers; capture on the way to it"
    hidden = case.measuring.many_taps and near.isdisjoint(receivers)
    taps = _last_taps(case, dead) if hidden else []
    names = case.registry.tap_names
    tap = names[taps[0]] if len(taps) == 1 else None
    if not case.measuring.many_taps:
        tap = only(tap for flow in group for tap in flow.taps)
    if hidden:
        short = [] if case.tap_hops is None else case.tap_hops.names
        last = ", ".join(sorted(printable(short[number]) for number in taps)[:MOST_TAPS])
        last += f" and {len(taps) - MOST_TAPS} more" if len(taps) > MOST_TAPS else ""
        seen = f", never seen after {last}" if last else ""
        what += f"{seen}: the receiver is dead, or packets are lost between it and the last tap"
        step = "capture on the link of the receiver; check that its queue pair exists and answers"
        step += "; --fabric FILE may show the next tap" if last else ""
    return finding(
        case,
        "stalled",
        Place(
            from_tap=tap,
            direction="after the tap" if tap or taps else None,
            host=next(iter(receivers)) if len(receivers) == 1 else next(iter(sources)),
            dest_qp=group[0].dest_qp if len(group) == 1 else None,
        ),
        sum(flow.request_packets for flow in group),
        f"{who} {what}",
        step,
        hits=hits,
        span=(since, max(since, *(flow.last_time_ns for flow in group))),
        confidence="likely" if resends and not hidden else "possible",
        seen=case.measuring.troubles.by_flow(RESENT, hits).values(),
        severity="critical",
        until_ns=None,
    )


def _last_taps(case: Case, dead: dict[int, Death]) -> list[int]:
    """The taps after which no tap saw the packets without an answer."""
    if case.tap_hops is None:
        return []
    ended = case.tap_hops.ended
    ended = ended[np.isin(ended["flow"], list(dead))]
    since = np.array([dead[flow].since_ns for flow in ended["flow"].tolist()], np.int64)
    return np.unique(ended["tap"][ended["last_ns"] >= since]).tolist()


def _taps_of(case: Case, flow: Flow) -> set[str]:
    """The taps that see a flow or its answers."""
    peer = case.peers.get(flow.id)
    return {*flow.taps, *(() if peer is None else case.flows[peer].taps)}


def _near_the_taps(case: Case) -> set[str]:
    """Hosts with a packet that a tap sees before any router forwards it."""
    return {flow.src for flow in case.flows if not _was_forwarded(case, flow)}


def _was_forwarded(case: Case, flow: Flow) -> bool:
    """Whether a router forwards the packets of a flow before a tap sees them."""
    limit = int(case.measuring.troubles.progress(flow.id)["hop_limit"])
    return limit not in (0, *FULL_HOP_LIMITS)


SPURIOUS_SHARE = 0.5
"""Share of the retransmitted packets acknowledged twice, from which only ACKs were missed."""


def timeout_recoveries(case: Case, known: Known) -> Iterator[Finding]:
    """Flows whose sender waited for a timeout: tail loss, lost ACKs, or late answers."""
    ways = {}
    for flow in case.flows:
        resent = case.measuring.troubles.of(flow.id, RESENT)
        if resent is None or not timeouts_of(flow):
            continue
        span = resent.first_ns, resent.last_ns
        if _is_effect(case, known, TIMEOUT_CAUSES, flow, span):
            continue
        way = _way(case, flow)
        if not known.loses_at(*way, *span):
            ways[flow.id] = way
    for group, way in _by_place(case, ways):
        yield _timeout_recovery(case, group, way)


def _is_effect(
    case: Case, known: Known, causes: tuple[Kind, ...], flow: Flow, span: tuple[int, int]
) -> bool:
    """Whether a known fault explains why a sender waited, and went back, between these times."""
    ends, taps = {flow.src, flow.dst}, _taps_of(case, flow)
    return (
        known.explains(causes, flow.id, *span)
        or known.host_explains(ends, *span)
        or known.loses_answers(flow, *span)
        or known.way_explains(taps, ends, *span)
        or known.queue_explains(taps, *span)
    )


class _Way(NamedTuple):
    """Where packets, or their ACKs, vanish on the way from a sender to a receiver and back."""

    after: str | None
    """The last tap that saw them."""
    before: str | None
    """The next tap on the way, which did not: that of the ACKs."""


def _by_place(case: Case, ways: Mapping[int, _Way]) -> Iterator[tuple[list[Flow], _Way]]:
    """Groups of flows with a common host, and the taps before and after the place where all their
    packets or ACKs may vanish; those with the same taps are one group. Of flows that share one of
    the two taps only, the fault is there; without any it is unknown."""
    groups: dict[_Way, list[list[Flow]]] = {}
    for group in by_any_host(case.flows[f] for f in ways):
        last = only(ways[flow.id].after or "" for flow in group) or None
        following = only(ways[flow.id].before or "" for flow in group) or None
        way = _Way(last, None if last else following)
        groups.setdefault(way, []).append(group)
    for way, parts in groups.items():
        if way == _Way(None, None):
            yield from ((group, way) for group in parts)
        else:
            yield [flow for group in parts for flow in group], way


def _way(case: Case, flow: Flow) -> _Way:
    """None where gaps or ways without a tap hide it, and where no tap sees the answers, and the
    sender may go back to what it sent on another way, before the tap saw the flow. Where it went
    back although no packet that a tap saw asked for an ACK, the one that did was lost before: in
    the network, if the first tap is not at the sender. At one tap alone it may have taken another
    way."""
    peer = case.peers.get(flow.id)
    both = flow if peer is None else case.flows[peer]
    hidden = any(gaps_in(one, case.gaps) or seen_in_part(one) for one in (flow, both))
    unheard = peer is None and not answered_elsewhere(case, flow)
    if hidden or unheard:
        return _Way(None, None)
    if case.measuring.troubles.progress(flow.id)["unasked"]:
        if case.tap_hops is None or not _was_forwarded(case, flow):
            return _Way(None, None)
        first = case.tap_hops.first_taps().get(flow.id)
        return _Way(None, None if first is None else case.registry.tap_names[first])
    seen = both if _have_arrived(case, [flow]) else flow
    if case.tap_hops is None:
        return _Way(only(seen.taps), None)
    names = case.registry.tap_names
    last = case.tap_hops.last_taps().get(seen.id)
    heard = None if seen is both else case.tap_hops.first_taps().get(both.id)
    return _Way(*(None if tap is None else names[tap] for tap in (last, heard)))


def _have_arrived(case: Case, group: list[Flow]) -> bool:
    """Whether the receivers had most of the retransmitted packets: they acknowledge them again, or
    their ACKs passed the tap before."""
    troubles = case.measuring.troubles
    twice, late = (
        sum(trouble.packets for flow in group if (trouble := troubles.of(flow.id, kind)))
        for kind in (ACKED_AGAIN, RESENT_AFTER_ACK)
    )
    packets = sum(map(timeouts_of, group))
    return twice >= SPURIOUS_SHARE * packets or late >= SPURIOUS_SHARE * _timeouts(group)


def _timeouts(group: list[Flow]) -> int:
    """How often the senders waited for a timeout."""
    return sum(flow.recovery.timeout_ns.count for flow in group if flow.recovery.timeout_ns)


def timeouts_of(flow: Flow) -> int:
    """Packets that the flow retransmitted after a timeout."""
    return (flow.recovery.retransmitted_by or {}).get("timeout", 0)


def _timeout_recovery(case: Case, group: list[Flow], place: _Way) -> Finding:
    troubles, tap = case.measuring.troubles, place.after
    hits = {flow.id: timeouts_of(flow) for flow in group}
    resent = [trouble for flow in group if (trouble := troubles.of(flow.id, RESENT))]
    could = sum(flow.request_packets for flow in group)
    packets = sum(hits.values())
    waits = [flow.recovery.timeout_ns for flow in group if flow.recovery.timeout_ns]
    longest = max((wait.max for wait in waits), default=0.0)
    arrived = _have_arrived(case, group)
    after_ack = sum(t.packets for flow in group if (t := troubles.of(flow.id, RESENT_AFTER_ACK)))
    late = arrived and after_ack < SPURIOUS_SHARE * _timeouts(group)
    answers = [case.flows[peer] for f in group if (peer := case.peers.get(f.id)) is not None]
    in_gaps = any(gaps_in(flow, case.gaps) for flow in (*group, *answers))
    one_way = len({(flow.src, flow.dst) for flow in group}) == 1
    way = f"from {hosts(group)}" if one_way else f"between {printable(_between(group))}"
    lost_at = before(case, place.before) if place.before else after(case, tap)
    why = (
        "the ACKs arrived late"
        if late
        else f"the ACKs were late or lost {lost_at}"
        if arrived
        else "no NAK was captured"
        if in_gaps
        else f"no NAK came; they or their ACKs are lost {lost_at}"
        if place != _Way(None, None) and case.measuring.many_taps
        else "no NAK came"
    )
    says = f"wait for timeouts (up to {duration(longest)}): {why}"
    ends = {host for flow in group for host in (flow.src, flow.dst)}
    far = sorted(ends - _near_the_taps(case))
    step = "look for loss of last packets or of ACKs"
    if not case.measuring.many_taps:
        step += "; a capture at the other host shows where"
    elif far:
        more = f" and {len(far) - 1} more" if len(far) > 1 else ""
        step += f"; a capture on the link of {printable(far[0])}{more} shows where"
    else:
        step += " in these hosts, their NICs and between the taps and them"
    unseen = all(answered_elsewhere(case, flow) for flow in group)
    if unseen:
        says = f"are retransmitted: lost or late {lost_at}; their answers are seen at no tap"
        step = "capture the paths of the answers as well, and the links after this one"
    end = only((flow.src if arrived else flow.dst) for flow in group)
    at_end = tap is not None and case.measuring.many_taps and end not in far
    host = only(flow.dst for flow in group) if late else end if at_end else _shared_host(group)
    return finding(
        case,
        "timeout-recovery",
        Place(
            from_tap=tap,
            to_tap=place.before,
            direction="after the tap" if tap else f"between {_between(group)}",
            host=host,
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
    shared = _shared_host(group)
    return f"{len(names)} hosts" if shared is None else f"{shared} and {len(names) - 1} hosts"


def _shared_host(group: list[Flow]) -> str | None:
    """The one host of all these flows."""
    hosts = frozenset.intersection(*(frozenset((flow.src, flow.dst)) for flow in group))
    return next(iter(hosts)) if len(hosts) == 1 else None


ROUNDS = 4
"""Rewinds to one PSN in a row: with 1 % random loss a packet is lost four times in a row once in
100,000,000 packets."""
MOSTLY_ONE = 0.9
"""Share of the NAKed packets that are this one, from which they are not lost at random."""


def rounds_of(case: Case, f: int) -> int:
    """The most rewinds of a flow to one PSN in a row."""
    return int(case.measuring.troubles.progress(f)["max_rounds"])


def refuses_one(case: Case, f: int) -> bool:
    """Whether the NAKs for packets that the tap saw in order are nearly all for one packet, to
    which the sender goes back again and again."""
    lost = case.measuring.troubles.of(f, LOST_AFTER)
    naked = int(case.measuring.troubles.progress(f)["max_rounds_naked"])
    return lost is not None and rounds_of(case, f) >= ROUNDS and naked >= MOSTLY_ONE * lost.packets


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
        if not _is_effect(case, known, RETRY_CAUSES, flow, span):
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


AGREEMENT = 0.75
"""Least share of the flows in one class for the others to be exceptions. Traffic that mixes classes
evenly does so on purpose."""


def traffic_classes(case: Case, known: Known) -> Iterator[Finding]:
    """Few flows with another DSCP than all others, or not ECN-capable beside flows that are.

    A warning where their hosts use the usual class too: queue pairs of one job belong in one class.
    Otherwise a note: jobs may differ.
    """
    data = [f for f in case.flows if f.payload_bytes and f.dest_qp != GENERAL_SERVICES_QP]
    dscp = {flow.id: case.measuring.congestion.usual_dscp(flow.id) for flow in data}
    usual, odd = _exceptions(data, lambda flow: dscp[flow.id])
    for value in sorted({dscp[flow.id] for flow in odd} - {None}, key=str):
        flows = [flow for flow in odd if dscp[flow.id] == value]
        says = f"{counted(len(flows), 'flow')} with DSCP {value}, where {usual} is usual"
        yield _class_mismatch(case, data, flows, says)
    capable, deaf = _exceptions(data, lambda flow: flow.congestion.ecn_capable_packets > 0)
    if deaf and capable:
        yield _class_mismatch(
            case, data, deaf, f"{counted(len(deaf), 'flow')} not ECN-capable, others are"
        )


def _exceptions(data: list[Flow], key: Callable[[Flow], object]) -> tuple[object, list[Flow]]:
    """The usual value and the flows with another one, when these are few."""
    counts = Counter(key(flow) for flow in data)
    if not counts:
        return None, []
    usual, agree = counts.most_common(1)[0]
    odd = [flow for flow in data if key(flow) != usual]
    return usual, odd if agree >= AGREEMENT * len(data) else []


def _class_mismatch(case: Case, data: list[Flow], odd: list[Flow], says: str) -> Finding:
    ids = {flow.id for flow in odd}
    pairs = {frozenset((flow.src, flow.dst)) for flow in odd}
    usual = {frozenset((flow.src, flow.dst)) for flow in data if flow.id not in ids}
    pair = sorted(next(iter(pairs))) if len(pairs) == 1 else []
    where = f" between {' and '.join(map(printable, pair))}" if pair else ""
    return finding(
        case,
        "dscp-mismatch",
        Place(
            direction=f"between {' and '.join(pair)}" if pair else None,
            host=only(flow.src for flow in odd),
        ),
        sum(flow.packets for flow in data),
        f"{says}{where}",
        "set the same traffic class and ECN on all queue pairs of the job",
        hits={flow.id: flow.packets for flow in odd},
        confidence="proven",
        severity="warning" if pairs & usual else "note",
        costs=False,
    )


FINDERS = (
    Finder(fatal_naks, ("fatal-nak",)),
    Finder(receivers_not_ready, ("receiver-not-ready",)),
    Finder(stalled, ("stalled",), STALL_CAUSES, after=("losses_after",)),
    Finder(timeout_recoveries, ("timeout-recovery",), TIMEOUT_CAUSES, after=("stalled",)),
    Finder(retry_storms, ("retry-storm",), RETRY_CAUSES, after=("timeout_recoveries",)),
    Finder(traffic_classes, ("dscp-mismatch",)),
)
