"""Captures at fault: packets that they missed, and clocks that jump, drift or were set."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from ...results.analysis import TapClock
from ...results.diagnosis import Finding, Place, Severity
from ...words import printable
from ..case import Case
from ..finding import counted, duration, finding, only, packets_of
from ..hop_groups import hits_by_flow
from ..known import Finder, Known

OFFSET_NS = 1_000_000
"""Clocks that differ by more are named."""
DRIFT_NS = 100_000
"""Clocks that drift by more over the captures are named."""


def missed_by_captures(case: Case, _: Known) -> Iterator[Finding]:
    """Packets that were seen before and after a tap, or acknowledged, but not captured there."""
    if case.tap_hops is None:
        return
    for missed in case.tap_hops.missed:
        flows, counts = np.unique(missed.flows, return_counts=True)
        packets = len(missed.flows)
        yield finding(
            case,
            "capture-loss",
            Place(capture=case.registry.tap_names[missed.tap]),
            packets + missed.passed,
            f"the capture {printable(case.tap_hops.names[missed.tap])} missed"
            f" {packets_of(packets, packets + missed.passed)}; the network did not lose them",
            "capture with a larger buffer or a shorter snap length there",
            hits=hits_by_flow(flows, counts),
            span=(int(missed.times.min()), int(missed.times.max())),
            confidence="proven",
            severity="warning",
            costs=False,
        )


def clocks(case: Case, _: Known) -> Iterator[Finding]:
    """Clocks that jump, drift, or differ from those of most taps."""
    jumps = _worst(case, lambda clock: clock.steps)
    drifts = _worst(case, lambda clock: round(_drifted(case, clock)))
    offsets = _offsets(case)
    short = dict(zip(case.registry.tap_names, _short(case), strict=True))
    for tap, (offset, uncertainty) in offsets.items():
        apart = abs(offset)
        if tap in jumps:
            what = f"jumps {counted(jumps[tap], 'time')} against the clocks of the other taps"
        elif drifts.get(tap, 0) > DRIFT_NS:
            what = f"drifts by {duration(drifts[tap])} against the clocks of the other taps"
        elif apart > max(OFFSET_NS, uncertainty):
            what = f"differs from the clocks of the other taps by {duration(apart)}"
        else:
            continue
        span = _jumped(case, tap, jumps[tap]) if tap in jumps else (case.first_ns, case.last_ns)
        yield finding(
            case,
            "clock",
            Place(capture=tap),
            0,
            f"the clock of {printable(short[tap])} {what}",
            "synchronise the clocks (PTP); delays from and to this tap are not exact",
            span=span,
            severity="warning" if tap in jumps else "note",
            until_ns=span[1] if tap in jumps else None,
            costs=False,
        )


def clocks_set_back(case: Case, _: Known) -> Iterator[Finding]:
    """Captures whose times go back by more than a second."""
    several = case.tap_hops is not None
    for index, tap in enumerate(case.registry.taps.items):
        if not tap.clock_steps:
            continue
        unknown = "losses and delays from and to it are unknown" if several else "times are wrong"
        yield _set(
            case,
            tap.name,
            f"the times of {printable(_short(case)[index])} go back"
            f" {counted(tap.clock_steps, 'time')} by more than 1 s: {unknown}",
            "keep the clock from being set during a capture (PTP or NTP that slews); analyse"
            " captures that were joined one by one",
            "warning" if several else "note",
        )


def clocks_set_forward(case: Case, _: Known) -> Iterator[Finding]:
    """Captures whose times jump forward while those of the other taps do not."""
    forward = {} if case.tap_hops is None else case.tap_hops.set_forward
    for index, (times, ns) in forward.items():
        tap = case.registry.taps[index]
        if tap.carrier is not None:
            continue
        yield _set(
            case,
            tap.name,
            f"the clock of {printable(_short(case)[index])} is set forward {counted(times, 'time')}"
            f" by {duration(ns)}: losses and delays from and to it are unknown",
            "keep the clock from being set during a capture (PTP or NTP that slews)",
            "warning",
        )


def _set(case: Case, tap: str, says: str, next_step: str, severity: Severity) -> Finding:
    """A clock that was set during the capture."""
    return finding(
        case, "clock", Place(capture=tap), 0, says, next_step,
        severity=severity, until_ns=None, costs=False,
    )  # fmt: skip


def clocks_ahead_ns(case: Case) -> dict[str, float]:
    """By tap, how far its clock is ahead of those of most taps, as far as it is known."""
    return {tap: offset for tap, (offset, _) in _offsets(case).items()}


def moving_clocks(case: Case, limit_ns: float) -> tuple[set[str], Callable[[str, str], float]]:
    """Taps whose delays cannot be compared over time because the clock jumps; and a function: by
    how much the clocks of two taps drift apart over the captures, ns, if by more than half of a
    limit: as both tell, else as either and its other neighbours do."""
    jumping = {tap for c in case.clocks if c.steps for tap in (c.tap, c.relative_to)}
    pairs = {
        frozenset((c.tap, c.relative_to)): _drifted(case, c)
        for c in case.clocks
        if c.drift_ppm is not None
    }

    def drifted(near: str, far: str) -> float:
        beside = [ns for taps, ns in pairs.items() if not taps.isdisjoint((near, far))]
        apart = pairs.get(frozenset((near, far)), max(beside, default=0.0))
        return apart if apart > limit_ns / 2 else 0.0

    return jumping, drifted


def _jumped(case: Case, tap: str, times: int) -> tuple[int, int]:
    """First and last of this many jumps against its neighbours, which each tell their own
    windows."""
    beside = [clock for clock in case.clocks if tap in (clock.tap, clock.relative_to)]
    first = min(clock.first_step_ns for clock in beside if clock.first_step_ns is not None)
    last = max(clock.last_step_ns for clock in beside if clock.last_step_ns is not None)
    return first, first if times == 1 else last


def _drifted(case: Case, clock: TapClock) -> float:
    """How far the clock drifts from its neighbour, ns."""
    return abs(clock.drift_ppm or 0.0) * (case.last_ns - case.first_ns) / 1e6


def _worst(case: Case, fault: Callable[[TapClock], int]) -> dict[str, int]:
    """The taps with the most faults between them and their neighbours: one bad clock is in all its
    pairs, its neighbours are in one each."""
    total: dict[str, int] = {}
    pairs: dict[str, int] = {}
    for clock in case.clocks:
        for tap in (clock.tap, clock.relative_to):
            pairs[tap] = pairs.get(tap, 0) + 1
            total[tap] = total.get(tap, 0) + fault(clock)
    means = {tap: total[tap] / pairs[tap] for tap in total if total[tap]}
    worst = max(means.values(), default=0.0)
    return {tap: max(round(mean), 1) for tap, mean in means.items() if mean == worst}


def _short(case: Case) -> list[str]:
    return case.registry.tap_names if case.tap_hops is None else case.tap_hops.names


def _offsets(case: Case) -> dict[str, tuple[float, float]]:
    """Offset from most of the taps that it can be compared with, from neighbour to neighbour, and
    uncertainty of each tap's clock."""
    beside: dict[str, list[tuple[str, float, float]]] = {}
    for clock in case.clocks:
        beside.setdefault(clock.relative_to, []).append(
            (clock.tap, clock.offset_ns, clock.uncertainty_ns)
        )
        beside.setdefault(clock.tap, []).append(
            (clock.relative_to, -clock.offset_ns, clock.uncertainty_ns)
        )
    offsets: dict[str, tuple[float, float]] = {}
    for root in beside:
        if root in offsets:
            continue
        offsets[root] = (0.0, 0.0)
        joined, waiting = [root], [root]
        while waiting:
            tap = waiting.pop()
            for other, offset, uncertainty in beside[tap]:
                if other not in offsets:
                    mine = offsets[tap]
                    offsets[other] = (mine[0] + offset, mine[1] + uncertainty)
                    waiting.append(other)
                    joined.append(other)
        usual = float(np.median([offsets[tap][0] for tap in joined]))
        offsets |= {tap: (offsets[tap][0] - usual, offsets[tap][1]) for tap in joined}
    return offsets


def missed_at_one_tap(case: Case, known: Known) -> Iterator[Finding]:
    """Capture loss of a single tap; with several, other taps prove it."""
    if case.measuring.many_taps:
        return
    hits = {f.id: n for f in case.flows if (n := f.capture_loss_suspected_packets)}
    if not hits:
        return
    tap = only(tap for f in hits for tap in case.flows[f].taps)
    packets = sum(hits.values())
    could = packets + sum(flow.data_packets for flow in case.flows)
    yield finding(
        case,
        "capture-loss",
        Place(capture=tap),
        could,
        f"the capture {printable(tap or '')} missed {packets_of(packets, could)}: they were"
        " acknowledged and never retransmitted",
        "capture with a larger buffer or a shorter snap length",
        hits=hits,
        severity="warning",
        costs=False,
    )


FINDERS = (
    Finder(missed_by_captures, ("capture-loss",)),
    Finder(missed_at_one_tap, ("capture-loss",)),
    Finder(clocks, ("clock",)),
    Finder(clocks_set_back, ("clock",)),
    Finder(clocks_set_forward, ("clock",)),
)
