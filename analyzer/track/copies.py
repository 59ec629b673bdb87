"""Copies of packets that have no PSN order of their own: ACKs, NAKs, CNPs, datagrams."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..kernel import Int, subkernel
from .batch import DUPLICATE, MIRROR_DUPLICATE, NOT_SEQUENCED, TAP_COPY
from .sequence import tells_transmissions_apart
from .state import RECENT_ENTRIES, USED_RECENTS
from .window import tap_bit


@subkernel
def judge_unordered(
    state: Any, flow: Any, psn: Int, opcode: Int, ip_id: Int, hop_limit: Int, tap: Int
) -> Int:
    """Verdict on a packet whose order cannot be judged: new, or the same one once more.

    Compares with the latest packet of the flow in the same place of a small
    table addressed by identification or, without, by PSN. Without identifications (IPv6)
    equal packets are legitimate, so only another tap makes a copy.
    """
    if flow.recent < 0:
        flow.recent = state.used[USED_RECENTS]
        state.used[USED_RECENTS] += RECENT_ENTRIES
        for k in range(flow.recent, flow.recent + RECENT_ENTRIES):
            state.recents[k].used = 0
    apart = tells_transmissions_apart(flow)
    # Identifications count up, so packets on their way between two taps do not meet here.
    address = ip_id if apart else psn
    entry = state.recents[flow.recent + (address & (RECENT_ENTRIES - 1))]
    bit = tap_bit(tap)
    if (
        entry.used
        and entry.psn == psn
        and entry.opcode == opcode
        and (entry.ip_id == ip_id or not apart)
    ):
        if entry.taps & bit == np.uint64(0) or (tap >= 63 and tap != entry.tap):
            state.copies[entry.tap, tap] += 1
            entry.taps |= bit
            return TAP_COPY
        if apart:
            return DUPLICATE if hop_limit == entry.hop_limit else MIRROR_DUPLICATE
    entry.used = 1
    entry.psn = psn
    entry.opcode = opcode
    entry.ip_id = ip_id
    entry.hop_limit = hop_limit
    entry.tap = tap
    entry.taps = bit
    return NOT_SEQUENCED
