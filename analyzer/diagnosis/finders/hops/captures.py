"""Captures at fault: packets they missed, and clocks that jump."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ....results.diagnosis import Finding, Place
from ...case import Case
from ...finding import finding
from ...known import Known
from ...words import duration, packets_of, plain
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
    """Clocks of neighbouring taps that jump, or differ."""
    for clock in case.clocks:
        offset = abs(clock.offset_ns)
        differs = offset > max(OFFSET_NS, clock.uncertainty_ns)
        if not clock.steps and not differs:
            continue
        what = f"jumps {clock.steps} times against" if clock.steps else "differs from"
        yield finding(
            case,
            "clock",
            Place(capture=clock.tap),
            {},
            0,
            (case.first_ns, case.last_ns),
            f"the clock of {plain(clock.tap)} {what} that of {plain(clock.relative_to)}"
            f" by {duration(offset)} (+-{duration(clock.uncertainty_ns)})",
            "synchronise the clocks (PTP); delays between these taps are not exact",
            severity="warning" if clock.steps else "note",
            costs=False,
        )
