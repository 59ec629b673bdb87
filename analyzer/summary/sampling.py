"""Flows and taps seen only as samples (sFlow): estimates and unknown values."""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from typing import Any

from msgspec import structs

from ..results.base import facts_of
from ..results.captures import Sampling
from ..results.flow import Flow, Recovery
from ..wire.taps import SampledFrames, Taps

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
    whole = sum(n * rates.get(tap, 1.0) for tap, n in flow.taps.items())
    count = sum(flow.taps.values())
    one_in = whole / count
    recovery = structs.replace(flow.recovery, **_unknown(Recovery))
    statistics = structs.replace(
        flow.message_statistics, **dict.fromkeys(flow.message_statistics.__struct_fields__)
    )
    latency = structs.replace(flow.latency, **dict.fromkeys(flow.latency.__struct_fields__))
    sampling = Sampling(
        one_in, round(whole), round(flow.wire_bytes * one_in), 100 / sqrt(sum(seen.values()))
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
