"""Copies of packets without a PSN sequence: ACKs, NAKs, CNPs, datagrams."""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Int, Records, inlined, subkernel
from ...wire.psn import PSN_BITS, PSN_MASK
from ..batch import DUPLICATE, MIRROR_DUPLICATE, NOT_SEQUENCED, TAP_COPY
from ..state import (
    FIRST_RECENT_BITS,
    LEAST_RECENT_BITS,
    MAX_RECENT_BITS,
    MAX_RECENTS,
    TAPS,
    USED_RECENTS,
    FlowRecord,
    State,
)
from .window import note_copy, tap_bit

_WAYS_BITS = 3
"""log2 of the packets kept per place if there are several taps: packets in flight between two taps
may share a place. With one tap each place keeps the latest packet."""


@inlined
def _note_id(flow: FlowRecord, psn: Int, ip_id: Int) -> None:
    """Learn whether different ACKs and datagrams carry different IPv4 identifications."""
    if psn != flow.loose_psn:  # certainly a different packet
        if ip_id == flow.loose_id:
            flow.loose_ids_same += 1
        else:
            flow.loose_ids_different += 1
    flow.loose_psn = psn
    flow.loose_id = ip_id


@inlined
def _place(bits: Int, constant: bool, psn: Int, ip_id: Int, ways: Int) -> Int:
    """The first of the `ways` entries for this packet in a table of 2^bits.

    Identifications count up, so packets in flight between two taps do not collide. PSNs are spread
    by Fibonacci hashing, so those of every 8th or 64th packet do not collide either; the factor is
    2^24 divided by the golden ratio, made odd. Packets that collide in a larger table also collide
    in a smaller one.
    """
    if constant:
        address = ((psn * 10_368_889) & PSN_MASK) >> (PSN_BITS - bits)
    else:
        address = ip_id & ((1 << bits) - 1)
    return np.int64(address & -ways)


@inlined
def ids_say_nothing(flow: FlowRecord) -> bool:
    """Whether the packets without a PSN sequence have no usable identifications."""
    same, different = np.int64(flow.loose_ids_same), np.int64(flow.loose_ids_different)
    return bool(flow.no_ids != 0 or same * 16 > different)


@inlined
def ways_of(state: State) -> Int:
    """Entries per place."""
    return np.int64(1 << _WAYS_BITS if state.used[TAPS] > 1 else 1)


@subkernel
def spread(former: Records, table: Records, bits: Int, constant: bool, ways: Int) -> None:
    """Enter the packets of a table into an empty one of 2^bits entries."""
    for k in range(len(former)):
        entry = former[k]
        if entry.used:
            at = _place(bits, constant, np.int64(entry.psn), np.int64(entry.ip_id), ways)
            for free in range(at, at + ways):
                if not table[free].used:
                    table[free] = entry
                    break


@subkernel
def _new_table(state: State, flow: FlowRecord, bits: Int) -> None:
    """Allocate 2^bits recent packets of a flow.

    The caller has checked the capacity of the pool.
    """
    flow.recent = state.used[USED_RECENTS]
    flow.recent_bits = bits
    state.used[USED_RECENTS] += np.int64(1) << bits  # never used before: all zeros


@subkernel
def _make_room(state: State, flow: FlowRecord, constant: bool, first: Int, ways: Int) -> bool:
    """Enlarge a flow's table if the place at `first` is full of packets still expected at a tap.

    A packet is expected until all taps have seen it, because the taps in series are unknown. A
    table below its first size drops none. False if nothing changed.
    """
    oldest = state.recents[first + ways - 1]
    bits = np.int64(flow.recent_bits)
    all_taps = (tap_bit(state.used[TAPS] - 1) << np.uint64(1)) - np.uint64(1)
    if not oldest.used or (
        bits >= FIRST_RECENT_BITS
        and (
            ways == 1
            or oldest.taps == all_taps
            or bits >= MAX_RECENT_BITS
            or state.used[USED_RECENTS] + (2 << bits) > MAX_RECENTS
        )
    ):
        return False
    former = np.int64(flow.recent)
    wider: Int = max(bits + 1, np.int64(FIRST_RECENT_BITS))
    _new_table(state, flow, wider)
    table = state.recents[flow.recent : flow.recent + (np.int64(1) << wider)]
    spread(state.recents[former : former + (np.int64(1) << bits)], table, wider, constant, ways)
    return True


# Inlined: a call of its own would copy all array descriptors of `State`, for every ACK.
@inlined
def judge_unordered(
    state: State, flow: FlowRecord, psn: Int, opcode: Int, ip_id: Int, hop_limit: Int, tap: Int
) -> Int:
    """Verdict on a packet without a PSN sequence: new, or a copy.

    Compares with the latest packets of the flow in the same place of a small table, addressed by
    identification, or by PSN if identifications are unusable (IPv6, or constant). In that case
    equal packets are legitimate: only a packet at another tap is a copy, of the oldest packet that
    this tap has not seen.
    """
    if flow.recent < 0:
        _new_table(state, flow, LEAST_RECENT_BITS)
        flow.loose_psn = psn
        flow.loose_id = ip_id
    _note_id(flow, psn, ip_id)
    constant = ids_say_nothing(flow)
    bit = tap_bit(tap)
    ways = ways_of(state)
    first = flow.recent + _place(flow.recent_bits, constant, psn, ip_id, ways)
    again = -1
    for at in range(first + ways - 1, first - 1, -1):
        entry = state.recents[at]
        if entry.used and entry.psn == psn and entry.opcode == opcode and entry.ip_id == ip_id:
            if entry.taps & bit == np.uint64(0) or (tap >= 63 and tap != entry.tap):
                note_copy(state, entry.tap, tap)
                entry.taps |= bit
                return TAP_COPY
            again = at
    if again >= 0 and flow.loose_ids_different > 0 and not constant:
        entry = state.recents[again]
        return DUPLICATE if hop_limit == entry.hop_limit else MIRROR_DUPLICATE
    while _make_room(state, flow, constant, first, ways):
        first = flow.recent + _place(flow.recent_bits, constant, psn, ip_id, ways)
    for at in range(first + ways - 1, first, -1):
        state.recents[at] = state.recents[at - 1]
    entry = state.recents[first]
    entry.used = 1
    entry.psn = psn
    entry.opcode = opcode
    entry.ip_id = ip_id
    entry.hop_limit = hop_limit
    entry.tap = tap
    entry.taps = bit
    return NOT_SEQUENCED
