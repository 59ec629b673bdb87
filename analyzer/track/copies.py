"""Copies of packets that have no PSN order of their own: ACKs, NAKs, CNPs, datagrams."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..kernel import Int, inlined, subkernel
from ..psn import PSN_BITS, PSN_MASK
from .batch import DUPLICATE, MIRROR_DUPLICATE, NOT_SEQUENCED, TAP_COPY
from .state import RECENT_ENTRIES, USED_RECENTS
from .window import tap_bit


@inlined
def _note_id(flow: Any, psn: Int, ip_id: Int) -> None:
    """Learn whether different ACKs and datagrams carry different IPv4 identifications."""
    if psn != flow.loose_psn:  # certainly another packet
        if ip_id == flow.loose_id:
            flow.loose_ids_same += 1
        else:
            flow.loose_ids_different += 1
    flow.loose_psn = psn
    flow.loose_id = ip_id


@inlined
def _spread(psn: Int) -> Int:
    """Some bits of a PSN that also differ between ACKs of every 8th or 64th packet.

    Fibonacci hashing: the factor is 2^24 divided by the golden ratio, made odd.
    """
    return ((psn * 10_368_889) & PSN_MASK) >> (PSN_BITS - 8)


@subkernel
def judge_unordered(
    state: Any, flow: Any, psn: Int, opcode: Int, ip_id: Int, hop_limit: Int, tap: Int, ways: Int
) -> Int:
    """Verdict on a packet whose order cannot be judged: new, or the same one once more.

    Compares with the latest packet of the flow in the same place of a small
    table addressed by identification or, without, by PSN. Where identifications tell
    nothing (IPv6, or one for all packets) equal packets are legitimate, so only another
    tap makes a copy. `ways`, a power of two: packets kept of each place, 1 where places of
    packets on their way between two taps differ anyway.
    """
    if flow.recent < 0:
        flow.recent = state.used[USED_RECENTS]
        state.used[USED_RECENTS] += RECENT_ENTRIES
        for k in range(flow.recent, flow.recent + RECENT_ENTRIES):
            state.recents[k].used = 0
        flow.loose_psn = psn
        flow.loose_id = ip_id
    _note_id(flow, psn, ip_id)
    same, different = np.int64(flow.loose_ids_same), np.int64(flow.loose_ids_different)
    constant = flow.ipv6 != 0 or same * 16 > different
    # Identifications count up, so packets on their way between two taps do not meet here.
    address = _spread(psn) if constant else ip_id
    first = flow.recent + (address & (RECENT_ENTRIES - ways))
    bit = tap_bit(tap)
    for at in range(first, first + ways):
        entry = state.recents[at]
        if entry.used and entry.psn == psn and entry.opcode == opcode and entry.ip_id == ip_id:
            if entry.taps & bit == np.uint64(0) or (tap >= 63 and tap != entry.tap):
                state.copies[entry.tap, tap] += 1
                entry.taps |= bit
                return TAP_COPY
            if different > 0 and not constant:
                return DUPLICATE if hop_limit == entry.hop_limit else MIRROR_DUPLICATE
            break
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
