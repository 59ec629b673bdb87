"""The verdict on every PSN: in order, ahead, late, retransmitted, duplicate.

A flow has two streams that must never be mixed: its own requests, and its READ responses and atomic
ACKs, which carry PSNs of the other side's requests.

Reordering metrics are those of RFC 4737, which defines everything over the arrivals s[1], s[2], ...
of first copies. A late packet i refers to j, the first arrival with a higher number. This is the
packet that skipped i's PSN; the slot of a missing PSN records it. A go-back-N rewind is detected
from the sender's packets: its time, trigger and retransmissions.
"""

from __future__ import annotations

import numpy as np

from ...kernels.kernel import Bool, Int, inlined, subkernel
from ..statistics.density import DensityArrays, density_push
from ..statistics.histogram import Histograms, observe
from ..wire.bth import (
    BEGINS,
    ENDS,
    MARKS_RESENDS,
    READ_REQUEST,
    UC,
    id_distance,
    psn_add,
    psn_distance,
)
from . import batch as verdicts
from . import state as st
from .state import FlowRecord, LateRecord, State, StreamRecord
from .window import (
    Packet,
    advance,
    claim,
    forget_missing,
    has_slot,
    held_beyond,
    horizon,
    is_skipped,
    note_copy,
    open_gap,
    reach,
    resolve_read,
    responses_of,
    slot_of,
    tap_bit,
    tap_flag,
    write_seen,
)


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
def _is_due_again(flow: FlowRecord, psn: Int, sent: Int) -> bool:
    """True for the next retransmission after a NAK or in a rewind, if the latest transmission of
    this PSN, at time `sent`, came before."""
    if flow.in_rewind and psn == np.int64(flow.rewind_next):
        return bool(flow.rewind_time > sent)
    for at in range(st.NAKS_KEPT):
        if flow.nak_kind[at] != st.NAK_NONE and psn == np.int64(flow.nak_psn[at]):
            return bool(flow.nak_time[at] > sent)
    return False


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
    answers_are_cut: Bool,
) -> Bool:
    """Count a retransmitted request; True when it starts a rewind.

    `implied`: see `asks_at_a_gap`. `late`: later packets overtook the retransmission.
    `answers_are_cut`: the capture does not hold what its answers say: there may have been a NAK.
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
            flow.heeded_naks += psn == np.int64(flow.nak_psn[nak])
            observe(histograms, f, st.NAK_TO_RESEND, time - flow.nak_time[nak])
            flow.nak_kind[nak] = st.NAK_NONE
        elif implied:
            flow.rewind_trigger = st.BY_IMPLIED
        elif silence >= SILENCE_NS and not answers_are_cut:
            flow.rewind_trigger = st.BY_TIMEOUT
            observe(histograms, f, st.TIMEOUT, silence)
        else:
            flow.rewind_trigger = st.BY_UNKNOWN
    if begins:
        flow.rewinds += 1
        flow.rewind_time = time
    if not late:
        flow.in_rewind = 1
        flow.rewind_next = psn_add(psn, 1)
    flow.rewound_bytes += wire_bytes
    flow.retransmitted_by[flow.rewind_trigger] += 1
    return begins


_NEAR_IDS = 256
"""An identification at most N below another was most likely assigned shortly before it."""
TWIN_WITHIN_NS = 20_000
"""A repeated packet without identification counts as duplicated by the network within this time and
directly after the original; later, as retransmitted. The position does not matter unless the flow's
identifications are known to be all the same."""

IDS_DATE_WITHIN_NS = 20_000_000
"""Identifications count modulo 2^16, for all queue pairs of a fast NIC together: after this time
"before" and "after" are meaningless. Late packets arrive sooner, timeouts are often longer."""

IN_FLIGHT_NS = 100_000_000
"""A packet that was sent before a capture began passes its tap at most so long after that: longer
than the longest queue of a fabric takes to empty."""

_START_REACH = 1 << 12
"""PSNs before the first one that may still be in flight on slower paths: more than the slowest path
of a fabric holds for one flow."""


@inlined
def dates_transmissions(flow: FlowRecord) -> bool:
    """True when the flow's IPv4 identifications move forward, so that they date transmissions."""
    others = flow.ids_other + flow.ids_same
    return bool(flow.no_ids == 0 and flow.ids_ascending >= 8 and flow.ids_ascending > 16 * others)


@inlined
def _may_date(flow: FlowRecord) -> bool:
    """Whether nothing contradicts that the identifications of a new flow date transmissions."""
    return bool(flow.no_ids == 0 and flow.ids_other + flow.ids_same == 0)


