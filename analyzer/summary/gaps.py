"""What gaps in the captures of taps hide of flows and hops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import structs

from ..results.flow import Flow
from ..wire.taps import Gap, Taps

Gaps = Mapping[str, Sequence[Gap]]
"""By the name of a tap."""


def gaps_of(taps: Taps) -> dict[str, list[Gap]]:
    """The taps that have gaps."""
    found = {tap.name: taps.carrier(n).gaps for n, tap in enumerate(taps.items)}
    return {name: gaps for name, gaps in found.items() if gaps}


def gaps_in(flow: Flow, gaps: Gaps) -> list[str]:
    """The taps of the flow with a gap between its first and its last packet."""
    return [
        tap
        for tap in flow.taps
        if any(
            (gap.from_ns is None or gap.from_ns <= flow.last_time_ns)
            and (gap.until_ns is None or flow.first_time_ns <= gap.until_ns)
            for gap in gaps.get(tap, ())
        )
    ]


def as_hidden(flow: Flow, gaps: Gaps) -> Flow:
    """The flow without what a gap hides: its losses; unchanged without a gap, or if other taps
    saw all of it."""
    if not (taps := gaps_in(flow, gaps)):
        return flow
    changes: dict[str, object] = {}
    if flow.lost_between_taps is not None:
        changes |= {"lost_between_taps": None, "reordered_between_taps": None}
    if flow.missing_packets or flow.recovered_packets:
        changes |= {"missing_packets": None, "capture_loss_suspected_packets": None}
    if not changes:
        return flow
    note = f"the capture of {', '.join(taps)} has gaps while the flow lives: its losses are unknown"
    return structs.replace(flow, **changes, notes=[note, *flow.notes])
