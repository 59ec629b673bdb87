"""The verdict on every PSN: in order, ahead, late, retransmitted, duplicate.

A flow has two streams that must never be mixed: its own requests, and its READ responses and atomic
ACKs, which carry PSNs of the other side's requests.
"""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Int, inlined, subkernel
from ...statistics.density import DensityArrays, density_push
from ...statistics.histogram import Histograms
from ...wire.opcodes import BEGINS, ENDS, MARKS_RESENDS, READ_REQUEST, UC
from ...wire.psn import id_distance, psn_add, psn_distance
from .. import batch as verdicts
from .. import state as st
from ..state import FlowRecord, State, StreamRecord
from .reordering import note_in_order, note_late
from .reserved import advance, resolve_read, responses_of
from .rewind import RESEND_AFTER_NS, await_resend, expects_again
from .window import (
    Packet,
    claim,
    forget_missing,
    has_slot,
    is_skipped,
    note_copy,
    open_gap,
    reach,
    slot_of,
    tap_bit,
    tap_flag,
    write_seen,
)

_NEAR_IDS = 256
"""An identification at most N below another was most likely assigned shortly before it."""
TWIN_WITHIN_NS = 20_000
"""A repeated packet without identification counts as duplicated by the network within this time and
directly after the original; later, as retransmitted. The position does not matter unless the flow's
identifications are known to be all the same."""

IDS_DATE_WITHIN_NS = 20_000_000
"""Identifications count modulo 2^16, for all queue pairs of a fast NIC together: after this time
"before" and "after" are meaningless. Late packets arrive sooner, timeouts are often longer."""

_START_REACH = 1 << 12
"""PSNs before the first one that may still be in flight on slower paths: more than the slowest path
of a fabric holds for one flow."""


@inlined
def dates_transmissions(flow: FlowRecord) -> bool:
    """True when the flow's IPv4 identifications move forward, so that they date transmissions."""
    others = flow.ids_other + flow.ids_same
    return bool(flow.no_ids == 0 and flow.ids_ascending >= 8 and flow.ids_ascending > 16 * others)


@inlined
def _sent_just_before(flow: FlowRecord, sent_id: Int, other: Int) -> bool:
    """A guess for a new flow with too few identifications to be certain."""
    no_evidence_against = flow.no_ids == 0 and flow.ids_other + flow.ids_same == 0
    return bool(no_evidence_against and -_NEAR_IDS <= id_distance(sent_id, other) < 0)


@inlined
def tells_transmissions_apart(flow: FlowRecord) -> bool:
    """True when different packets of the flow are known to carry different identifications."""
    same, different = np.int64(flow.ids_same), np.int64(flow.ids_ascending) + flow.ids_other
    return bool(flow.no_ids == 0 and different > 0 and same * 16 <= different)


@inlined
def _gap_is_certain(
    state: State, flow: FlowRecord, stream: StreamRecord, which: Int, bits: Int
) -> bool:
    """True when every PSN between the expected and the present packet must exist in this stream.

    Requests are consecutive. Responses are consecutive within one READ; between READs and atomics
    only if the other side sends no other requests.
    """
    if which != st.RESPONSES:
        return True
    if not bits & BEGINS:
        return True
    if flow.peer < 0:
        return False
    peer = state.flows[flow.peer]
    return bool(peer.read_requests + peer.atomic_requests == peer.request_packets)


@inlined
def _is_noise(stream: StreamRecord, distance: Int) -> bool:
    """True for a wide gap in a stream that consists mostly of gaps."""
    if distance < st.WIDE_GAP:
        return False
    unseen = stream.missing + stream.missing_evicted
    return bool(unseen > st.MISSING_PER_ARRIVAL * stream.arrivals + st.MAX_WINDOW)


@subkernel
def _skip_before_the_start(state: State, flow: FlowRecord, stream: StreamRecord, psn: Int) -> None:
    """Record a PSN below the first one as skipped by the first packet."""
    slot = state.slots[claim(state, flow, stream, psn)]
    slot.psn = psn
    slot.state = st.SKIPPED
    slot.sent_id = stream.start_id
    slot.arrival = stream.start_arrival
    slot.time = stream.start_time
    slot.dense = stream.start_dense - psn_distance(np.int64(stream.start_psn), psn)


