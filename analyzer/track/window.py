"""The recent PSNs of a stream, the PSNs that READs reserve, and recent packets without a PSN order.

A window is a ring of slots that grows to keep missing PSNs. A READ reserves the PSNs of its
responses, whose number depends on the path MTU: it is learned from packets, often after the first
READ; until then the PSN after a READ is a guess, and another PSN is accepted. Copies of ACKs, NAKs,
CNPs and datagrams are detected by a table of the latest ones.
"""

from __future__ import annotations

import numpy as np

from ...kernels.kernel import Int, NamedTuple, Records, inlined, subkernel
from ..wire.bth import FULL, PSN_BITS, PSN_MASK, READ_REQUEST, psn_add, psn_distance
from . import state as st
from .batch import DUPLICATE, MIRROR_DUPLICATE, NOT_SEQUENCED, TAP_COPY
from .state import (
    FIRST_RECENT_BITS,
    LEAST_RECENT_BITS,
    MAX_RECENT_BITS,
    MAX_RECENTS,
    TAPS,
    USED_RECENTS,
    FlowRecord,
    SlotRecord,
    State,
    StreamRecord,
)


class Packet(NamedTuple):
    """A packet of a PSN sequence, as recorded in its slot."""

    psn: Int
    bits: Int
    """Its element of `OPCODE_CLASS`."""
    dma_length: Int
    sent_id: Int
    rtx: Int
    """With `sent_id` distinguishes transmissions of one PSN, see state.SLOT."""
    hop_limit: Int
    payload: Int
    tap: Int
    time: Int


@inlined
def slot_of(stream: StreamRecord, psn: Int) -> Int:
    """Index of a PSN's slot; the slot is valid if `state.slots[..].psn == psn`."""
    return np.int64(stream.window) + (psn & ((1 << np.int64(stream.window_bits)) - 1))


@inlined
def has_slot(state: State, stream: StreamRecord, psn: Int) -> bool:
    """True when a slot of the window holds this PSN."""
    if stream.window_bits == 0:
        return False
    slot = state.slots[slot_of(stream, psn)]
    return bool(slot.state != st.EMPTY and slot.psn == psn)


@inlined
def is_skipped(stream: StreamRecord, psn: Int) -> bool:
    """True for a PSN that the first packet skipped and that has no slot yet."""
    before = (np.int64(stream.start_psn) - 1 - psn) & PSN_MASK
    return bool(before < st.SKIPPED_KEPT and (np.int64(stream.skips) >> before) & 1)


@inlined
def holds(state: State, stream: StreamRecord, psn: Int) -> bool:
    """True when the window still holds this PSN."""
    return has_slot(state, stream, psn) or is_skipped(stream, psn)


@inlined
def horizon(state: State, stream: StreamRecord) -> Int:
    """PSNs before `next` that the window holds if they were seen.

    PSNs that a window has forgotten stay forgotten when it grows later, for a missing PSN or a new
    tap. A window below the first size has forgotten none: it grows first.
    """
    if stream.window_bits == 0:
        return np.int64(1)
    if stream.forgets:
        held = (np.int64(stream.next) - np.int64(stream.held_from)) & PSN_MASK
        return min(held, np.int64(1) << st.MAX_WINDOW_BITS)
    return np.int64(1) << max(np.int64(stream.window_bits), state.used[st.FIRST_WINDOW])


@subkernel
def _new_window(state: State, stream: StreamRecord, bits: Int) -> None:
    """Move the stream and its slots to a new window of 2^bits slots.

    The caller has checked the capacity of the pool.
    """
    start, size = np.int64(state.used[st.USED_SLOTS]), 1 << bits
    state.used[st.USED_SLOTS] += size  # never used before: zeros, not yet resident
    if stream.window_bits > 0:
        for i in range(stream.window, stream.window + (1 << np.int64(stream.window_bits))):
            if state.slots[i].state != st.EMPTY:
                state.slots[start + (np.int64(state.slots[i].psn) & (size - 1))] = state.slots[i]
    stream.window = start
    stream.window_bits = bits
    stream.room_bits = bits


