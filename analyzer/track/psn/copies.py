"""Copies of packets without a PSN sequence: ACKs, NAKs, CNPs, datagrams."""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Int, inlined, subkernel
from ...wire.psn import PSN_BITS, PSN_MASK
from ..batch import DUPLICATE, MIRROR_DUPLICATE, NOT_SEQUENCED, TAP_COPY
from ..state import FIRST_RECENT_BITS, MAX_RECENT_BITS, MAX_RECENTS, USED_RECENTS, FlowRecord, State
from .window import note_copy, tap_bit

_WAYS_BITS = 3
"""log2 of the packets kept of each place, where copies may come from another tap: places of
packets on their way between two taps may coincide. With one tap each place keeps the latest
packet."""


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
def _first_of_place(flow: FlowRecord, constant: bool, psn: Int, ip_id: Int, ways: Int) -> Int:
    """The first of the `ways` entries for this packet.

    Identifications count up, so packets on their way between two taps do not meet there. PSNs
    are spread by Fibonacci hashing: so those of every 8th or 64th packet differ as well. The
    factor is 2^24 divided by the golden ratio, made odd.
    """
    bits = np.int64(flow.recent_bits)
    if constant:
        address = ((psn * 10_368_889) & PSN_MASK) >> (PSN_BITS - bits)
    else:
        address = ip_id & ((1 << bits) - 1)
    return np.int64(flow.recent) + (address & -ways)


@subkernel
def _new_table(state: State, flow: FlowRecord, bits: Int) -> Int:
    """Allocate 2^bits recent packets of a flow; returns its previous table, -1 without one.

    The caller has checked the capacity of the pool.
    """
    former = np.int64(flow.recent)
    flow.recent = state.used[USED_RECENTS]
    flow.recent_bits = bits
    state.used[USED_RECENTS] += 1 << bits  # never used before: all zeros
    return former


@subkernel
def _make_room(state: State, flow: FlowRecord, constant: bool, first: Int, ways: Int) -> bool:
    """Double a flow's table if the place at `first` is full of packets still expected.

    A packet is expected until all taps have seen it, because the taps in series are unknown. False
    when nothing changed.
    """
    oldest = state.recents[first + ways - 1]
    bits = np.int64(flow.recent_bits)
    all_taps = (tap_bit(len(state.copies) - 1) << np.uint64(1)) - np.uint64(1)
    if (
        not oldest.used
        or oldest.taps == all_taps
        or bits >= MAX_RECENT_BITS
        or state.used[USED_RECENTS] + (2 << bits) > MAX_RECENTS
    ):
        return False
    former = _new_table(state, flow, bits + 1)
    for k in range(former, former + (1 << bits)):
        entry = state.recents[k]
        if entry.used:
            at = _first_of_place(flow, constant, np.int64(entry.psn), np.int64(entry.ip_id), ways)
            for free in range(at, at + ways):
                if not state.recents[free].used:
                    state.recents[free] = entry
                    break
    return True


@subkernel
def judge_unordered(
    state: State, flow: FlowRecord, psn: Int, opcode: Int, ip_id: Int, hop_limit: Int, tap: Int
) -> Int:
    """Verdict on a packet without a PSN sequence: new, or a copy.

    Compares with the latest packets of the flow in the same place of a small
    table addressed by identification or, without, by PSN. Without usable identifications (IPv6, or
    one for all packets) equal packets are legitimate, so only a packet at another tap is a copy, of
    the oldest that this tap has not seen yet.
    """
    if flow.recent < 0:
        _new_table(state, flow, FIRST_RECENT_BITS)
        flow.loose_psn = psn
        flow.loose_id = ip_id
    _note_id(flow, psn, ip_id)
    same, different = np.int64(flow.loose_ids_same), np.int64(flow.loose_ids_different)
    constant = bool(flow.no_ids != 0 or same * 16 > different)
    bit = tap_bit(tap)
    ways = 1 << _WAYS_BITS if len(state.copies) > 1 else 1
    first = _first_of_place(flow, constant, psn, ip_id, ways)
    again = -1
    for at in range(first + ways - 1, first - 1, -1):
        entry = state.recents[at]
        if entry.used and entry.psn == psn and entry.opcode == opcode and entry.ip_id == ip_id:
            if entry.taps & bit == np.uint64(0) or (tap >= 63 and tap != entry.tap):
                note_copy(state, entry.tap, tap)
                entry.taps |= bit
                return TAP_COPY
            again = at
    if again >= 0 and different > 0 and not constant:
        entry = state.recents[again]
        return DUPLICATE if hop_limit == entry.hop_limit else MIRROR_DUPLICATE
    if ways > 1:
        while _make_room(state, flow, constant, first, ways):
            first = _first_of_place(flow, constant, psn, ip_id, ways)
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
