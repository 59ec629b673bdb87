"""The recent PSNs of a stream: a ring of slots that grows to keep missing PSNs."""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Int, inlined, subkernel
from ....kernels.named import NamedTuple
from ...wire.psn import PSN_MASK, psn_add, psn_distance
from .. import state as st
from ..state import FlowRecord, SlotRecord, State, StreamRecord


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
