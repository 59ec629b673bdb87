"""Captures at fault: packets they missed, and clocks that jump."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ....results.diagnosis import Finding, Place
from ...case import Case
from ...finding import finding
from ...known import Known
from ...words import counted, duration, packets_of, plain
from .groups import hits_by_flow

OFFSET_NS = 1_000_000
"""Clocks that differ by more are named."""


def missed_by_captures(case: Case, _: Known) -> Iterator[Finding]:
    """Packets that were seen before and after a tap, or acknowledged, but not captured there."""
    if case.ways is None:
        return
    names = case.registry.tap_names
    for missed in case.ways.missed:
        flows, counts = np.unique(missed.flows, return_counts=True)
        packets = len(missed.flows)
        yield finding(
            case,
            "capture-loss",
            Place(capture=names[missed.tap]),
            hits_by_flow(flows, counts),
            packets + missed.passed,
            (int(missed.times.min()), int(missed.times.max())),
            f"the capture {plain(case.ways.names[missed.tap])} missed"
            f" {packets_of(packets, packets + missed.passed)}; the network did not lose them",
            "capture with a larger buffer or a shorter snap length there",
            confidence="proven",
            severity="warning",
            costs=False,
        )


def clocks(case: Case, _: Known) -> Iterator[Finding]:
    """Clocks that jump, or differ from those of most taps."""
    jumps: dict[str, int] = {}
    for clock in case.clocks:
        for tap in (clock.tap, clock.relative_to) if clock.steps else ():
            jumps[tap] = jumps.get(tap, 0) + clock.steps
    offsets = _offsets(case)
    usual = float(np.median([offset for offset, _ in offsets.values()])) if offsets else 0.0
    short = dict(zip(case.registry.tap_names, _short(case), strict=True))
    worst = max(jumps.values(), default=0)
    for tap, (offset, uncertainty) in offsets.items():
        differs = abs(offset - usual) > max(OFFSET_NS, uncertainty)
        jumping = jumps.get(tap) == worst > 0
        if not jumping and not differs:
            continue
        what = f"jumps {counted(jumps[tap], 'time')}" if jumping else "differs"
        off = f" by {duration(abs(offset - usual))}" if differs else ""
        yield finding(
            case,
            "clock",
            Place(capture=tap),
            {},
            0,
            (case.first_ns, case.last_ns),
            f"the clock of {plain(short[tap])} {what} from that of the other taps{off}",
            "synchronise the clocks (PTP); delays between these taps are not exact",
            severity="warning" if jumping else "note",
            costs=False,
        )


def _short(case: Case) -> list[str]:
    return case.registry.tap_names if case.ways is None else case.ways.names


def _offsets(case: Case) -> dict[str, tuple[float, float]]:
    """Offset and uncertainty of each tap's clock, from neighbour to neighbour."""
    beside: dict[str, list[tuple[str, float, float]]] = {}
    for clock in case.clocks:
        beside.setdefault(clock.relative_to, []).append(
            (clock.tap, clock.offset_ns, clock.uncertainty_ns)
        )
        beside.setdefault(clock.tap, []).append(
            (clock.relative_to, -clock.offset_ns, clock.uncertainty_ns)
        )
    found: dict[str, tuple[float, float]] = {}
    for root in beside:
        found.setdefault(root, (0.0, 0.0))
        waiting = [root]
        while waiting:
            tap = waiting.pop()
            for other, offset, uncertainty in beside[tap]:
                if other not in found:
                    mine = found[tap]
                    found[other] = (mine[0] + offset, mine[1] + uncertainty)
                    waiting.append(other)
    return found
