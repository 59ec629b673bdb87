"""What captures hide of flows and hops: gaps, and frames that were only sampled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any

from msgspec import structs

from ..results.base import facts_of
from ..results.captures import Sampling
from ..results.flow import Flow, Recovery
from ..wire.taps import Gap, SampledFrames, Taps

# What gaps in the captures of taps hide of flows and hops.

Gaps = Mapping[str, Sequence[Gap]]
"""By the name of a tap."""


def gaps_of(taps: Taps) -> dict[str, list[Gap]]:
    """The taps that have gaps."""
    by_tap = {tap.name: taps.carrier(n).gaps for n, tap in enumerate(taps.items)}
    return {name: gaps for name, gaps in by_tap.items() if gaps}


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


# Flows and taps seen only as samples (sFlow): estimates and unknown values.

PSN_EVENTS = ("rewind", "sequence_restart")
"""Kinds of events that gaps between samples would falsely cause."""


def tap_sampling(sampled: SampledFrames) -> Sampling:
    """The estimate for the RoCE packets of one tap."""
    one_in = sampled.rates / sampled.frames
    error = 100 / sqrt(sampled.frames)
    return Sampling(one_in, sampled.rates, sampled.wire_bytes, error)


def sampled_taps(taps: Taps) -> dict[str, float]:
    """Mean sampling rate of the taps with samples only, by name."""
    return {tap.name: tap.sampled.rates / tap.sampled.frames for tap in taps.items if tap.sampled}


def as_sampled(flow: Flow, rates: Mapping[str, float]) -> Flow:
    """The flow with estimates, without values that samples cannot give; unchanged without samples.

    rates: from `sampled_taps`. Packets that passed several sampled ports count at each port.
    """
    seen = {tap: n for tap, n in flow.taps.items() if tap in rates}
    if not seen:
        return flow
    estimate = sum(n * rates.get(tap, 1.0) for tap, n in flow.taps.items())
    count = sum(flow.taps.values())
    one_in = estimate / count
    recovery = structs.replace(flow.recovery, **_unknown(Recovery))
    statistics = structs.replace(
        flow.message_statistics, **dict.fromkeys(flow.message_statistics.__struct_fields__)
    )
    latency = structs.replace(flow.latency, **dict.fromkeys(flow.latency.__struct_fields__))
    sampling = Sampling(
        one_in, round(estimate), round(flow.wire_bytes * one_in), 100 / sqrt(sum(seen.values()))
    )
    note = (
        f"sampled 1 in {one_in:.0f}: messages, loss, reordering and retransmissions are unknown,"
        " counts are those of the samples"
    )
    return structs.replace(
        flow,
        **_unknown(Flow),
        recovery=recovery,
        message_statistics=statistics,
        latency=latency,
        sampling=sampling,
        notes=[note, *flow.notes],
    )


def _unknown(kind: type) -> dict[str, Any]:
    """None for each field that samples cannot give."""
    return {fact.name: None for fact in facts_of(kind) if not fact.from_samples}