@subkernel
def _widen_window(state: State, stream: StreamRecord) -> None:
    """Double the window inside its earlier allocation: a slot stays or moves up."""
    size = 1 << np.int64(stream.window_bits)
    for i in range(stream.window, stream.window + size):
        if state.slots[i].state != st.EMPTY and np.int64(state.slots[i].psn) & size:
            state.slots[i + size] = state.slots[i]
            state.slots[i].state = st.EMPTY
        else:
            state.slots[i + size].state = st.EMPTY
    stream.window_bits += 1


@inlined
def tap_flag(tap: Int) -> Int:
    """The bit of a tap in FOLLOWED_TAPS and UNFOLLOWED_TAPS; taps from 62 on share one."""
    return np.int64(1) << np.int64(min(tap, 62))


@subkernel
def _is_awaited(state: State, slot: SlotRecord, bits: Int) -> bool:
    """Whether a packet was seen at one tap only and may still arrive at the next tap in series.

    For such packets a window of 2^bits slots may grow, up to half of the maximum number of slots.
    """
    if (
        slot.state != st.SEEN
        or slot.taps & (slot.taps - np.uint64(1)) != np.uint64(0)
        or bits >= st.MAX_WINDOW_BITS_FOR_COPIES
    ):
        return False
    tap = tap_flag(slot.tap)
    if state.used[st.FOLLOWED_TAPS] & tap == 0:
        state.used[st.UNFOLLOWED_TAPS] |= tap
        return False
    return bool(state.used[st.USED_SLOTS] + (2 << bits) <= st.MAX_SLOTS // 2)


@inlined
def note_copy(state: State, first_tap: Int, tap: Int) -> None:
    """Count a packet first seen at one tap and now at another."""
    state.copies[first_tap, tap] += 1
    state.used[st.FOLLOWED_TAPS] |= tap_flag(first_tap)


_STEP_BITS = 2
"""A window grows by this, fourfold, until it has the first size: 8, 32 and 128 slots."""


@subkernel
def _take_from_skipped(state: State, stream: StreamRecord, psn: Int) -> None:
    """Remove `psn`, or the PSN whose place it takes, from the PSNs skipped by the first packet.

    Their places are those in a window of at least the first size: smaller windows forget none.
    """
    size = 1 << max(np.int64(stream.window_bits), state.used[st.FIRST_WINDOW])
    before = (np.int64(stream.start_psn) - 1 - psn) & (size - 1)
    if before >= st.SKIPPED_KEPT or not (np.int64(stream.skips) >> before) & 1:
        return
    stream.skips = np.int64(stream.skips) & ~(np.int64(1) << before)
    skipped = psn_add(np.int64(stream.start_psn), -1 - before)
    if skipped != psn:
        _forget(stream, skipped, psn)


@inlined
def claim(state: State, flow: FlowRecord, stream: StreamRecord, psn: Int) -> Int:
    """The slot for `psn`; enlarges the window rather than forget a missing PSN."""
    first = state.used[st.FIRST_WINDOW]
    if stream.window_bits == 0:
        _new_window(state, stream, min(np.int64(st.LEAST_WINDOW_BITS), first))
    if stream.skips:
        _take_from_skipped(state, stream, psn)
    while True:
        at = slot_of(stream, psn)
        old = state.slots[at]
        if np.int64(stream.window_bits) < first and old.state != st.EMPTY and old.psn != psn:
            if stream.window_bits < stream.room_bits:
                _widen_window(state, stream)
            else:
                steps = np.int64(stream.window_bits) + _STEP_BITS
                _new_window(state, stream, min(steps, first))
            continue
        if old.psn == psn:
            return at
        if old.state == st.EMPTY:
            return at
        if old.state != st.MISSING and state.used[st.TAPS] == 1:
            _forget(stream, np.int64(old.psn), psn)
            return at
        bits = np.int64(stream.window_bits)
        if old.state != st.MISSING and not _is_awaited(state, old, bits):
            _forget(stream, np.int64(old.psn), psn)
            return at
        if bits < stream.room_bits:
            _widen_window(state, stream)
            continue
        if bits >= st.MAX_WINDOW_BITS or state.used[st.USED_SLOTS] + (2 << bits) > st.MAX_SLOTS:
            _give_up(flow, stream, old)
            _forget(stream, np.int64(old.psn), psn)
            return at
        _new_window(state, stream, bits + 1)


@subkernel
def reach(state: State, stream: StreamRecord, psn: Int) -> bool:
    """Widen the window until a PSN before `next` is inside; False when it may not grow so far."""
    span = psn_distance(np.int64(stream.next), psn)
    while span > 1 << np.int64(stream.window_bits):
        bits = np.int64(stream.window_bits)
        if bits < stream.room_bits:
            _widen_window(state, stream)
        elif bits >= state.used[st.FIRST_WINDOW] and (
            bits >= st.MAX_WINDOW_BITS or state.used[st.USED_SLOTS] + (2 << bits) > st.MAX_SLOTS
        ):
            return False
        else:
            _new_window(state, stream, bits + 1)
    return True


@inlined
def _forget(stream: StreamRecord, earlier: Int, psn: Int) -> None:
    """Note that this PSN takes the slot of an earlier one.

    READs reserve PSNs without slots, so the earlier PSN can be 2^24 or more back and then looks
    later. All are compared with the newest PSN, which none of them can exceed.
    """
    newest = max(psn_distance(psn, np.int64(stream.next)), 0) + np.int64(stream.next)
    held_from = psn_add(earlier, 1)
    held_before = (newest - np.int64(stream.held_from)) & PSN_MASK
    if stream.forgets == 0 or (newest - held_from) & PSN_MASK < held_before:
        stream.forgets = 1
        stream.held_from = held_from


@inlined
def _give_up(flow: FlowRecord, stream: StreamRecord, slot: SlotRecord) -> None:
    """Count a missing PSN that is no longer expected."""
    stream.missing -= 1
    stream.missing_evicted += 1
    if flow.acked and psn_distance(np.int64(flow.ack_psn), np.int64(slot.psn)) >= 0:
        stream.missing_evicted_acked += 1


@subkernel
def forget_missing(state: State, flow: FlowRecord, stream: StreamRecord) -> None:
    """Give up all missing PSNs and empty the window: another sequence begins.

    It starts with a small window, so that clearing costs no more than the writes did.
    """
    if stream.missing > 0:
        for i in range(stream.window, stream.window + (1 << np.int64(stream.window_bits))):
            if state.slots[i].state == st.MISSING:
                _give_up(flow, stream, state.slots[i])
    bits = min(np.int64(stream.window_bits), np.int64(state.used[st.FIRST_WINDOW]))
    for i in range(stream.window, stream.window + (1 << bits)):
        state.slots[i].state = st.EMPTY
    stream.window_bits = bits
    stream.forgets = 0


@inlined
def write_seen(state: State, at: Int, packet: Packet, arrival: Int, dense: Int) -> None:
    """Record the first packet of a PSN in its slot."""
    slot = state.slots[at]
    slot.psn = packet.psn
    slot.state = st.SEEN
    slot.sent_id = packet.sent_id
    slot.rtx = packet.rtx
    slot.hop_limit = packet.hop_limit
    slot.bytes = packet.payload
    slot.tap = packet.tap
    slot.taps = tap_bit(packet.tap)
    slot.recovered = 0
    slot.arrival = arrival
    slot.time = packet.time
    slot.dense = dense


@subkernel
def open_gap(
    state: State,
    flow: FlowRecord,
    stream: StreamRecord,
    first: Int,
    count: Int,
    slot_state: Int,
    packet: Packet,
    dense: Int,
) -> None:
    """Record `count` PSNs from `first` on as MISSING or SKIPPED, and the packet that jumped."""
    for k in range(count):
        psn = psn_add(first, k)
        slot = state.slots[claim(state, flow, stream, psn)]
        slot.psn = psn
        slot.state = slot_state
        slot.sent_id = packet.sent_id
        slot.arrival = stream.arrivals
        slot.time = packet.time
        slot.dense = dense + k
    if slot_state == st.MISSING:
        stream.missing += count


@subkernel
def held_beyond(state: State, stream: StreamRecord, psn: Int) -> tuple[Int, Int]:
    """Packets and payload bytes seen with higher PSNs: buffered while waiting for `psn`.

    While `psn` has a slot, all later packets have theirs, so this is exact: RFC 4737 section 4.4.
    """
    size = 1 << np.int64(stream.window_bits)
    packets = total = np.int64(0)
    span = psn_distance(np.int64(stream.next), psn)
    if span <= size:
        for k in range(1, span):
            slot = state.slots[slot_of(stream, psn_add(psn, k))]
            if slot.state == st.SEEN and psn_distance(np.int64(slot.psn), psn) == k:
                packets += 1
                total += slot.bytes
    else:  # PSNs reserved by READ requests lie between
        for i in range(stream.window, stream.window + size):
            slot = state.slots[i]
            if slot.state == st.SEEN and psn_distance(np.int64(slot.psn), psn) > 0:
                packets += 1
                total += slot.bytes
    return packets, total


@inlined
def tap_bit(tap: Int) -> Int:
    """The tap's bit in a slot's set of taps."""
    return np.uint64(1) << np.uint64(min(tap, 63))


UNKNOWN_LENGTH = -1
"""`dma_length` of a READ whose RETH is cut off: it reserves an unknown number of PSNs."""
_SMALLEST_PATH_MTU = 256
_LARGEST_PATH_MTU = 4096


@inlined
def reserved_psns(length: Int, path_mtu: Int) -> Int:
    """PSNs that a READ of `length` bytes reserves for its responses (at least one)."""
    return max(1, (length + path_mtu - 1) // path_mtu)


@inlined
def path_mtu_of(state: State, flow: FlowRecord) -> Int:
    """The connection's path MTU; 0 while unknown. Other connections are no evidence."""
    if flow.path_mtu > 0:
        return np.int64(flow.path_mtu)
    if flow.peer >= 0:
        return np.int64(state.flows[flow.peer].path_mtu)
    return np.int64(0)


@inlined
def responses_of(state: State, flow: FlowRecord, bits: Int, dma_length: Int) -> Int:
    """PSNs of the responses to a READ or atomic, as far as known."""
    path_mtu = path_mtu_of(state, flow)
    if path_mtu == 0:
        path_mtu = np.int64(state.pairs[flow.pair].path_mtu)
    if bits & READ_REQUEST and path_mtu > 0 and dma_length > 0:
        return reserved_psns(dma_length, path_mtu)
    return np.int64(1)


@inlined
def advance(
    state: State, flow: FlowRecord, stream: StreamRecord, psn: Int, bits: Int, dma_length: Int
) -> None:
    """Move the next expected PSN after the newest packet of a stream."""
    stream.mid_message = 1 if bits & FULL else 0
    stream.read_pending = 0
    count: Int = np.int64(1)
    if bits & READ_REQUEST:
        count = responses_of(state, flow, bits, dma_length)
        unknown = dma_length == UNKNOWN_LENGTH
        if unknown or (dma_length > _SMALLEST_PATH_MTU and path_mtu_of(state, flow) == 0):
            stream.read_pending = 1
            stream.read_psn = psn
            stream.read_length = max(dma_length, 0)
    stream.next = psn_add(psn, count)
    stream.next_dense += 1


@inlined
def resolve_read(
    state: State, flow: FlowRecord, stream: StreamRecord, psn: Int, bits: Int, dma_length: Int
) -> None:
    """After a READ with unknown path MTU `next` was a guess: accept another PSN.

    A larger PSN is always accepted, because without the path MTU no PSN is known to be missing. A
    smaller one is accepted only if a path MTU explains it, unless it repeats the rest of that READ.
    """
    step = psn_distance(psn, np.int64(stream.read_psn))
    if step <= 0:
        return
    accepted = psn_distance(psn, np.int64(stream.next)) > 0
    if bits & READ_REQUEST and not accepted:
        if psn_add(psn, responses_of(state, flow, bits, dma_length)) == stream.next:
            return
    path_mtu = np.int64(_SMALLEST_PATH_MTU)
    while path_mtu <= _LARGEST_PATH_MTU:
        if reserved_psns(np.int64(stream.read_length), path_mtu) == step:
            accepted = True
        path_mtu *= 2
    if accepted:
        stream.read_pending = 0
        stream.next = psn


CNP_OPCODE = 0x81
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
def _place(bits: Int, constant: bool, psn: Int, ip_id: Int, places: Int) -> Int:
    """The first of the `places` entries for this packet in a table of 2^bits.

    Identifications count up, so packets in flight between two taps do not collide. PSNs are spread
    by Fibonacci hashing, so those of every 8th or 64th packet do not collide either; the factor is
    2^24 divided by the golden ratio, made odd. Packets that collide in a larger table also collide
    in a smaller one.
    """
    if constant:
        address = ((psn * 10_368_889) & PSN_MASK) >> (PSN_BITS - bits)
    else:
        address = ip_id & ((1 << bits) - 1)
    return np.int64(address & -places)


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
def spread(former: Records, table: Records, bits: Int, constant: bool, places: Int) -> None:
    """Enter the packets of a table into an empty one of 2^bits entries."""
    for k in range(len(former)):
        entry = former[k]
        if entry.used:
            at = _place(bits, constant, np.int64(entry.psn), np.int64(entry.ip_id), places)
            for free in range(at, at + places):
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
def _make_room(state: State, flow: FlowRecord, constant: bool, first: Int, places: Int) -> bool:
    """Enlarge a flow's table if the place at `first` is full of packets still expected at a tap.

    A packet is expected until all taps have seen it, because the taps in series are unknown. A
    table below its first size drops none. False if nothing changed.
    """
    oldest = state.recents[first + places - 1]
    bits = np.int64(flow.recent_bits)
    all_taps = (tap_bit(state.used[TAPS] - 1) << np.uint64(1)) - np.uint64(1)
    if not oldest.used or (
        bits >= FIRST_RECENT_BITS
        and (
            places == 1
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
    spread(state.recents[former : former + (np.int64(1) << bits)], table, wider, constant, places)
    return True


# Inlined: a call of its own would copy all array descriptors of `State`, for every ACK.
@inlined
def judge_unordered(
    state: State,
    flow: FlowRecord,
    psn: Int,
    opcode: Int,
    ip_id: Int,
    aeth: Int,
    hop_limit: Int,
    tap: Int,
    time: Int,
) -> Int:
    """Verdict on a packet without a PSN sequence: new, or a copy.

    Compares with the latest packets of the flow in the same place of a small table, addressed by
    identification, or by PSN if identifications are unusable (IPv6, or constant). In that case
    equal packets are legitimate: only a packet at another tap is a copy, of the oldest packet that
    this tap has not seen, and one within `COPY_WITHIN_NS` where the capture holds data of the two
    hosts twice. CNPs are all equal.
    """
    if flow.recent < 0:
        _new_table(state, flow, LEAST_RECENT_BITS)
        flow.loose_psn = psn
        flow.loose_id = ip_id
    _note_id(flow, psn, ip_id)
    constant = ids_say_nothing(flow)
    bit = tap_bit(tap)
    places = ways_of(state)
    first = flow.recent + _place(flow.recent_bits, constant, psn, ip_id, places)
    twin = -1
    for at in range(first + places - 1, first - 1, -1):
        entry = state.recents[at]
        if entry.used and entry.psn == psn and entry.opcode == opcode and entry.ip_id == ip_id:
            if entry.taps & bit == np.uint64(0) or (tap >= 63 and tap != entry.tap):
                note_copy(state, entry.tap, tap)
                entry.taps |= bit
                return TAP_COPY
            twin = at
    is_copy = flow.loose_ids_different > 0 and not constant
    if twin >= 0 and not is_copy and opcode != CNP_OPCODE and state.pairs[flow.pair].copied:
        entry = state.recents[twin]
        is_copy = entry.aeth == aeth and time - entry.time <= st.COPY_WITHIN_NS
    if twin >= 0 and is_copy:
        entry = state.recents[twin]
        return DUPLICATE if hop_limit == entry.hop_limit else MIRROR_DUPLICATE
    while _make_room(state, flow, constant, first, places):
        first = flow.recent + _place(flow.recent_bits, constant, psn, ip_id, places)
    for at in range(first + places - 1, first, -1):
        state.recents[at] = state.recents[at - 1]
    entry = state.recents[first]
    entry.used = 1
    entry.psn = psn
    entry.opcode = opcode
    entry.ip_id = ip_id
    entry.hop_limit = hop_limit
    entry.tap = tap
    entry.aeth = aeth
    entry.taps = bit
    entry.time = time
    return NOT_SEQUENCED
