"""Queues on a hop, and reordering by slow paths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ....results.diagnosis import Finding
from ....wire.opcodes import MRC, TRANSPORT_NAMES
from ....words import printable
from ...case import Case
from ...finding import finding
from ...known import P99_NS, Known
from ...pausing import made_by, spans_at
from ...words import counted, duration, packets_of
from .captures import moving_clocks
from .groups import HopGroup, groups, hits_by_flow, shown

QUEUE_NS = 200_000
"""A hop queues if its p99 delay above the minimum is at least this, and `QUEUE_FACTOR` times that
of the median hop: what slows every hop is the machines, or the clocks."""
QUEUE_FACTOR = 10
LEAST_PACKETS = 100
BURST_SHARE = 0.1
"""A queue of the same flows, shorter than this share of another, holds what that one released."""
SLOW_SHARE = 0.6
"""A path that carries this share of the late packets is the slow one."""


def long_delays(case: Case) -> dict[tuple[int, int], float]:
    """By taps of a hop, the p99 of its delay above the minimum, ns, where clocks let it be
    known."""
    if case.ways is None:
        return {}
    moving = moving_clocks(case, QUEUE_NS)
    return {
        (way.from_tap, way.to_tap): hop.queueing_ns.p99
        for way, hop in zip(case.ways.hops, case.hops, strict=True)
        if hop.queueing_ns is not None
        and hop.queueing_ns.count >= LEAST_PACKETS
        and not moving & {hop.from_tap, hop.to_tap}
    }


def queue_limit(p99: Mapping[tuple[int, int], float]) -> float:
    """The delay above the minimum, ns, from which a packet waits in a queue."""
    return max(QUEUE_NS, QUEUE_FACTOR * float(np.median(list(p99.values()))))


def hop_queues(case: Case, known: Known) -> Iterator[Finding]:
    """Hops whose delay is far above the minimum."""
    ways = case.ways
    if ways is None:
        return
    p99 = long_delays(case)
    if not p99:
        return
    limit = queue_limit(p99)
    queues = [
        (max(p99[hop.from_tap, hop.to_tap] for hop in group.hops), group)
        for group in groups(ways, lambda hop: p99.get((hop.from_tap, hop.to_tap), 0) >= limit)
    ]
    waiting: set[int] = set()
    longest = 0.0
    for queue, group in sorted(queues, key=lambda item: -item[0]):
        place = group.place(case)
        stretches, paused = group.queues(limit), spans_at(case, place.to_tap)
        own = [s for s in stretches if not made_by(paused, s, ways.window_ns, group.wait(s))]
        in_pauses = not own
        first, last = (own or stretches)[0][0], (own or stretches)[-1][1]
        slow = np.concatenate(
            [
                hop.passed[hop.passed["delay_max"] - hop.whole["delay_min"] >= limit]
                for hop in group.hops
            ]
        )
        hits = {
            flow: packets
            for flow, packets in hits_by_flow(slow["flow"], slow["packets"]).items()
            if not known.explains("queueing", flow, first, last)
        }
        waited = np.unique(slow["flow"]).tolist()
        span = first, last
        held = known.queue_at(place, waited, span, ways.window_ns, in_pauses)
        hits = {flow: packets for flow, packets in hits.items() if flow not in held}
        if held:
            waiting |= held
            longest = max(longest, queue)
            hits = _waiting_alone(group, hits, queue)
        if not hits:
            continue
        if queue < BURST_SHARE * longest and waiting >= hits.keys():
            continue
        waiting |= hits.keys()
        longest = max(longest, queue)
        text = f"queues packets{group.way()} for up to {duration(queue)} (p99 over the minimum)"
        yield finding(
            case,
            "queueing",
            place,
            sum(hop.passed_packets for hop in group.hops),
            f"{group.name()} {text}",
            f"check the load and the speed of the egress of {group.name()}",
            hits=hits,
            span=span,
            evidence=shown(case, group, "slowest", hits),
            severity="warning",
            costs=False,
            details={P99_NS: round(queue)},
        )


def _waiting_alone(group: HopGroup, hits: dict[int, int], queue: float) -> dict[int, int]:
    """Of the flows that a known cause does not let wait, those that wait for longer than what it
    releases takes to pass."""
    waits: dict[int, int] = {}
    for hop in group.hops:
        for record in hop.passed[np.isin(hop.passed["flow"], list(hits))]:
            flow, wait = int(record["flow"]), int(record["delay_max"] - hop.whole["delay_min"])
            waits[flow] = max(waits.get(flow, 0), wait)
    return {flow: packets for flow, packets in hits.items() if waits[flow] >= BURST_SHARE * queue}


def overtaking(case: Case, known: Known) -> Iterator[Finding]:
    """Packets that overtake others on one hop: it has several ways, or its queue is not a FIFO."""
    yield from _disorder(case, known, parallel=False)


def slow_paths(case: Case, known: Known) -> Iterator[Finding]:
    """Packets of several paths that arrive out of order where the paths meet."""
    yield from _disorder(case, known, parallel=True)


def _disorder(case: Case, known: Known, parallel: bool) -> Iterator[Finding]:
    """In order at the tap before, late at the tap after."""
    if case.ways is None:
        return
    for group in groups(case.ways, lambda hop: hop.whole is not None and hop.whole["late"] > 0):
        meeting = len(_into(group)) > 1
        if meeting != parallel:
            continue
        first = min(int(hop.whole["first_late_ns"]) for hop in group.hops)
        last = max(int(hop.whole["last_late_ns"]) for hop in group.hops)
        passed = group.passed()
        hit = passed[passed["late"] > 0]
        hits = {
            flow: packets
            for flow, packets in hits_by_flow(hit["flow"], hit["late"]).items()
            if not known.explains("reordering", flow, first, last)
        }
        if not hits:
            continue
        packets = sum(hits.values())
        of = int(passed["packets"][np.isin(passed["flow"], list(hits))].sum())
        slow = _slow(group) if parallel else None
        text = f"{packets_of(packets, of)}{group.way()} arrive late"
        text += f" after {group.name()}" if slow is None else f", most over {slow}"
        text += f", overtaken by up to {counted(_overtaken_by(case, group), 'packet')}"
        step = f"check {group.name()} for links or queues of unequal delay"
        if slow is not None:
            step = "compare the delays of the parallel paths: one is slow"
        harm = any(
            case.flows[f].retransmitted_packets and case.flows[f].transport != TRANSPORT_NAMES[MRC]
            for f in hits
        )  # receivers of MRC take packets in any order
        yield finding(
            case,
            "reordering",
            group.place(case),
            of,
            text,
            step,
            hits=hits,
            span=(first, last),
            confidence="proven",
            evidence=shown(case, group, "late", hits),
            severity="warning" if harm else "note",
            costs=harm,
        )


def _overtaken_by(case: Case, group: HopGroup) -> int:
    """The most packets that overtook one of these hops."""
    ways = () if case.ways is None else case.ways.hops
    return max(
        int(hop.overtaken_by.max)
        for way, hop in zip(ways, case.hops, strict=True)
        if hop.overtaken_by is not None and any(way is one for one in group.hops)
    )


def _slow(group: HopGroup) -> str | None:
    """The tap over which most late packets came."""
    late: dict[int, int] = {}
    for hop in group.hops:
        late[hop.from_tap] = late.get(hop.from_tap, 0) + int(hop.whole["late"])
    tap, most = max(late.items(), key=lambda item: item[1])
    return printable(group.ways.names[tap]) if most >= SLOW_SHARE * sum(late.values()) else None


def _into(group: HopGroup) -> set[int]:
    """The taps from which the late flows come to the taps where they are late."""
    taps = {hop.to_tap for hop in group.hops}
    flows = group.passed()["flow"][group.passed()["late"] > 0]
    return {
        hop.from_tap
        for hop in group.ways.hops
        if hop.to_tap in taps and np.isin(hop.passed["flow"], flows).any()
    }
