"""ACKs, NAKs and responses of the peer, and the flow that they acknowledge.

A packet holds its destination QPN but not its source QPN. The acknowledged flow must be inferred:
from PSNs that only one flow of the opposite direction has sent, and from the UDP source port, which
Linux computes from both QPNs.

MRC responses get the form of RC ACKs, for the tracker and the measures. A SACK acknowledges the PSN
in its SETH; the meaning of its BTH.PSN is unsettled (docs/mrc.md). The derived columns hold the PSN
that a response refers to and distinguish responses, so that pairing, message completion and loss
work as for RC.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from ...kernels.kernel import Bool, Int, inlined, subkernel
from ..decode.mrc import EETH, ERTH, NETH, PETH, SETH
from ..statistics.histogram import Histograms, observe
from ..wire.bth import (
    ACKNOWLEDGE,
    PSN_MASK,
    SYNDROME_KIND_MASK,
    SYNDROME_NAK,
    SYNDROME_RNR_NAK,
    psn_add,
    psn_distance,
)
from ..wire.packets import PacketTable
from . import state as st
from .matching import OUTSTANDING
from .sequence import IN_FLIGHT_NS, await_resend, forget_answers
from .state import State, StreamRecord
from .window import has_slot, holds, horizon, slot_of

_TRIES = 256
"""Responses compared with candidates; a flow unpaired after this many stays unpaired."""
_CANDIDATES_FREE = 1 << 20
_CANDIDATES_PER_ANSWER = 64
"""With thousands of queue pairs between two hosts, a response cannot be compared with all of them:
the search then waits for as many responses as keep its cost linear."""
_HITS_NEEDED = 3
"""Responses that match only one flow before the two become a pair."""
_SAME_PORT = 4
"""Score of a candidate with the same UDP source port: more than those that its PSNs give."""
_MISMATCHES_ENDURED = 16
"""Consecutive responses to PSNs that the peer never sent after which a pair is dissolved: the queue
pair was recreated with another peer. Otherwise only long gaps in a capture cause this many."""


@inlined
def rdma_udp_sport(qp_a: Int, qp_b: Int) -> Int:
    """UDP source port that Linux drivers compute from both QP numbers.

    `rdma_calc_flow_label` and `rdma_flow_label_to_udp_sport` of the kernel's
    include/rdma/ib_verbs.h; the same for both directions.
    """
    v = np.int64(qp_a) * np.int64(qp_b)
    v ^= v >> 20
    v ^= v >> 40
    label = v & 0xFFFFF
    return ((label & 0x3FFF) ^ ((label & 0xFC000) >> 14)) | 0xC000


@inlined
def _was_sent(state: State, f: Int, psn: Int) -> bool:
    """True when flow `f` can have sent a request with this PSN recently."""
    stream = state.streams[2 * f + st.REQUESTS]
    if not stream.started:
        return False
    distance = psn_distance(psn, stream.next)
    return bool(-OUTSTANDING <= distance < 0)


@inlined
def _may_have_sent(state: State, f: Int, psn: Int) -> bool:
    """False when flow `f` skipped this PSN according to its window: a READ reserved it."""
    stream = state.streams[2 * f + st.REQUESTS]
    forgotten = psn_distance(psn, np.int64(stream.next)) < -horizon(state, stream)
    return bool(forgotten or holds(state, stream, psn))


@subkernel
def _part(state: State, f: Int) -> None:
    """Dissolve the pair of flow `f`; both search for a peer again."""
    peer = np.int64(state.flows[f].peer)
    for number in (np.int64(f), peer):
        flow = state.flows[number]
        flow.peer = -1
        flow.evidence = 0
        flow.candidate = -1
        flow.candidate_hits = 0
        flow.pairing_tries = 0
        flow.answers = 0
        flow.mismatches = 0
        flow.mismatches_in_row = 0
        forget_answers(flow)


@inlined
def _may_be_the_first(state: State, f: Int, stream: StreamRecord, psn: Int) -> bool:
    """True for a PSN below the first one seen that cannot have passed before the capture began.

    The answers, in flow `f`, began after the requests: they do not answer earlier ones.
    """
    if stream.restarts > 0 or psn_distance(psn, np.int64(stream.first)) >= 0:
        return False
    began = state.began[np.int64(stream.start_tap)]
    silent = state.flows[f].first_time >= stream.start_time
    return bool(silent and began <= stream.start_time - IN_FLIGHT_NS)


@inlined
def _names_the_first(state: State, f: Int, stream: StreamRecord, psn: Int, msn: Int) -> bool:
    """True for a NAK that names the first packet of a connection, lost before the tap.

    The receiver has completed no message (MSN 0), the tap did not see the missing PSN, and the
    capture already ran: the packet did not pass before it began. A retransmission of the PSN then
    proves that the sender had sent it.
    """
    return msn == 0 and _may_be_the_first(state, f, stream, psn)


@inlined
def _continues_the_first(state: State, f: Int, stream: StreamRecord, psn: Int, msn: Int) -> bool:
    """True for an ACK of `psn` whose receiver waits for packets lost before the tap.

    It acknowledges the end of the first message of the connection (MSN 1), and the tap saw this
    whole message only after a packet with a higher PSN. The PSNs from there to the first one seen
    were then lost as in `_names_the_first`, although no NAK names them; those seen later are
    retransmitted. An ACK for a PSN that the tap never saw proves nothing: the packet may have
    passed before the capture began.
    """
    if stream.below != st.BELOW_ENDS or msn != 1 or psn != stream.below_end:
        return False
    return _may_be_the_first(state, f, stream, np.int64(stream.below_next))


@inlined
def _lacks(state: State, stream: StreamRecord, psn: Int) -> bool:
    """True when the tap did not see this PSN of a stream: it is below the first, or in a gap."""
    if has_slot(state, stream, psn):
        return bool(state.slots[slot_of(stream, psn)].state != st.SEEN)
    return bool(psn_distance(psn, np.int64(stream.start_psn)) < 0)


@inlined
def _name_perhaps(
    state: State, f: Int, stream: StreamRecord, psn: Int, msn: Int, time: Int
) -> None:
    """Note that a NAK names `psn`, which this stream of a flow without a peer may have lost."""
    if _names_the_first(state, f, stream, psn, msn):
        stream.named = st.NAMED_PERHAPS
    elif (stream.named == 0 or stream.named == st.ASKED_PERHAPS) and _lacks(state, stream, psn):
        stream.named = st.ASKED_PERHAPS
    else:
        return
    stream.named_psn = psn
    stream.named_time = time


@subkernel
def _forget_question(state: State, first: Int, psn: Int, time: Int) -> None:
    """Clear the candidates for a NAK: it is for the peer of its flow, which counts it."""
    c = first
    while c >= 0:
        stream = state.streams[2 * c + st.REQUESTS]
        asked = stream.named == st.ASKED_PERHAPS and stream.named_psn == psn
        if asked and stream.named_time == time:
            stream.named = 0
        c = np.int64(state.flows[c].next_in_pair)


@subkernel
def _look_for_peer(state: State, f: Int, psn: Int, missed: Bool, msn: Int, time: Int) -> None:
    """Use `psn` as evidence for the peer of flow `f`; pair the two if it suffices.

    missed: a NAK names the PSN, with this MSN, at `time`. The flow that lost it may be identified
    before there is a pair: it begins to retransmit at this PSN.
    """
    flow = state.flows[f]
    seen = max(0, state.used[st.CANDIDATES_SEEN] - _CANDIDATES_PER_ANSWER)
    state.used[st.CANDIDATES_SEEN] = seen
    if seen > _CANDIDATES_FREE:
        return
    flow.pairing_tries += 1
    direction = 0 if flow.dst <= flow.src else 1
    best, best_score, ties = np.int64(-1), 0, 0
    c = np.int64(state.pairs[flow.pair].head[direction])
    while c >= 0:
        other = state.flows[c]
        if other.peer < 0 and c != f and _was_sent(state, c, psn):
            stream = state.streams[2 * c + st.REQUESTS]
            if missed:
                _name_perhaps(state, f, stream, psn, msn, time)
            score = 1
            if _may_have_sent(state, c, psn):
                score += 2
            if other.udp_sport == flow.udp_sport:
                score += _SAME_PORT
                if rdma_udp_sport(other.dest_qp, flow.dest_qp) == flow.udp_sport:
                    score += 8
            if score > best_score:
                best, best_score, ties = c, score, 1
            elif score == best_score:
                ties += 1
        seen += 1
        c = np.int64(other.next_in_pair)
    if ties == 1 and best_score < _SAME_PORT and not state.flows[best].ports_vary:
        c = np.int64(state.pairs[flow.pair].head[1 - direction])
        while c >= 0:  # another flow has the port of this one
            ties += c != f and state.flows[c].udp_sport == state.flows[best].udp_sport
            seen += 1
            c = np.int64(state.flows[c].next_in_pair)
    state.used[st.CANDIDATES_SEEN] = seen
    if ties != 1:
        return
    if flow.candidate == best:
        flow.candidate_hits += 1
    else:
        flow.candidate = best
        flow.candidate_hits = 1
    if best_score >= 8 or flow.candidate_hits >= _HITS_NEEDED:
        flow.peer = best
        state.flows[best].peer = f
        if missed:
            _forget_question(state, np.int64(state.pairs[flow.pair].head[direction]), psn, time)
        if best_score >= 8:
            flow.evidence |= st.EVIDENCE_UDP_SOURCE_PORT
            state.flows[best].evidence |= st.EVIDENCE_UDP_SOURCE_PORT


# Inlined: a call of its own would copy all array descriptors of `State`, for every ACK.
@inlined
def hear_answer(
    state: State, histograms: Histograms, f: Int, bits: Int, aeth: Int, psn: Int, time: Int
) -> Int:
    """Process an ACK, NAK or first response that flow `f` carries.

    `aeth` is -1 where the snap length cuts it off. Returns the event, or -1.
    """
    flow = state.flows[f]
    is_cut, aeth = aeth < 0, max(aeth, 0)
    kind = (aeth >> 24) & SYNDROME_KIND_MASK
    if flow.peer < 0 and flow.pairing_tries < _TRIES:
        missed = bits & ACKNOWLEDGE != 0 and (aeth >> 24) & 0x7F == SYNDROME_NAK
        _look_for_peer(state, f, psn, missed, aeth & PSN_MASK, time)
    event = -1
    if bits & ACKNOWLEDGE:
        if kind == SYNDROME_NAK:
            flow.naks += 1
            event = st.EVENT_NAK
        elif kind == SYNDROME_RNR_NAK:
            flow.rnr_naks += 1
            event = st.EVENT_RNR_NAK
    if flow.peer < 0:
        flow.early_naks += event == st.EVENT_NAK and (aeth >> 24) & 0x7F == SYNDROME_NAK
        return event
    peer = state.flows[flow.peer]
    flow.answers += 1
    if not _was_sent(state, flow.peer, psn):
        flow.mismatches += 1
        flow.mismatches_in_row = min(np.int64(flow.mismatches_in_row) + 1, _MISMATCHES_ENDURED)
        exact = flow.evidence & (st.EVIDENCE_CM | st.EVIDENCE_HOST_PROBE)
        if flow.mismatches_in_row == _MISMATCHES_ENDURED and not exact:
            _part(state, f)
        return event
    flow.mismatches_in_row = 0
    acknowledged = psn  # a response also acknowledges all earlier requests
    if not bits & ACKNOWLEDGE:
        flow.evidence |= st.EVIDENCE_READ_RESPONSE_PSN
    elif event == st.EVENT_NAK:
        flow.evidence |= st.EVIDENCE_NAK_PSN
        _hear_nak(state, histograms, np.int64(flow.peer), f, aeth, psn, time)
        acknowledged = psn_add(psn, -1)
    elif event == st.EVENT_RNR_NAK:
        peer.rnr_received += 1
        await_resend(peer, st.NAK_RNR, psn, time)
        acknowledged = psn_add(psn, -1)
    elif is_cut:
        flow.evidence |= st.EVIDENCE_ACK_PSN
        acknowledged = psn_add(psn, -1)  # a NAK says no more
    else:
        flow.evidence |= st.EVIDENCE_ACK_PSN
        stream = state.streams[2 * np.int64(flow.peer) + st.REQUESTS]
        if _continues_the_first(state, f, stream, psn, aeth & PSN_MASK):
            stream.named = st.NAMED
            stream.named_psn = stream.below_next
            stream.named_time = time
    if not peer.acked or psn_distance(acknowledged, peer.ack_psn) > 0:
        peer.acked = 1
        peer.ack_psn = acknowledged
    return event


@subkernel
def _hear_nak(
    state: State, histograms: Histograms, f: Int, answers: Int, aeth: Int, psn: Int, time: Int
) -> None:
    """Record a NAK for flow `f`: the receiver, whose answers are flow `answers`, lacks `psn` (or
    cannot serve it)."""
    flow, code = state.flows[f], (aeth >> 24) & 0x1F
    flow.nak_codes[min(code, 7)] += 1
    if code != 0:
        return
    stream = state.streams[2 * f + st.REQUESTS]
    if _names_the_first(state, answers, stream, psn, aeth & PSN_MASK):
        stream.named = st.NAMED
        stream.named_psn = psn
        stream.named_time = time
    if has_slot(state, stream, psn):
        slot = state.slots[slot_of(stream, psn)]
        if slot.state == st.MISSING:
            observe(histograms, f, st.GAP_TO_NAK, time - slot.time)
    await_resend(flow, st.NAK_PSN, psn, time)


_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_TOLD: Final = (
    "sack_bitmap", "psn_offset", "timestamp", "rcvd_bytes", "probe_id", "port_mask", "ev",
)  # fmt: skip
"""Fields that differ between responses and are equal at all taps."""


def with_answers(table: PacketTable) -> PacketTable:
    """The table with its derived columns; unchanged without MRC responses.

    SACKs, NACKs, probes and endpoint messages repeat PSNs: their fingerprint distinguishes copies
    at several taps from different packets.
    """
    mrc = table.mrc
    if mrc is None:
        return table
    answering = mrc[mrc["present"] & (SETH | NETH | PETH | ERTH | EETH) != 0]
    if not len(answering):
        return table
    mixed = answering["entropy"].astype(np.uint64) * _MIX
    for name in _TOLD:
        mixed = (mixed ^ answering[name].astype(np.int64).view(np.uint64)) * _MIX
        mixed ^= mixed >> np.uint64(29)
    answered_psn, fingerprint = table.psn.copy(), np.zeros(len(table), np.uint32)
    answers = answering[answering["present"] & (SETH | NETH) != 0]
    answered_psn[answers["row"]] = answers["psn"]
    fingerprint[answering["row"]] = (mixed >> np.uint64(40)).astype(np.uint32)
    return replace(table, answered_psn=answered_psn, fingerprint=fingerprint)