@subkernel
def _miss_before_the_start(state: State, flow: FlowRecord, stream: StreamRecord, psn: Int) -> None:
    """Count the PSNs from `psn` to the first one seen as missing: they were lost before the tap."""
    steps = psn_distance(np.int64(stream.start_psn), psn)
    if not 0 < steps <= _START_REACH or not reach(state, stream, psn):
        return
    stream.first = psn
    for k in range(steps):
        at = claim(state, flow, stream, psn_add(psn, k))
        if not has_slot(state, stream, psn_add(psn, k)) or state.slots[at].state == st.SKIPPED:
            _skip_before_the_start(state, flow, stream, psn_add(psn, k))
            state.slots[at].state = st.MISSING
            stream.missing += 1


@subkernel
def _start(
    state: State, flow: FlowRecord, stream: StreamRecord, which: Int, packet: Packet
) -> None:
    """Start the stream at this packet; PSNs just before it may still arrive late."""
    psn, time = packet.psn, packet.time
    if stream.started:
        forget_missing(state, flow, stream)
    else:
        stream.first = psn
        stream.next_dense = st.SKIPPED_KEPT
        stream.last_gap_arrival = -1
        stream.floor_arrival = -1
    stream.started = 1
    stream.start_psn = psn
    stream.start_id = packet.sent_id
    stream.start_tap = packet.tap
    stream.named = 0
    stream.below = 0
    stream.start_time = time
    stream.start_arrival = stream.arrivals
    stream.start_dense = stream.next_dense
    stream.skips = (1 << st.SKIPPED_KEPT) - 1
    at = claim(state, flow, stream, psn)
    index = note_in_order(stream)
    write_seen(state, at, packet, index, stream.next_dense)
    advance(state, flow, stream, psn, packet.bits, packet.dma_length)
    if which == st.REQUESTS and flow.agreed:
        flow.agreed = 0
        _miss_before_the_start(state, flow, stream, np.int64(flow.agreed_psn))


@subkernel
def _come_as_named(state: State, flow: FlowRecord, stream: StreamRecord, psn: Int) -> None:
    """Handle a late or repeated request of a stream in which an answer has named a PSN."""
    named, steps = np.int64(stream.named), psn_distance(psn, np.int64(stream.named_psn))
    below = psn_distance(psn, np.int64(stream.start_psn)) < 0
    if steps != 0 and not (steps > 0 and below and named == st.NAMED):
        return
    stream.named = 0
    if named != st.NAMED:  # now the addressee of the NAK is known
        flow.nak_codes[0] += 1
        await_resend(flow, st.NAK_PSN, psn, np.int64(stream.named_time))
    if named != st.ASKED_PERHAPS and below:
        _miss_before_the_start(state, flow, stream, np.int64(stream.named_psn))


@subkernel
def note_below_the_start(
    state: State, flow: FlowRecord, stream: StreamRecord, psn: Int, bits: Int, dma_length: Int
) -> None:
    """Note a retransmitted request below the first PSN seen: perhaps the start of a connection."""
    if psn_distance(psn, np.int64(stream.start_psn)) >= 0:
        return
    if stream.below == 0 or psn_distance(psn, np.int64(stream.below_psn)) < 0:
        stream.below = 1
        stream.below_psn = psn
    elif psn_distance(psn, np.int64(stream.below_next)) < 0:
        return
    count = responses_of(state, flow, bits, dma_length) if bits & READ_REQUEST else 1
    stream.below_next = psn_add(psn, count)
    if stream.below == 1 and bits & ENDS:
        stream.below = 2
        stream.below_end = psn


@inlined
def _is_before_the_start(stream: StreamRecord, psn: Int, time: Int) -> bool:
    """True for a PSN below the first one that may have taken a slower path."""
    steps = psn_distance(np.int64(stream.start_psn), psn)
    return bool(0 < steps <= _START_REACH and time - stream.start_time <= RESEND_AFTER_NS)