@inlined
def _sent_just_before(flow: FlowRecord, sent_id: Int, other: Int) -> bool:
    """A guess for a new flow with too few identifications to be certain."""
    return bool(_may_date(flow) and -_NEAR_IDS <= id_distance(sent_id, other) < 0)


@inlined
def _sent_just_after(flow: FlowRecord, sent_id: Int, other: Int) -> bool:
    """A guess for a flow whose first identifications ascend: those drawn at random seldom do."""
    ascends = _may_date(flow) and flow.ids_ascending >= 3
    return bool(ascends and 0 < id_distance(sent_id, other) <= _NEAR_IDS)


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


@inlined
def _end_of_early_gaps(state: State, flow: FlowRecord, stream: StreamRecord, first: Packet) -> Int:
    """Until when, at most, PSNs that this stream skips may have passed before the capture began.

    A stream that begins inside a message began before the capture.
    """
    if flow.agreed or stream.restarts > 0:
        return np.int64(0)
    in_flight = RESEND_AFTER_NS if first.bits & BEGINS else IN_FLIGHT_NS
    return np.int64(state.began[first.tap]) + in_flight


@inlined
def _is_early(state: State, flow: FlowRecord, stream: StreamRecord, tap: Int, time: Int) -> bool:
    """True when a PSN skipped at this time may have passed before the capture began.

    Only where packets between the two hosts overtake each other, or pass other taps than the first
    packet, which was in flight then: else all that follow the first packet pass after it.
    """
    if time >= stream.early_until:
        return False
    of_pair = state.pairs[flow.pair].disordered[1 if flow.src > flow.dst else 0]
    if not stream.disordered and (of_pair or tap != stream.start_tap):
        note_disorder(state, flow, stream)
    return bool(stream.disordered)


@inlined
def _began_meanwhile(state: State, stream: StreamRecord, tap: Int) -> bool:
    """Whether the capture of a tap began after the last packet of the stream: what is skipped may
    have passed this tap before, and was lost after it."""
    psn = psn_add(np.int64(stream.next), -1)
    slot = state.slots[slot_of(stream, psn)]
    is_seen = has_slot(state, stream, psn) and slot.state == st.SEEN
    return bool(is_seen and slot.time < state.began[tap])


@subkernel
def note_disorder(state: State, flow: FlowRecord, stream: StreamRecord) -> None:
    """Note that packets overtake each other: PSNs that were skipped early are not known to be
    missing."""
    if stream.disordered:
        return
    stream.disordered = 1
    state.pairs[flow.pair].disordered[1 if flow.src > flow.dst else 0] = 1
    stream.recovered -= stream.early_recovered
    stream.retransmitted += stream.early_recovered
    if stream.missing == 0 or stream.start_time >= stream.early_until:
        return
    for i in range(stream.window, stream.window + (1 << np.int64(stream.window_bits))):
        slot = state.slots[i]
        if slot.state == st.MISSING and slot.time < stream.early_until:
            slot.state = st.SKIPPED
            stream.missing -= 1


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
    stream.early_until = _end_of_early_gaps(state, flow, stream, packet)
    stream.start_id = packet.sent_id
    stream.start_tap = packet.tap
    stream.named = 0
    stream.below = st.BELOW_NONE
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
def _come_as_named(
    state: State, flow: FlowRecord, stream: StreamRecord, psn: Int, bits: Int
) -> None:
    """Handle a late or repeated request of a stream in which an answer has named a PSN."""
    named, steps = np.int64(stream.named), psn_distance(psn, np.int64(stream.named_psn))
    below = psn_distance(psn, np.int64(stream.start_psn)) < 0
    if steps != 0 and not (steps > 0 and below and named == st.NAMED):
        return
    stream.named = 0
    if named != st.NAMED:  # now the addressee of the NAK is known
        flow.nak_codes[0] += 1
        await_resend(flow, st.NAK_PSN, psn, np.int64(stream.named_time))
    if named != st.ASKED_PERHAPS and below and (steps > 0 or bits & BEGINS):
        _miss_before_the_start(state, flow, stream, np.int64(stream.named_psn))


