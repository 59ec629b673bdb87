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
    """The taps with a gap that may hide packets of the flow: one between its first and its last
    packet at a tap that saw it, one during its whole life at any other."""
    return [tap for tap, of_tap in gaps.items() if any(_hides(gap, tap, flow) for gap in of_tap)]


def _hides(gap: Gap, tap: str, flow: Flow) -> bool:
    begin, end = flow.first_time_ns, flow.last_time_ns
    if tap not in flow.taps:
        begin, end = end, begin
    begun = gap.from_ns is None or gap.from_ns <= end
    return begun and (gap.until_ns is None or begin <= gap.until_ns)


def as_hidden(flow: Flow, gaps: Gaps) -> Flow:
    """The flow without what a gap hides: its losses and late packets; unchanged without a gap, if
    other taps saw all of it, or if no tap with a gap saw it and it has no loss or late packet."""
    if not (taps := gaps_in(flow, gaps)):
        return flow
    sequenced = flow.reordered_packets is not None
    lossy = sequenced and bool(flow.missing_packets != 0 or flow.recovered_packets)
    between = flow.lost_between_taps or flow.reordered_between_taps
    late = bool(flow.reordered_packets)
    if not set(taps) & set(flow.taps) and not (lossy or late or between):
        return flow
    changes: dict[str, object] = {}
    if flow.lost_between_taps is not None:
        changes |= {"lost_between_taps": None, "reordered_between_taps": None}
    if lossy:
        changes |= {"missing_packets": None, "capture_loss_suspected_packets": None}
    if lossy or late:
        changes |= {"reordered_packets": None, "reordering": None}
    if not changes:
        return flow
    what = "losses and late packets are unknown"
    note = f"the capture of {', '.join(taps)} has gaps while the flow lives: its {what}"
    return structs.replace(flow, **changes, notes=[note, *flow.notes])