@inlined
def judge(
    state: State,
    histograms: Histograms,
    densities: DensityArrays,
    f: Int,
    which: Int,
    packet: Packet,
) -> Int:
    """Verdict on one sequenced packet of flow `f` in stream `which`; advances the stream."""
    psn, bits, dma_length = packet.psn, packet.bits, packet.dma_length
    flow = state.flows[f]
    stream = state.streams[2 * f + which]
    if not stream.started:
        _start(state, flow, stream, which, packet)
        density_push(densities, 2 * f + which, stream.next_dense - 1)
        stream.new_packets += 1
        return verdicts.IN_ORDER

    distance = psn_distance(psn, stream.next)
    if stream.read_pending and distance != 0:
        resolve_read(state, flow, stream, psn, bits, dma_length)
        distance = psn_distance(psn, stream.next)
    if 0 <= distance < st.RESTART_DISTANCE and not _is_noise(stream, distance):
        verdict: Int = verdicts.IN_ORDER
        if distance > 0:
            verdict = _jump(state, flow, stream, which, distance, packet)
        at = claim(state, flow, stream, psn)
        dense = stream.next_dense
        density_push(densities, 2 * f + which, dense)
        index = note_in_order(stream)
        write_seen(state, at, packet, index, dense)
        advance(state, flow, stream, psn, bits, dma_length)
        stream.new_packets += 1
        return verdict

    if stream.named and distance < 0:
        _come_as_named(state, flow, stream, psn)
    known = has_slot(state, stream, psn)
    if not known and is_skipped(stream, psn):
        known = True
        _skip_before_the_start(state, flow, stream, psn)
    elif not known and distance < 0 and _is_before_the_start(stream, psn, packet.time):
        known = reach(state, stream, psn)
        if known:
            _skip_before_the_start(state, flow, stream, psn)
    if known:
        at = slot_of(stream, psn)
        if state.slots[at].state == st.SEEN:
            return _seen_again(state, histograms, densities, f, flow, stream, which, at, packet)
        return _fill(state, histograms, densities, f, flow, stream, which, at, packet)
    if bits & READ_REQUEST and -st.RESTART_DISTANCE < distance < 0:
        if reach(state, stream, psn):
            return _read_again(state, flow, stream, packet)
    if -st.RESTART_DISTANCE < distance < 0:
        return _older_than_the_window(state, flow, stream, packet.sent_id)

    stream.restarts += 1
    stream.next_dense += 1 << 20  # too far from all earlier PSNs
    _start(state, flow, stream, which, packet)
    density_push(densities, 2 * f + which, stream.next_dense - 1)
    stream.new_packets += 1
    return verdicts.RESTARTED


@subkernel
def _jump(
    state: State, flow: FlowRecord, stream: StreamRecord, which: Int, distance: Int, packet: Packet
) -> Int:
    """Skip `distance` PSNs; returns AHEAD when at least one of them must exist."""
    first, dense = stream.next, stream.next_dense
    missing = distance
    if not _gap_is_certain(state, flow, stream, which, packet.bits):
        missing = 1 if stream.mid_message else 0
    if missing > 0:
        open_gap(state, flow, stream, first, missing, st.MISSING, packet, dense)
    kept = min(distance - missing, st.SKIPPED_KEPT)
    skipped = distance - kept
    first = psn_add(first, skipped)
    open_gap(state, flow, stream, first, kept, st.SKIPPED, packet, dense + skipped)
    stream.next_dense += distance
    return verdicts.AHEAD if missing > 0 else verdicts.IN_ORDER


@subkernel
def _release_reserved(
    state: State, flow: FlowRecord, stream: StreamRecord, psn: Int, bits: Int, dma_length: Int
) -> None:
    """Handle a missing READ that arrives: the PSNs that it reserves are not missing."""
    count = responses_of(state, flow, bits, dma_length)
    widest = max(np.int64(stream.window_bits), state.used[st.FIRST_WINDOW])
    for k in range(1, min(count, 1 << widest)):
        reserved = psn_add(psn, k)
        slot = state.slots[slot_of(stream, reserved)]
        if slot.psn == reserved and slot.state == st.MISSING:
            slot.state = st.EMPTY
            stream.missing -= 1


@subkernel
def _fill(
    state: State,
    histograms: Histograms,
    densities: DensityArrays,
    f: Int,
    flow: FlowRecord,
    stream: StreamRecord,
    which: Int,
    at: Int,
    packet: Packet,
) -> Int:
    """Verdict on a skipped PSN: the late original, or the retransmission of a lost packet."""
    bits, sent_id, time = packet.bits, packet.sent_id, packet.time
    slot = state.slots[at]
    was_missing = slot.state == st.MISSING
    if was_missing:
        stream.missing -= 1
        if bits & READ_REQUEST:
            _release_reserved(state, flow, stream, packet.psn, bits, packet.dma_length)
    dense = slot.dense
    age = time - slot.time
    if bits & MARKS_RESENDS:
        resent = packet.rtx != 0
    elif dates_transmissions(flow) and age <= IDS_DATE_WITHIN_NS:
        resent = id_distance(sent_id, slot.sent_id) > 0
    elif _sent_just_before(flow, sent_id, slot.sent_id):
        resent = False
    else:
        resent = age > RESEND_AFTER_NS or expects_again(flow, which, packet.psn)
    if resent and flow.transport != UC:  # UC never retransmits
        jump, jump_time = slot.arrival, slot.time
        write_seen(state, at, packet, stream.arrivals, dense)
        if was_missing:
            if bits & MARKS_RESENDS or dates_transmissions(flow):
                slot.recovered, slot.arrival, slot.time = 1, jump, jump_time
            stream.recovered += 1
            return verdicts.RECOVERED
        stream.retransmitted += 1
        return verdicts.RETRANSMITTED
    density_push(densities, 2 * f + which, dense)
    index = note_late(state, histograms, f, stream, at, time)
    write_seen(state, at, packet, index, dense)
    return verdicts.REORDERED


