"""Flows and taps of which only samples were seen (sFlow): estimates, and what stays unknown."""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from typing import Any

import numpy as np
from msgspec import structs

from .frames import SampledFrames, Taps
from .kernel import subkernel
from .packets import I64, U16, U32, PacketTable
from .results import Flow
from .results_taps import Sampling

PSN_EVENTS = ("rewind", "sequence_restart")
"""Kinds of events that gaps between samples would feign."""


def note_samples(table: PacketTable, rate: U32, taps: Taps) -> None:
    """Add the sampled rows of a table to their taps; `rate` is 0 for rows that are no samples."""
    sums = np.zeros((len(taps), 3), np.int64)
    _add_samples(table.tap, rate, table.wire_bytes, sums)
    for tap in np.flatnonzero(sums[:, 0]).tolist():
        more = SampledFrames(*sums[tap].tolist())
        taps[tap].sampled = (taps[tap].sampled or SampledFrames()) + more


@subkernel
def _add_samples(tap: U16, rate: U32, wire_bytes: U32, sums: I64) -> None:
    """Add up samples, their rates and rate times wire bytes, int64[taps, 3]."""
    for i in range(len(rate)):
        one_in = np.int64(rate[i])
        if one_in > 0:
            t = np.uint64(tap[i])
            sums[t, 0] += 1
            sums[t, 1] += one_in
            sums[t, 2] += one_in * np.int64(wire_bytes[i])


def tap_sampling(sampled: SampledFrames) -> Sampling:
    """The estimate for the RoCE packets of one tap."""
    one_in = sampled.rates / sampled.frames
    error = 100 / sqrt(sampled.frames)
    return Sampling(one_in, sampled.rates, sampled.wire_bytes, error)


def sampled_taps(taps: Taps) -> dict[str, float]:
    """Mean sampling rate of the taps that saw samples only, by name."""
    return {tap.name: tap.sampled.rates / tap.sampled.frames for tap in taps.items if tap.sampled}


def as_sampled(flow: Flow, rates: Mapping[str, float]) -> Flow:
    """The flow with estimates, and without what samples cannot tell; as it is without samples.

    rates: of `sampled_taps`. Packets that passed several sampled ports count at each of them.
    """
    seen = {tap: n for tap, n in flow.taps.items() if tap in rates}
    if not seen:
        return flow
    whole = sum(n * rates.get(tap, 1.0) for tap, n in flow.taps.items())
    count = sum(flow.taps.values())
    one_in = whole / count
    unknown: dict[str, Any] = dict.fromkeys(
        (
            "reordered_packets",
            "retransmitted_packets",
            "recovered_packets",
            "duplicate_packets",
            "mirror_duplicates",
            "missing_packets",
            "capture_loss_suspected_packets",
            "sequence_restarts",
            "messages",
            "reordering",
            "goodput_bits_per_second",
        )
    )
    recovery = structs.replace(
        flow.recovery,
        retransmitted_by={},
        rewinds=None,
        rewound_bytes=None,
        gap_to_nak_ns=None,
        nak_to_resend_ns=None,
        timeout_ns=None,
    )
    statistics = structs.replace(
        flow.message_statistics, **dict.fromkeys(flow.message_statistics.__struct_fields__)
    )
    latency = structs.replace(flow.latency, **dict.fromkeys(flow.latency.__struct_fields__))
    sampling = Sampling(
        one_in, round(whole), round(flow.wire_bytes * one_in), 100 / sqrt(sum(seen.values()))
    )
    note = (
        f"sampled 1 in {one_in:.0f}: messages, loss, reordering and retransmissions are unknown,"
        " counts are of the samples"
    )
    return structs.replace(
        flow,
        **unknown,
        recovery=recovery,
        message_statistics=statistics,
        latency=latency,
        sampling=sampling,
        notes=[note, *flow.notes],
    )
