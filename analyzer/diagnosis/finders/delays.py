"""Delays: queues and the pauses that make them, and packets that others overtake."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from msgspec import UNSET

from ...measures.hops.hops import TapHop, TapHops
from ...measures.hops.state import DELAY_LEAST, PACKETS_IN
from ...measures.hops.vantage import direction
from ...measures.troubles import LATE, Trouble
from ...results.captures import CaptureSummary, Pause, TapSummary
from ...results.diagnosis import Evidence, Finding, Kind, Place, Severity
from ...results.flow import Flow
from ...summary.trust import gaps_in
from ...wire.bth import MRC, TRANSPORT_NAMES
from ...words import printable
from ..case import Case, priorities_of, seen_in_part
from ..finding import (
    EXPECTED,
    before,
    by_hosts,
    called,
    counted,
    duration,
    finding,
    hosts,
    of_same_hosts,
    only,
    packets_of,
    percent,
    span_of,
    tap_of,
)
from ..hop_groups import HopGroup, groups, hits_by_flow, shown
from ..known import (
    CLOCKS_NS,
    DISORDER,
    P99_NS,
    PAUSED_NS,
    PRIORITY,
    QUEUE_CAUSES,
    SLOWNESS,
    STEP_NS,
    Finder,
    Known,
)
from .captures import moving_clocks

REORDERING_CAUSES: Final[tuple[Kind, ...]] = (
    *DISORDER, "rate-limit", "incast", "collision", "link-down", *SLOWNESS, "capture-loss",
)  # fmt: skip
"""Kinds of causes that explain such an effect in the same flows at the same time."""

PAUSE_WORTH_A_WARNING = 0.01
"""Share of the time paused, below which pauses are a note: lossless classes pause for moments."""
PAUSE_STORM = 0.5


def pauses(case: Case, known: Known) -> Iterator[Finding]:
    """One finding per tap and priority that was told to pause."""
    for capture in case.captures:
        for tap in capture.taps:
            for pause in tap.pauses:
                if pause.first_time_ns is not None and pause.last_time_ns is not None:
                    span = pause.first_time_ns, pause.last_time_ns
                    yield _pause(case, capture, tap, pause, span)


def _held(case: Case, tap: TapSummary, pause: Pause, span: Span) -> dict[int, int]:
    """Packets, by flow, of the flows that wait on the way to this link while it is paused."""
    p99 = long_delays(case)
    if case.tap_hops is None or not p99:
        return {}
    limit, spans = queue_limit(p99), spans_of(pause) or [span]
    index = case.registry.tap_names.index(tap.name)
    held: dict[int, int] = {}
    for way in case.tap_hops.hops:
        if way.to_tap != index or (way.from_tap, way.to_tap) not in p99:
            continue
        group, width = HopGroup(case.tap_hops, [way]), case.tap_hops.window_ns
        if any(made_by(spans, q, width, group.wait(q)) for q in group.queues(limit)):
            slow = way.passed[way.passed["delay_max"] - way.total["delay_min"] >= limit]
            for flow, packets in hits_by_flow(slow["flow"], slow["packets"]).items():
                if _holds(case, pause, flow):
                    held[flow] = held.get(flow, 0) + packets
    return held


def _holds(case: Case, pause: Pause, flow: int) -> bool:
    """Whether packets of a flow may have the priority of the pause."""
    return pause.priority is None or pause.priority in priorities_of(case, case.flows[flow])


def _frames(tap: TapSummary, pause: Pause, span: Span) -> list[Evidence]:
    """The first and the last frame that pause."""
    numbers = pause.first_frame_number, pause.last_frame_number
    frames = [
        Evidence(tap.name, number, time)
        for number, time in zip(numbers, span, strict=True)
        if number is not None
    ]
    return frames[:1] if numbers[0] == numbers[1] else frames


def _details(pause: Pause) -> dict[str, str | int | float]:
    details: dict[str, str | int | float] = {}
    if pause.paused_ns is not None:
        details[PAUSED_NS] = pause.paused_ns
    if pause.priority is not None:
        details[PRIORITY] = pause.priority
    return details


def _pause(
    case: Case, capture: CaptureSummary, tap: TapSummary, pause: Pause, span: tuple[int, int]
) -> Finding:
    first, last = capture.first_time_ns or case.first_ns, capture.last_time_ns or case.last_ns
    share = (
        pause.paused_ns / (last - first) if pause.paused_ns is not None and last > first else None
    )
    what = "the link" if pause.priority is None else f"priority {pause.priority}"
    stops = pause.frames - pause.resume_frames
    time = (
        "time unknown (--link-rate)" if share is None else f"{percent(min(share, 1))} of the time"
    )
    pace = (span[1] - span[0]) / max(stops - 1, 1)
    severity: Severity = "warning"
    if share is not None and share < PAUSE_WORTH_A_WARNING:
        severity = "note"
    elif share is not None and share >= PAUSE_STORM:
        severity = "critical"
    where = called(case, tap.name, "first")
    return finding(
        case,
        "pause",
        Place(to_tap=tap.name),
        tap.frames,
        f"{what} at {where} is paused by {counted(stops, 'frame')}, {time}",
        "find the receiver that sends pause frames: its buffers are full",
        hits=_held(case, tap, pause, span),
        span=span,
        confidence="proven",
        severity=severity,
        evidence=_frames(tap, pause, span),
        costs=False,
        sure_onset=True,
        packets=stops,
        details=_details(pause) or UNSET,
        until_ns=None if case.last_ns - span[1] < EXPECTED * pace else span[1],
    )


DRAINS = 10
"""A queue that a pause made lasts at most this many times the time paused: a link that is loaded to
nine tenths needs nine times as long to send what it held back."""

WAITS = 2
"""A packet waits for the rest of a pause, and behind what waited before it."""

Span: TypeAlias = tuple[int, int]
"""First and last time, ns."""


def spans_at(case: Case, tap: str | None) -> list[Span]:
    """When the link at a tap was paused, as far as its rate shows, for whatever priority."""
    pauses = [
        pause
        for capture in case.captures
        for its in capture.taps
        if its.name == tap
        for pause in its.pauses
    ]
    return sorted(span for pause in pauses for span in spans_of(pause))


def spans_of(pause: Pause) -> list[Span]:
    """When it paused, as far as the link rate shows."""
    return [(span.from_ns, span.until_ns) for span in pause.spans]


def slack_of(window_ns: int) -> int:
    """How much earlier or later than its windows say a queue may begin or end, ns."""
    return window_ns + CLOCKS_NS


def too_short(paused_ns: int, window_ns: int) -> bool:
    """Whether windows cannot tell that a queue lasts longer than pauses of this time explain."""
    return 2 * slack_of(window_ns) > DRAINS * paused_ns


def made_by(pauses: Sequence[Span], queue: Span, window_ns: int, wait_ns: float) -> bool:
    """Whether these pauses made a queue.

    window_ns: width of the windows that tell its times. wait_ns: longest wait of a packet in it.
    Where windows are too wide to tell how long it lasts, no packet waits longer than
    WAITS times the time paused.
    """
    begin, end = queue
    slack = slack_of(window_ns)
    during = [(a, b) for a, b in pauses if a <= end + slack and b >= begin - slack]
    if not any(a <= begin + slack for a, _ in during):
        return False
    paused = sum(min(b, end + slack) - max(a, begin - slack) for a, b in during)
    if too_short(paused, window_ns):
        return wait_ns <= WAITS * paused
    return end - begin - 2 * slack <= DRAINS * paused


LEAST_STEP_NS = 100_000
"""A step of the minimum delay that is a finding; clocks may jump by less without a trace."""
STEP_WINDOWS = 8
"""Windows with the higher minimum, and as many with the lower one."""
STEADY = 0.25
"""At least this share of the windows on each side of a step have a minimum within this part of the
step: bursts hide it in the others, and a queue that rises and falls has no floor."""


class Step(NamedTuple):
    """A minimum delay of a hop that is higher for some time."""

    hop: TapHop
    first: int
    last: int
    """First and last window with the higher minimum."""
    ns: int
    """By how much."""
    is_over: bool
    """Whether later windows have the lower minimum: not the last one alone, which may be short."""


def _step_of(hop: TapHop) -> Step | None:
    """The longest row of windows whose minimum delays are all higher, by one amount."""
    if hop.total is None:
        return None
    used = np.flatnonzero(hop.windows[:, PACKETS_IN])
    if len(used) < 2 * STEP_WINDOWS:
        return None
    least = hop.windows[used, DELAY_LEAST]
    low = int(np.partition(least, STEP_WINDOWS // 2)[STEP_WINDOWS // 2])
    edges = np.flatnonzero(np.diff(least >= low + LEAST_STEP_NS, prepend=False, append=False))
    rows = edges.reshape(-1, 2)
    if not len(rows):
        return None
    begin, end = rows[np.argmax(rows[:, 1] - rows[:, 0])].tolist()
    inside, outside = least[begin:end], np.delete(least, slice(begin, end))
    if min(len(inside), len(outside)) < STEP_WINDOWS:
        return None
    step = int(inside.min()) - low
    for floor, minima in ((low, outside), (low + step, inside)):
        if np.count_nonzero(minima <= floor + STEADY * step) < STEADY * len(minima):
            return None
    return Step(hop, int(used[begin]), int(used[end - 1]), step, end < len(used) - 1)


def _falls(hop: TapHop, step: Step) -> bool:
    """Whether the minimum delay of another hop falls while that of the step is higher: a clock."""
    if hop.total is None:
        return False
    is_used = hop.windows[:, PACKETS_IN] > 0
    is_inside = np.zeros_like(is_used)
    is_inside[step.first : step.last + 1] = True
    inside, outside = (hop.windows[is_used & m, DELAY_LEAST] for m in (is_inside, ~is_inside))
    return bool(
        len(inside) and len(outside) and np.median(outside) - np.median(inside) >= step.ns / 2
    )


def _hits_of_step(step: Step, begin_ns: int, end_ns: int) -> dict[int, int]:
    """Packets, by flow, of the flows with the higher delay; none if most flows that pass inside and
    outside have one delay: others, with longer packets or over a longer way, pass inside only."""
    passed = step.hop.passed
    middle = int(step.hop.total["delay_min"]) + step.ns // 2
    has_both = (passed["delay_min"] < middle) & (passed["delay_max"] > middle)
    is_inside = (passed["first_ns"] < end_ns) & (passed["last_ns"] > begin_ns)
    is_outside = (passed["first_ns"] < begin_ns) | (passed["last_ns"] > end_ns)
    in_both = is_inside & is_outside
    if not np.count_nonzero(in_both & has_both) > np.count_nonzero(in_both) / 2:
        return {}
    is_slow = is_inside & (passed["delay_max"] > middle)
    return hits_by_flow(passed["flow"][is_slow], passed["packets"][is_slow])


def delay_steps(case: Case, known: Known) -> Iterator[Finding]:
    """Devices whose minimum delay is higher from a moment on, or for some time."""
    tap_hops = case.tap_hops
    if tap_hops is None:
        return
    for steps in _together(tap_hops, _steps(case, tap_hops)):
        group = HopGroup(tap_hops, [step.hop for step in steps])
        begin = tap_hops.origin_ns + min(step.first for step in steps) * tap_hops.window_ns
        end = tap_hops.origin_ns + (max(step.last for step in steps) + 1) * tap_hops.window_ns
        hits: dict[int, int] = {}
        for step in steps:
            for flow, packets in _hits_of_step(step, begin, end).items():
                if not known.explains((*QUEUE_CAUSES, "reordering"), flow, begin, end, queue=True):
                    hits[flow] = hits.get(flow, 0) + packets
        if not hits:
            continue
        ns = max(step.ns for step in steps)
        packets = sum(
            int(step.hop.windows[step.first : step.last + 1, PACKETS_IN].sum()) for step in steps
        )
        yield finding(
            case,
            "delay-step",
            group.place(case),
            packets,
            f"the minimum delay of {group.name()}{group.way()} is {duration(ns)} higher",
            f"compare the path, the links and the load of {group.name()} before and after: a longer"
            " way, or a queue that never empties",
            hits=hits,
            span=(max(begin, case.first_ns), min(end, case.last_ns)),
            evidence=shown(case, group, "slowest", hits),
            severity="warning",
            sure_onset=True,
            uncertain_ns=min(tap_hops.window_ns, max(begin - case.first_ns, 0)),
            packets=packets,
            until_ns=end if all(step.is_over for step in steps) else None,
            details={STEP_NS: ns},
        )


def _steps(case: Case, tap_hops: TapHops) -> list[Step]:
    """The steps of all hops that are not those of a clock."""
    steps, names = [], case.registry.tap_names
    for hop in tap_hops.hops:
        step = _step_of(hop)
        if step is None:
            continue
        jumping, drifted = moving_clocks(case, step.ns)
        taps = names[hop.from_tap], names[hop.to_tap]
        if not jumping.isdisjoint(taps) or drifted(*taps):
            continue
        beside = [h for h in tap_hops.hops if h.from_tap == hop.to_tap or h.to_tap == hop.from_tap]
        if not any(_falls(other, step) for other in beside):
            steps.append(step)
    return steps


def _together(tap_hops: TapHops, steps: list[Step]) -> list[list[Step]]:
    """The steps of one device at one time, both directions included; others alone."""
    together: list[list[Step]] = []
    for step in steps:
        device = tap_hops.devices.get((step.hop.from_tap, step.hop.to_tap))
        for other in together:
            first = other[0]
            beside = tap_hops.devices.get((first.hop.from_tap, first.hop.to_tap))
            if device is not None and device == beside:
                if abs(first.first - step.first) <= STEP_WINDOWS and first.ns <= 2 * step.ns:
                    other.append(step)
                    break
        else:
            together.append([step])
    return together


SLOWER = 4
"""A hop is slow all the time if its minimum delay is higher than that of each of its parallel hops
by this many times their delay, and by `LEAST_STEP_NS`."""
LEAST_BESIDE = 2
"""Parallel hops that tell the usual delay."""


def slow_hops(case: Case, known: Known) -> Iterator[Finding]:
    """Devices that take longer to pass packets on than the devices parallel to them, all the
    time."""
    tap_hops = case.tap_hops
    if tap_hops is None:
        return
    by_device: dict[str | tuple[int, int], list[tuple[TapHop, int]]] = {}
    for hop, ns in _slower_than_beside(case, tap_hops):
        ends = hop.from_tap, hop.to_tap
        by_device.setdefault(tap_hops.devices.get(ends, ends), []).append((hop, ns))
    causes = (*QUEUE_CAUSES, "delay-step", "reordering")
    for slow in by_device.values():
        group, ns = HopGroup(tap_hops, [hop for hop, _ in slow]), max(ns for _, ns in slow)
        passed = group.passed()
        span = int(passed["first_ns"].min()), int(passed["last_ns"].max())
        hits = hits_by_flow(passed["flow"], passed["packets"])
        if any(known.explains(causes, flow, *span, queue=True) for flow in hits):
            continue
        taps, clock = {(hop.from_tap, hop.to_tap) for hop, _ in slow}, case.registry.taps.clock
        is_sum = any((far, near) in taps and clock(near) != clock(far) for near, far in taps)
        both = ", both directions together," if is_sum else ""
        yield finding(
            case,
            "delay-step",
            group.place(case),
            sum(hits.values()),
            f"the minimum delay of {group.name()}{group.way()} is {duration(ns)} higher{both} than"
            " that of parallel hops",
            f"compare the path, the links and the load of {group.name()} and those parallel to it: "
            "a longer way, or a queue that never empties",
            hits=hits,
            span=span,
            evidence=shown(case, group, "slowest", hits),
            severity="warning",
            packets=sum(hits.values()),
            until_ns=None,
            details={STEP_NS: ns},
        )


def _slower_than_beside(case: Case, tap_hops: TapHops) -> Iterator[tuple[TapHop, int]]:
    """The hops with a higher minimum delay than hops parallel to them, and by how much, ns.

    Where the taps have two clocks, the delays of both directions are added: the difference of the
    clocks is in one and missing in the other. Where one direction alone has the sum, the clocks do
    not differ; else either direction may be slow.
    """
    places, clock = case.parallel_places, case.registry.taps.clock
    names, (jumping, drifted) = case.registry.tap_names, moving_clocks(case, LEAST_STEP_NS)
    passed = {
        (hop.from_tap, hop.to_tap): hop
        for hop in tap_hops.hops
        if hop.total is not None
        and hop.passed_packets >= LEAST_PACKETS
        and jumping.isdisjoint(taps := (names[hop.from_tap], names[hop.to_tap]))
        and not drifted(*taps)
    }
    least = {ends: int(hop.total["delay_min"]) for ends, hop in passed.items()}
    beside: dict[str | tuple[int, int], set[tuple[int, int]]] = {}
    for near, far in passed:
        if clock(near) == clock(far) or (far, near) in passed:
            beside.setdefault((int(places[near]), int(places[far])), set()).add((near, far))
            if way := direction(tap_hops.names[near], tap_hops.names[far]):
                beside.setdefault(way, set()).add((near, far))

    def way_ns(ends: tuple[int, int]) -> int:
        near, far = ends
        return least[ends] if clock(near) == clock(far) else least[ends] + least[far, near]

    for ends, hop in passed.items():
        others = set().union(*(hops for hops in beside.values() if ends in hops)) - {ends}
        if len(others) < LEAST_BESIDE:
            continue
        usual_ns = max(way_ns(other) for other in others)
        one_way_ns = least[ends] - int(np.median([least[other] for other in others]))
        ns = way_ns(ends) - usual_ns
        is_slow = ns >= max(LEAST_STEP_NS, SLOWER * usual_ns) and abs(one_way_ns) > STEADY * ns
        if is_slow and _has_a_floor(hop, ns):
            yield hop, ns


def _has_a_floor(hop: TapHop, ns: int) -> bool:
    """Whether many windows have about the same minimum delay: it is not that of a load."""
    minima = hop.windows[hop.windows[:, PACKETS_IN] > 0, DELAY_LEAST]
    at_floor = np.count_nonzero(minima <= minima.min() + STEADY * ns)
    return bool(len(minima) >= STEP_WINDOWS and at_floor >= STEADY * len(minima))


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
    """By taps of a hop, the p99 of its delay above the minimum, ns, where clocks let it be known;
    at least so much where they drift."""
    if case.tap_hops is None:
        return {}
    jumping, drifted = moving_clocks(case, QUEUE_NS)
    return {
        (way.from_tap, way.to_tap): min(
            hop.queueing_ns.p99 - drifted(hop.from_tap, hop.to_tap or ""),
            float(way.total["delay_max"] - way.total["delay_min"]),
        )
        for way, hop in zip(case.tap_hops.hops, case.hops, strict=True)
        if hop.queueing_ns is not None
        and hop.queueing_ns.count >= LEAST_PACKETS
        and not jumping & {hop.from_tap, hop.to_tap}
    }


def queue_limit(p99: Mapping[tuple[int, int], float]) -> float:
    """The delay above the minimum, ns, from which a packet waits in a queue."""
    return max(QUEUE_NS, QUEUE_FACTOR * float(np.median(list(p99.values()))))


def hop_queues(case: Case, known: Known) -> Iterator[Finding]:
    """Hops whose delay is far above the minimum."""
    tap_hops = case.tap_hops
    if tap_hops is None:
        return
    p99 = long_delays(case)
    if not p99:
        return
    limit = queue_limit(p99)
    for step in _steps(case, tap_hops):
        taps = step.hop.from_tap, step.hop.to_tap
        if taps in p99:
            p99[taps] -= step.ns
    queues = [
        (max(p99[hop.from_tap, hop.to_tap] for hop in group.hops), group)
        for group in groups(tap_hops, lambda hop: p99.get((hop.from_tap, hop.to_tap), 0) >= limit)
    ]
    waiting: set[int] = set()
    longest = 0.0
    for queue, group in sorted(queues, key=lambda item: -item[0]):
        place = group.place(case)
        stretches, paused = group.queues(limit), spans_at(case, place.to_tap)
        unpaused = [
            s for s in stretches if not made_by(paused, s, tap_hops.window_ns, group.wait(s))
        ]
        in_pauses = not unpaused
        first, last = (unpaused or stretches)[0][0], (unpaused or stretches)[-1][1]
        slow = np.concatenate(
            [
                hop.passed[hop.passed["delay_max"] - hop.total["delay_min"] >= limit]
                for hop in group.hops
            ]
        )
        hits = {
            flow: packets
            for flow, packets in hits_by_flow(slow["flow"], slow["packets"]).items()
            if not known.explains(QUEUE_CAUSES, flow, first, last, queue=True)
        }
        waited = np.unique(slow["flow"]).tolist()
        span = first, last
        held = known.queue_at(place, waited, span, tap_hops.window_ns, in_pauses)
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
            flow, wait = int(record["flow"]), int(record["delay_max"] - hop.total["delay_min"])
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
    if case.tap_hops is None:
        return
    for group in groups(case.tap_hops, lambda hop: hop.total is not None and hop.total["late"] > 0):
        meeting = len(_into(group)) > 1
        if meeting != parallel:
            continue
        first = min(int(hop.total["first_late_ns"]) for hop in group.hops)
        last = max(int(hop.total["last_late_ns"]) for hop in group.hops)
        passed = group.passed()
        hit = passed[passed["late"] > 0]
        hits = {
            flow: packets
            for flow, packets in hits_by_flow(hit["flow"], hit["late"]).items()
            if not known.explains(REORDERING_CAUSES, flow, first, last)
        }
        if not hits:
            continue
        packets = sum(hits.values())
        of = int(passed["packets"][np.isin(passed["flow"], list(hits))].sum())
        slow = _slow(group) if parallel else None
        delayed = None if slow is None else _delayed(group, slow)
        text = f"{packets_of(packets, of)}{group.way()} arrive late"
        if slow is None:
            text += f" after {group.name()}"
        elif delayed is None:
            text += f", most over {printable(group.tap_hops.names[slow])}"
        else:
            text += (
                f": {delayed.hop.name()} delays them by {duration(delayed.ns)} more than parallel"
            )
            text += " devices"
        text += f", overtaken by up to {counted(_overtaken_by(case, group), 'packet')}"
        step = f"check {group.name()} for links or queues of unequal delay"
        if slow is not None:
            step = "compare the delays of the parallel paths: one is slow"
        if delayed is not None:
            step = f"check the queues and the cables of {delayed.hop.name()}"
        harm = any(
            case.flows[f].retransmitted_packets and case.flows[f].transport != TRANSPORT_NAMES[MRC]
            for f in hits
        )  # receivers of MRC take packets in any order
        yield finding(
            case,
            "reordering",
            (group if delayed is None else delayed.hop).place(case),
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
    hops = () if case.tap_hops is None else case.tap_hops.hops
    return max(
        int(hop.overtaken_by.max)
        for way, hop in zip(hops, case.hops, strict=True)
        if hop.overtaken_by is not None and any(way is member for member in group.hops)
    )


def _slow(group: HopGroup) -> int | None:
    """The tap over which most late packets came."""
    late: dict[int, int] = {}
    for hop in group.hops:
        late[hop.from_tap] = late.get(hop.from_tap, 0) + int(hop.total["late"])
    tap, most = max(late.items(), key=lambda item: item[1])
    return tap if most >= SLOW_SHARE * sum(late.values()) else None


class _Delayed(NamedTuple):
    """The way to a tap that delays packets by more than the parallel ones."""

    hop: HopGroup
    ns: float


def _delayed(group: HopGroup, slow: int) -> _Delayed | None:
    """The hop before the slow one of the taps from which late flows come, if its delay explains
    that they are late. Delays there and back are added: the clocks of its taps cancel out."""
    hops = {(h.from_tap, h.to_tap): h for h in group.tap_hops.hops if h.total is not None}
    flows = group.passed()["flow"][group.passed()["late"] > 0]
    meeting = _into(group)
    before: dict[int, tuple[float, TapHop]] = {}
    for (near, far), hop in hops.items():
        back = hops.get((far, near))
        if far in meeting and np.isin(hop.passed["flow"], flows).any():
            if back is None:
                return None
            lasting = float(hop.total["delay_min"]) + float(back.total["delay_min"])
            if far not in before or lasting > before[far][0]:
                before[far] = lasting, hop
    others = [there_and_back for tap, (there_and_back, _) in before.items() if tap != slow]
    if slow not in before or not others:
        return None
    there_and_back, hop = before[slow]
    more = there_and_back - max(others)
    if more < max(QUEUE_NS, QUEUE_FACTOR * max(others)):
        return None
    delayed = HopGroup(group.tap_hops, [hop])
    return _Delayed(delayed, more) if delayed.device is not None else None


def _into(group: HopGroup) -> set[int]:
    """The taps from which the late flows come to the taps where they are late."""
    taps = {hop.to_tap for hop in group.hops}
    flows = group.passed()["flow"][group.passed()["late"] > 0]
    return {
        hop.from_tap
        for hop in group.tap_hops.hops
        if hop.to_tap in taps and np.isin(hop.passed["flow"], flows).any()
    }


SLOW_PATH_SHARE = 0.8
"""Least share of the late packets that one path carried to be named the slow one."""
SLOW_PATH_FACTOR = 2
"""It also has at least this many times its share of the packets."""


def late_before(case: Case, known: Known) -> Iterator[Finding]:
    """Packets overtaken before the first tap of their flow.

    Where a gap may hide that a packet was lost, or asked for, its retransmission looks late; so it
    does where the first transmission took a path without a tap.
    """
    troubles = case.measuring.troubles
    flows = [case.flows[f] for f in troubles.flows(LATE)]
    flows = [flow for flow in flows if flow.reordered_packets and not gaps_in(flow, case.gaps)]
    flows = [
        flow
        for flow in flows
        if flow.transport == TRANSPORT_NAMES[MRC] or not seen_in_part(flow)  # MRC marks its own
    ]
    for group in by_hosts(flows):
        late = troubles.by_flow(LATE, (flow.id for flow in group))
        first, last = span_of(late.values())
        slow = slow_path(group)
        if slow is not None and known.slow_path(slow.tap, first, last):
            continue
        if all(
            known.explains(REORDERING_CAUSES, flow.id, first, last)
            or known.misplaced(flow, first, last)
            for flow in group
        ):
            continue
        same = of_same_hosts(case, group)
        could = sum(flow.data_packets for flow in same)
        packets = sum(trouble.packets for trouble in late.values())
        tap = tap_of(case, late.values())
        via = "" if slow is None else f", {slow.share} of them over {slow.name}"
        yield finding(
            case,
            "reordering",
            Place(to_tap=tap, direction="before the tap", host=only(f.src for f in group)),
            could,
            f"{packets_of(packets, could)} from {hosts(group)} are overtaken {before(case, tap)}"
            f"{via}",
            "compare the delay of the paths"
            if slow is None
            else f"look for a queue on {slow.name}",
            confidence="proven",
            seen=late.values(),
            severity=_severity_of_late(case, group, packets),
        )


def late_over(case: Case, tap: str | None, first_ns: int, last_ns: int) -> dict[int, Trouble]:
    """Late packets, by flow, whose slow path leads to this tap, where some come in this time."""
    troubles = case.measuring.troubles
    late_flows: dict[int, Trouble] = {}
    for group in by_hosts(case.flows[f] for f in troubles.flows(LATE)):
        late = troubles.by_flow(LATE, (flow.id for flow in group))
        slow, (first, last) = slow_path(group), span_of(late.values())
        if slow is not None and tap == slow.tap and first <= last_ns and last >= first_ns:
            late_flows |= late
    return late_flows


class SlowPath(NamedTuple):
    """The path that carries nearly all late packets."""

    name: str
    share: str
    tap: str | None
    """None where the paths are source ports."""


def slow_path(group: list[Flow]) -> SlowPath | None:
    """The tap or source port that most late packets of sprayed flows came over."""
    for key, word in (("tap", ""), ("entropy", "source port ")):
        late: dict[str, int] = {}
        packets: dict[str, int] = {}
        for flow in group:
            for spraying in flow.spraying:
                if spraying.path_by == key and len(spraying.paths) > 1:
                    for path in spraying.paths:
                        late[path.path] = late.get(path.path, 0) + path.reordered_packets
                        packets[path.path] = packets.get(path.path, 0) + path.packets
        slow = _most(late, packets)
        if slow is not None:
            share = f"{100 * late[slow] / sum(late.values()):.0f} %"
            return SlowPath(f"{word}{printable(slow)}", share, slow if key == "tap" else None)
    return None


def _most(late: Mapping[str, int], packets: Mapping[str, int]) -> str | None:
    total = sum(late.values())
    if not total:
        return None
    slow = max(late, key=lambda path: late[path])
    usual = packets[slow] / sum(packets.values())
    share = late[slow] / total
    return slow if share >= SLOW_PATH_SHARE and share >= SLOW_PATH_FACTOR * usual else None


def _severity_of_late(case: Case, group: list[Flow], packets: int) -> Severity | None:
    """A note where nobody retransmits because of it, or the capture itself is out of order."""
    disordered = sum(capture.out_of_order_frames for capture in case.captures)
    if len(case.captures) == 1 and packets <= disordered:
        return "note"
    if all(flow.transport == TRANSPORT_NAMES[MRC] for flow in group):
        return "note"  # its receivers take packets in any order
    troubled = any(flow.retransmitted_packets or flow.recovery.naks for flow in group)
    return None if troubled else "note"


FINDERS = (
    Finder(pauses, ("pause",)),
    Finder(
        overtaking,
        ("reordering",),
        REORDERING_CAUSES,
        after=("missed_by_captures", "missed_at_one_tap", "mrc_ports", "hop_losses"),
    ),
    Finder(delay_steps, ("delay-step",), QUEUE_CAUSES, after=("pauses", "overtaking")),
    Finder(hop_queues, ("queueing",), QUEUE_CAUSES, after=("delay_steps",)),
    Finder(slow_paths, ("reordering",), REORDERING_CAUSES, after=("hop_moves", "hop_trims")),
    Finder(
        slow_hops,
        ("delay-step",),
        QUEUE_CAUSES,
        after=("delay_steps", "hop_queues", "slow_paths", "hop_losses"),
    ),
    Finder(late_before, ("reordering",), REORDERING_CAUSES, after=("losses_before", "trims")),
)
