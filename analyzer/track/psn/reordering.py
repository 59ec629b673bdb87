"""RFC 4737 reordering metrics of one stream, exact and streaming.

The RFC defines everything over the arrivals s[1], s[2], ... of first copies. A
late packet i refers to j, the first arrival with a higher number. This is the
packet that skipped i's PSN; the slot of a missing PSN records it.
"""

from __future__ import annotations

from ....kernels.kernel import Int, inlined, subkernel
from ...statistics.histogram import Histograms, observe
from .. import state as st
from ..state import LateRecord, State, StreamRecord
from .window import held_beyond


@inlined
def note_in_order(stream: StreamRecord) -> Int:
    """Count an in-order arrival; returns its index."""
    index = stream.arrivals
    stream.arrivals += 1
    stream.run += 1
    return index


@subkernel
def note_late(
    state: State, histograms: Histograms, flow: Int, stream: StreamRecord, at: Int, time: Int
) -> Int:
    """Count a late arrival whose missing slot is `at`; returns its index.

    Extent (section 4.2), late time (4.3), byte offset (4.4), gaps between
    discontinuities (4.5), reordering-free runs (4.6), n-reordering (5.4).
    """
    index = stream.arrivals
    stream.arrivals += 1
    stream.reordered += 1
    slot = state.slots[at]
    jump, jump_time, dense = slot.arrival, slot.time, slot.dense
    extent = index - jump
    stream.max_extent = max(stream.max_extent, extent)
    observe(histograms, flow, st.EXTENT, extent)
    observe(histograms, flow, st.LATE_TIME, time - jump_time)
    held, held_bytes = held_beyond(state, stream, slot.psn)
    observe(histograms, flow, st.HELD_PACKETS, held)
    observe(histograms, flow, st.BYTE_OFFSET, held_bytes)

    if stream.reordered == 1:
        stream.first_gap_arrival = jump
        stream.first_gap_time = jump_time
        stream.first_run = stream.run
    if jump > stream.last_gap_arrival:
        if stream.reordered > 1:
            observe(histograms, flow, st.GAP_PACKETS, jump - stream.last_gap_arrival)
            observe(histograms, flow, st.GAP_TIME, jump_time - stream.last_gap_time)
        stream.last_gap_arrival = jump
        stream.last_gap_time = jump_time

    if stream.run > 0:
        stream.runs += 1
        stream.run_packets += stream.run
        stream.run_packets_squared += stream.run * stream.run
        stream.run = 0

    if stream.late == 0:
        state.used[st.USED_LATES] += 1
        stream.late = state.used[st.USED_LATES]
    late = state.lates[stream.late - 1]
    degree = index - 1 - _latest_lower(stream, late, dense, jump)
    if degree > 0:
        stream.max_n = max(stream.max_n, degree)
        late.n_counts[min(degree, st.STACK) - 1] += 1
    _push_late(stream, late, dense, index)
    return index


@inlined
def _latest_lower(stream: StreamRecord, late: LateRecord, dense: Int, jump: Int) -> Int:
    """Index of the latest earlier arrival with a lower number.

    Arrivals before `jump` are all lower; from `jump` on only other late
    packets can be. A stack keeps those that may still matter: ascending
    numbers, latest on top. Entries above the present packet are dropped,
    because the present packet is lower and later.
    """
    while stream.late_depth > 0 and late.late_dense[stream.late_depth - 1] > dense:
        stream.late_depth -= 1
    if stream.late_depth > 0:
        return max(jump - 1, late.late_arrival[stream.late_depth - 1])
    if stream.floor_dense < dense:
        return max(jump - 1, stream.floor_arrival)
    return jump - 1


@inlined
def _push_late(stream: StreamRecord, late: LateRecord, dense: Int, index: Int) -> None:
    if stream.late_depth == st.STACK:
        stream.floor_dense = late.late_dense[0]
        stream.floor_arrival = late.late_arrival[0]
        for k in range(1, st.STACK):
            late.late_dense[k - 1] = late.late_dense[k]
            late.late_arrival[k - 1] = late.late_arrival[k]
        stream.late_depth -= 1
    late.late_dense[stream.late_depth] = dense
    late.late_arrival[stream.late_depth] = index
    stream.late_depth += 1
