"""Go-back-N as the sender's packets show it: when it went back, why, and what it sent again."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..kernel import Int, inlined, subkernel
from ..measures.histogram import observe
from ..psn import psn_add, psn_distance
from .state import (
    BY_IMPLIED,
    BY_NAK,
    BY_RNR,
    BY_TIMEOUT,
    BY_UNKNOWN,
    NAK_NONE,
    NAK_PSN,
    NAK_TO_RESEND,
    NAKS_KEPT,
    TIMEOUT,
)

_LOST_RESENDS = 64
SILENCE_NS = 100_000
"""A resend after at least this silence, with no NAK, is blamed on the ACK timeout."""


@inlined
def await_resend(flow: Any, kind: Int, psn: Int, time: Int) -> None:
    """Remember a NAK (NAK_PSN or NAK_RNR) until the sender acts on it."""
    at = np.int64(flow.nak_next)
    flow.nak_kind[at] = kind
    flow.nak_psn[at] = psn
    flow.nak_time[at] = time
    flow.nak_next = (at + 1) % NAKS_KEPT


@inlined
def asked_for(flow: Any, psn: Int) -> Int:
    """Which remembered NAK a resend of `psn` answers, -1 if none.

    One that names this PSN, or else the nearest before it: what was sent
    first in answer to that NAK may have been lost before the tap.
    """
    best, nearest = -1, np.int64(_LOST_RESENDS)
    for at in range(NAKS_KEPT):
        if flow.nak_kind[at] != NAK_NONE:
            distance = psn_distance(psn, np.int64(flow.nak_psn[at]))
            if 0 <= distance < nearest:
                best, nearest = at, distance
    return best


@subkernel
def note_resend(
    histograms: Any,
    f: Int,
    flow: Any,
    psn: Int,
    wire_bytes: Int,
    time: Int,
    implied: bool,
    late: bool,
) -> bool:
    """Count one request sent again; True when the sender has just gone back.

    `late`: the resent packet itself was overtaken by what was sent after it.
    """
    begins = not late and (not flow.in_rewind or psn_distance(psn, np.int64(flow.rewind_next)) < 0)
    if begins:
        flow.rewinds += 1
        silence = time - flow.last_request_time
        nak = asked_for(flow, psn)
        if nak >= 0:
            flow.rewind_trigger = BY_NAK if flow.nak_kind[nak] == NAK_PSN else BY_RNR
            observe(histograms, f, NAK_TO_RESEND, time - flow.nak_time[nak])
            flow.nak_kind[nak] = NAK_NONE
        elif implied:
            flow.rewind_trigger = BY_IMPLIED
        elif silence >= SILENCE_NS:
            flow.rewind_trigger = BY_TIMEOUT
            observe(histograms, f, TIMEOUT, silence)
        else:
            flow.rewind_trigger = BY_UNKNOWN
    if not late:
        flow.in_rewind = 1
        flow.rewind_next = psn_add(psn, 1)
    flow.rewound_bytes += wire_bytes
    flow.retransmitted_by[flow.rewind_trigger] += 1
    return begins