@subkernel
def note_below_the_start(
    state: State, flow: FlowRecord, stream: StreamRecord, psn: Int, bits: Int, dma_length: Int
) -> None:
    """Note a retransmitted request below the first PSN seen: perhaps the start of a connection."""
    if psn_distance(psn, np.int64(stream.start_psn)) >= 0:
        return
    below_all = psn_distance(psn, np.int64(stream.below_psn)) < 0
    if stream.below == st.BELOW_NONE or below_all:
        stream.below = st.BELOW_BEGINS if bits & BEGINS else st.BELOW_INSIDE
        stream.below_psn = psn
    elif psn_distance(psn, np.int64(stream.below_next)) < 0:
        return
    count = responses_of(state, flow, bits, dma_length) if bits & READ_REQUEST else 1
    stream.below_next = psn_add(psn, count)
    if stream.below == st.BELOW_BEGINS and bits & ENDS:
        stream.below = st.BELOW_ENDS
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
        _come_as_named(state, flow, stream, psn, bits)
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
        is_unknown = _began_meanwhile(state, stream, packet.tap)
        is_unknown |= _is_early(state, flow, stream, packet.tap, packet.time)
        slot_state = st.SKIPPED if is_unknown else st.MISSING
        open_gap(state, flow, stream, first, missing, slot_state, packet, dense)
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
    _is_early(state, flow, stream, packet.tap, np.int64(slot.time))
    was_missing = slot.state == st.MISSING
    if was_missing:
        stream.missing -= 1
        if bits & READ_REQUEST:
            _release_reserved(state, flow, stream, packet.psn, bits, packet.dma_length)
    dense = slot.dense
    age = time - slot.time
    is_dated = bits & MARKS_RESENDS != 0 or dates_transmissions(flow) or _may_date(flow)
    if bits & MARKS_RESENDS:
        resent = packet.rtx != 0
    elif dates_transmissions(flow) and age <= IDS_DATE_WITHIN_NS:
        resent = id_distance(sent_id, slot.sent_id) > 0
    elif _sent_just_before(flow, sent_id, slot.sent_id):
        resent = False
    elif _sent_just_after(flow, sent_id, slot.sent_id):
        resent = True
    else:
        resent = age > RESEND_AFTER_NS or expects_again(flow, which, packet.psn)
    if resent and flow.transport != UC:  # UC never retransmits
        jump, jump_time = slot.arrival, slot.time
        write_seen(state, at, packet, stream.arrivals, dense)
        early = was_missing and jump_time < stream.early_until
        stream.early_recovered += early
        if was_missing:
            if is_dated:
                slot.recovered = st.RECOVERED_EARLY if early else st.RECOVERED
                slot.arrival, slot.time = jump, jump_time
            stream.recovered += 1
            return verdicts.RECOVERED
        stream.retransmitted += 1
        return verdicts.RETRANSMITTED
    density_push(densities, 2 * f + which, dense)
    index = note_late(state, histograms, f, stream, at, time)
    write_seen(state, at, packet, index, dense)
    note_disorder(state, flow, stream)
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
        earlier = id_distance(sent_id, slot.sent_id) < 0 and (
            dates_transmissions(flow) or _sent_just_before(flow, sent_id, slot.sent_id)
        )
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
        if not same and slot.recovered == st.RESENT and hop_limit < slot.hop_limit:
            note_copy(state, slot.tap, tap)  # an earlier transmission, late at this tap
            return verdicts.TAP_COPY
    else:
        elapsed = time - slot.time
        if elapsed <= st.COPY_WITHIN_NS:
            same = which == st.RESPONSES or not _is_due_again(flow, psn, np.int64(slot.time))
        else:
            behind = psn_add(psn, 1) == stream.next or (flow.no_ids == 0 and flow.ids_same == 0)
            same = behind and elapsed < TWIN_WITHIN_NS and not expects_again(flow, which, psn)
    if same and new_here:
        note_copy(state, slot.tap, tap)
        slot.taps |= bit
        return verdicts.TAP_COPY
    if same:
        if hop_limit != slot.hop_limit:
            stream.mirror_duplicates += 1
            return verdicts.MIRROR_DUPLICATE
        stream.duplicates += 1
        if time - slot.time <= st.COPY_WITHIN_NS:
            state.pairs[flow.pair].copied = 1
        return verdicts.DUPLICATE
    stream.retransmitted += 1
    if earlier:
        if slot.recovered == 0:
            return verdicts.RETRANSMITTED
        note_disorder(state, flow, stream)
        if slot.recovered == st.RECOVERED_EARLY:
            stream.retransmitted -= 1  # it counts already
        else:
            stream.recovered -= 1  # the packet was not lost
        density_push(densities, 2 * f + which, slot.dense)
        note_late(state, histograms, f, stream, at, time)
        slot.recovered = 0
        return verdicts.OVERTAKEN
    if sent_id == slot.sent_id and not bits & MARKS_RESENDS:
        slot.recovered = st.RESENT
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
