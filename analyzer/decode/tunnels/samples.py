"""Adds sFlow samples to the taps that saw them."""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import subkernel
from ...wire.packets import I64, U16, U32, PacketTable
from ...wire.taps import SampledFrames, Taps


def note_samples(table: PacketTable, rate: U32, taps: Taps) -> None:
    """Add the sampled rows of a table to their taps; `rate` is 0 for rows without sampling."""
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
