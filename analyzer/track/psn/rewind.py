"""Detects go-back-N rewinds from the sender's packets: time, trigger and retransmissions."""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Bool, Int, inlined, subkernel
from ...statistics.histogram import Histograms, observe
from ...wire.psn import psn_add, psn_distance
from .. import state as st
from ..state import FlowRecord, State
from .window import has_slot, horizon, is_skipped, slot_of

_LOST_RESENDS = 64
"""Most retransmissions after a NAK that may be lost before the tap sees one."""
RESEND_AFTER_NS = 1_000_000
"""A late packet without a usable identification counts as retransmitted after this silence: ACK
timeouts of NICs start at about a millisecond, paths of one fabric differ by far less."""
SILENCE_NS = 100_000
"""A retransmission without a NAK after at least this silence counts as an ACK timeout."""


@inlined
def await_resend(flow: FlowRecord, kind: Int, psn: Int, time: Int) -> None:
    """Store a NAK (NAK_PSN or NAK_RNR) until the sender reacts; a repeated NAK is the same."""
    for known in range(st.NAKS_KEPT):
        if flow.nak_kind[known] == kind and flow.nak_psn[known] == psn:
            return
    at = np.int64(flow.nak_next)
    flow.nak_kind[at] = kind
    flow.nak_psn[at] = psn
    flow.nak_time[at] = time
    flow.nak_next = (at + 1) % st.NAKS_KEPT


@inlined
def asked_for(flow: FlowRecord, psn: Int) -> Int:
    """The stored NAK to which a retransmission of `psn` reacts, -1 without one.

    The NAK with this PSN, or else the nearest before it: the first retransmissions after that NAK
    may be lost before the tap.
    """
    nearest: Int
    best, nearest = -1, np.int64(_LOST_RESENDS)
    for at in range(st.NAKS_KEPT):
        if flow.nak_kind[at] != st.NAK_NONE:
            distance = psn_distance(psn, np.int64(flow.nak_psn[at]))
            if 0 <= distance < nearest:
                best, nearest = at, distance
    return best


@inlined
def forget_answers(flow: FlowRecord) -> None:
    """Drop the feedback about a sequence that has ended."""
    flow.acked = 0
    flow.in_rewind = 0
    for at in range(st.NAKS_KEPT):
        flow.nak_kind[at] = st.NAK_NONE


@inlined
def expects_again(flow: FlowRecord, which: Int, psn: Int) -> bool:
    """True when a packet with this PSN in stream `which` is probably a retransmission."""
    if which == st.REQUESTS:
        return bool(flow.in_rewind != 0 or asked_for(flow, psn) >= 0)
    return bool(0 <= psn_distance(psn, np.int64(flow.asked_psn)) < flow.asked_count)


@inlined
def ask_again(responder: FlowRecord, psn: Int, count: Int, begins: Bool) -> None:
    """Note a repeated request with `count` responses from `psn`: `responder` repeats them."""
    known = np.int64(responder.asked_count)
    offset = psn_distance(psn, np.int64(responder.asked_psn))
    if begins or known == 0 or offset < 0:
        responder.asked_psn = psn
        responder.asked_count = count
    else:
        responder.asked_count = max(known, offset + count)


@inlined
def asks_at_a_gap(state: State, f: Int, flow: FlowRecord, psn: Int, time: Int) -> bool:
    """True when a repeated READ reacts to a gap in its responses: an implied NAK.

    The responses continue after `psn`. Their flow is unknown while the flow has no peer; then only
    a request inside the PSNs of an earlier READ is proof.
    """
    if flow.peer >= 0:
        responses = state.streams[2 * flow.peer + st.RESPONSES]
        beyond = responses.started and psn_distance(psn, np.int64(responses.next)) < 0
        return bool(beyond and time - state.flows[flow.peer].last_time < SILENCE_NS)
    stream = state.streams[2 * f + st.REQUESTS]
    in_window = -psn_distance(psn, np.int64(stream.next)) <= horizon(state, stream)
    if not in_window:
        return False
    if has_slot(state, stream, psn):
        return bool(state.slots[slot_of(stream, psn)].dense == st.INSIDE_A_READ)
    return not is_skipped(stream, psn)


@subkernel
def note_resend(
    histograms: Histograms,
    f: Int,
    flow: FlowRecord,
    psn: Int,
    wire_bytes: Int,
    time: Int,
    implied: Bool,
    late: Bool,
) -> Bool:
    """Count a retransmitted request; True when it starts a rewind.

    `implied`: see `asks_at_a_gap`. `late`: later packets overtook the retransmission.
    """
    goes_back = not flow.in_rewind or psn_distance(psn, np.int64(flow.rewind_next)) < 0
    begins = goes_back and not late
    # An overtaken packet may be the last of the latest rewind; else it is a rewind of its own.
    straggler = late and flow.rewinds > 0 and psn_distance(psn, np.int64(flow.rewind_next)) < 0
    if begins or (late and not flow.in_rewind and not straggler):
        silence = time - flow.last_request_time
        nak = asked_for(flow, psn)
        if nak >= 0:
            flow.rewind_trigger = st.BY_NAK if flow.nak_kind[nak] == st.NAK_PSN else st.BY_RNR
            observe(histograms, f, st.NAK_TO_RESEND, time - flow.nak_time[nak])
            flow.nak_kind[nak] = st.NAK_NONE
        elif implied:
            flow.rewind_trigger = st.BY_IMPLIED
        elif silence >= SILENCE_NS:
            flow.rewind_trigger = st.BY_TIMEOUT
            observe(histograms, f, st.TIMEOUT, silence)
        else:
            flow.rewind_trigger = st.BY_UNKNOWN
    if begins:
        flow.rewinds += 1
    if not late:
        flow.in_rewind = 1
        flow.rewind_next = psn_add(psn, 1)
    flow.rewound_bytes += wire_bytes
    flow.retransmitted_by[flow.rewind_trigger] += 1
    return begins
