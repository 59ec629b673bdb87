"""Go-back-N as the sender's packets show it: when it went back, why, and what it sent again."""

from __future__ import annotations

from typing import Any

from ..kernel import subkernel
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
    TIMEOUT,
)

SILENCE_NS = 100_000
"""A resend after at least this silence, with no NAK, is blamed on the ACK timeout."""


@subkernel
def note_resend(
    histograms: Any, f: int, flow: Any, psn: int, wire_bytes: int, time: int, implied: bool
) -> bool:
    """Count one request sent again; True when the sender has just gone back."""
    begins = not flow.in_rewind or psn_distance(psn, flow.rewind_next) < 0
    if begins:
        flow.rewinds += 1
        silence = time - flow.last_request_time
        if flow.nak_pending != NAK_NONE:
            flow.rewind_trigger = BY_NAK if flow.nak_pending == NAK_PSN else BY_RNR
            observe(histograms, f, NAK_TO_RESEND, time - flow.nak_time)
            flow.nak_pending = NAK_NONE
        elif implied:
            flow.rewind_trigger = BY_IMPLIED
        elif silence >= SILENCE_NS:
            flow.rewind_trigger = BY_TIMEOUT
            observe(histograms, f, TIMEOUT, silence)
        else:
            flow.rewind_trigger = BY_UNKNOWN
    flow.in_rewind = 1
    flow.rewind_next = psn_add(psn, 1)
    flow.rewound_bytes += wire_bytes
    flow.retransmitted_by[flow.rewind_trigger] += 1
    return begins