@subkernel
def _seen_again(
    state: State,
    histograms: Histograms,
    densities: DensityArrays,
    f: Int,
    flow: FlowRecord,
    stream: StreamRecord,
    which: Int,
    at: Int,
    packet: Packet,
) -> Int:
    """Verdict on a PSN seen before: a copy by tap, mirror or network, or a retransmission.

    Different identifications mean different transmissions; equal ones mean the same transmission if
    the flow's packets are known to differ. Transmissions of MRC differ by path or RTX bit; a packet
    that is retransmitted twice on one path has both equal, and arrives after a timeout.
    """
    psn, bits, sent_id, rtx = packet.psn, packet.bits, packet.sent_id, packet.rtx
    hop_limit, tap, time = packet.hop_limit, packet.tap, packet.time
    slot = state.slots[at]
    bit = tap_bit(tap)
    new_here = slot.taps & bit == np.uint64(0) or (tap >= 63 and tap != slot.tap)
    if bits & MARKS_RESENDS:
        earlier = slot.rtx != 0 and rtx == 0
    else:
        earlier = dates_transmissions(flow) and id_distance(sent_id, slot.sent_id) < 0
    if sent_id != slot.sent_id or rtx != slot.rtx:
        same = False
        # Only taps in series see copies. On parallel paths an earlier transmission
        # may have been overtaken by a later one.
        if earlier and tap != slot.tap:
            if state.copies[slot.tap, tap] > 0:
                note_copy(state, slot.tap, tap)
                return verdicts.TAP_COPY
            state.used[st.UNFOLLOWED_TAPS] |= tap_flag(slot.tap)
    elif new_here or (bits & MARKS_RESENDS and not rtx) or tells_transmissions_apart(flow):
        same = True
    elif bits & MARKS_RESENDS or hop_limit != slot.hop_limit:
        same = time - slot.time <= RESEND_AFTER_NS
    else:
        behind = psn_add(psn, 1) == stream.next or (flow.no_ids == 0 and flow.ids_same == 0)
        same = behind and time - slot.time < TWIN_WITHIN_NS and not expects_again(flow, which, psn)
    if same and new_here:
        note_copy(state, slot.tap, tap)
        slot.taps |= bit
        return verdicts.TAP_COPY
    if same:
        if hop_limit != slot.hop_limit:
            stream.mirror_duplicates += 1
            return verdicts.MIRROR_DUPLICATE
        stream.duplicates += 1
        return verdicts.DUPLICATE
    stream.retransmitted += 1
    if earlier:
        if slot.recovered == 0:
            return verdicts.RETRANSMITTED
        stream.recovered -= 1  # the packet was not lost
        density_push(densities, 2 * f + which, slot.dense)
        note_late(state, histograms, f, stream, at, time)
        slot.recovered = 0
        return verdicts.OVERTAKEN
    slot.sent_id = sent_id
    slot.rtx = rtx
    slot.hop_limit = hop_limit
    slot.tap = tap
    slot.taps = bit
    slot.time = time
    return verdicts.RETRANSMITTED


@subkernel
def _read_again(state: State, flow: FlowRecord, stream: StreamRecord, packet: Packet) -> Int:
    """Verdict on a READ of the rest of an earlier one: a reserved PSN that no packet had so far.

    Its slot distinguishes copies at other taps from further transmissions.
    """
    at = claim(state, flow, stream, packet.psn)
    write_seen(state, at, packet, np.int64(stream.arrivals), np.int64(st.INSIDE_A_READ))
    stream.retransmitted += 1
    return verdicts.RETRANSMITTED


@inlined
def _older_than_the_window(
    state: State, flow: FlowRecord, stream: StreamRecord, sent_id: Int
) -> Int:
    """Verdict on a PSN whose slot was reused. Missing PSNs keep their slots, so it was seen or is
    before the start."""
    if state.used[st.TAPS] > 1 and dates_transmissions(flow):
        if id_distance(sent_id, flow.last_id) < 0:  # sent before packets already seen: a slower tap
            return verdicts.TAP_COPY
    stream.retransmitted += 1
    return verdicts.RETRANSMITTED
