"""The pass over the MRC packets of a batch, in capture order."""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Int, Ints, Records, inlined, subkernel
from ...decode.multipath import mrc as headers
from ...decode.multipath.mrc import MrcRecord
from ...statistics.histogram import observe
from ...track.batch import DUPLICATE, MIRROR_DUPLICATE, TAP_COPY, Rows
from ...wire.opcodes import FULL, OPCODE_CLASS, REQUEST
from ...wire.packets import RTX
from ...wire.psn import psn_add, psn_distance
from ..paths.pathtable import find_record
from . import state as st
from .state import FlowRecord, State

_CE = 3
_WRAP_NS = headers.TIMESTAMP_NS << 16
_BEHIND_NS = _WRAP_NS - _WRAP_NS // 16
"""A round trip in the last sixteenth of the wrap is slightly negative: coarse timestamps."""
_OTHER_RESOLUTION = 0x8000  # TSR


@inlined
def reason_index(reason: Int) -> Int:
    """Index of a NACK reason in the counts, see mrc_state.REASONS."""
    if reason == headers.TRIMMED or reason == headers.TRIMMED_LASTHOP:
        return reason - headers.TRIMMED
    if reason == 0x06 or reason == 0x07:
        return reason - 4
    if reason == 0x0A or reason == 0x0B:
        return reason - 6
    if reason == 0x19:
        return 6
    return st.REASONS - 1


@inlined
def _note(
    state: State, kind: Int, f: Int, rows: Rows, row: Int, key: Int, psn: Int, value: Int,
    without: Int, lost_ns: Int,
) -> None:  # fmt: skip
    if state.used[st.USED_LOG] >= st.MAX_LOG:
        state.used[st.OMITTED_LOG] += 1
        return
    entry = state.log[state.used[st.USED_LOG]]
    state.used[st.USED_LOG] += 1
    entry.kind = kind
    entry.flow = f
    entry.time_ns = rows.time_ns[row]
    entry.frame_number = rows.frame_number[row]
    entry.tap = rows.tap[row]
    entry.key = key
    entry.psn = psn
    entry.value = value
    entry.without = without
    entry.lost_ns = lost_ns


@inlined
def _note_trim(flow: FlowRecord, lane: Int, rows: Rows, row: Int) -> None:
    """A trimmed packet that `flow` has, or a NACK of one."""
    time = rows.time_ns[row]
    if flow.trim_frame[lane] == 0:
        flow.trim_first_ns[lane] = time
        flow.trim_last_ns[lane] = time
        flow.trim_frame[lane] = rows.frame_number[row]
        flow.trim_tap[lane] = rows.tap[row]
    flow.trim_first_ns[lane] = min(np.int64(flow.trim_first_ns[lane]), time)
    flow.trim_last_ns[lane] = max(np.int64(flow.trim_last_ns[lane]), time)


@inlined
def _may_be_caused(state: State, peer: Int, since: Int, time: Int) -> bool:
    """Whether ALWAYS_SKIP or a port status update since then may explain the silence of a value."""
    before = since - (time - since)
    said = peer >= 0 and state.flows[peer].last_always_skip_ns >= before
    return bool(said or state.used[st.LAST_PORT_NS] >= before)


@inlined
def _ring_of(state: State, flow: FlowRecord) -> Int:
    """The ring of a sending flow, allocated if available; -1 otherwise."""
    if flow.ring == 0:
        if state.used[st.USED_RINGS] >= min(st.MAX_RINGS, len(state.ring_psn)):
            return -1
        state.used[st.USED_RINGS] += 1
        flow.ring = state.used[st.USED_RINGS]
    return np.int64(flow.ring) - 1


@inlined
def _is_short(rows: Rows, row: Int, path_mtu: Int) -> bool:
    """Whether a WRITE has less payload than its place in the message requires.

    The payload of a Last follows from DMALen, as length of the whole operation or of the packet:
    below a path MTU both are the same.
    """
    bits, payload = OPCODE_CLASS[rows.opcode[row]], np.int64(rows.payload_bytes[row])
    if bits & FULL:
        return bool(payload < path_mtu)
    length = np.int64(rows.dma_length[row])
    if path_mtu == 0 or length == 0 or path_mtu & (path_mtu - 1):
        return False
    return bool(payload <= (length - 1) & (path_mtu - 1))


@inlined
def _sent(
    state: State,
    mrc: MrcRecord,
    rows: Rows,
    row: Int,
    f: Int,
    peer: Int,
    found: Int,
    last_ns: Int,
    path_mtu: Int,
) -> None:
    """A WRITE; `found` is the record of its entropy value, last used at `last_ns`."""
    flow, ev = state.flows[f], state.evs.records[found]
    time, psn = rows.time_ns[row], np.int64(rows.psn[row])
    key = np.int64(mrc.ev)
    values = np.int64(state.evs.lanes[st.LANES * f + st.SENT].paths)
    unused = flow.packets - ev.last_index - 1
    if ev.packets and unused > st.CAUSED_ROUNDS * values:
        lost = ev.lost_ns > last_ns
        certain = unused > max(st.RETIRED_AFTER_PACKETS, st.RETIRED_AFTER_ROUNDS * values)
        if lost or certain or _may_be_caused(state, peer, last_ns, time):
            lost_ns = ev.lost_ns if lost else np.int64(0)
            _note(state, st.LOG_RETURNED, f, rows, row, key, psn, last_ns, unused, lost_ns)
    ev.last_index = flow.packets
    ev.packets += 1
    ev.wire_bytes += np.int64(rows.wire_bytes[row])
    ev.tap = rows.tap[row]
    if rows.path_evidence[row]:
        ev.evidence = rows.path_evidence[row]
    if rows.traffic_class[row] & 3 == _CE:
        ev.marked += 1
    if mrc.trimmed or _is_short(rows, row, path_mtu):
        ev.trimmed += 1
        flow.trimmed += 1
        _note_trim(flow, st.SENT, rows, row)
    flow.packets += 1
    if not flow.started or psn_distance(psn, np.int64(flow.next_psn)) >= 0:
        flow.started = 1
        flow.next_psn = psn_add(psn, 1)
    if mrc.present & headers.TSETH and not mrc.timestamp_flags & _OTHER_RESOLUTION:
        flow.timestamped += 1
        flow.has_clock = 1
        flow.clock_ns = (time - np.int64(mrc.timestamp) * headers.TIMESTAMP_NS) % _WRAP_NS
    ring = _ring_of(state, flow)
    at = psn & (st.RING - 1)
    resent = np.int64(rows.bth_flags[row]) & RTX
    if resent:
        ev.resends += 1
        flow.resends += 1
    if ring < 0:
        return
    if resent and state.ring_psn[ring, at] == psn + 1:
        nacked = state.ring_nacked[ring, at]
        if nacked:
            flow.resends_after_nack += 1
        first = find_record(st.LANES * f + st.SENT, np.int64(state.ring_ev[ring, at]), state.evs)
        if first >= 0:
            lost = state.evs.records[first]
            lost.lost += 1
            if not nacked and lost.lost_ns <= lost.last_ns:
                lost.lost_ns = time
    state.ring_psn[ring, at] = psn + 1
    state.ring_ev[ring, at] = key
    state.ring_nacked[ring, at] = 0


@inlined
def _round_trip(state: State, mrc: MrcRecord, f: Int, peer: Int, found: Int, time: Int) -> None:
    """Time from the packet to its response at the tap, by the reflected timestamp."""
    if peer < 0 or not state.flows[peer].has_clock:
        return
    passed = state.flows[peer].clock_ns + np.int64(mrc.timestamp) * headers.TIMESTAMP_NS
    elapsed = (time - passed) % _WRAP_NS
    if elapsed > _BEHIND_NS:
        elapsed = np.int64(0)
    ev = state.evs.records[found]
    if ev.round_trips == 0:
        ev.round_trip_min_ns = elapsed
    ev.round_trips += 1
    ev.round_trip_sum_ns += elapsed
    ev.round_trip_min_ns = min(ev.round_trip_min_ns, elapsed)
    ev.round_trip_max_ns = max(ev.round_trip_max_ns, elapsed)
    observe(state.histograms, f, st.ROUND_TRIP, elapsed)


@inlined
def _vote(state: State, peer: Int, psn: Int, entropy: Int) -> None:
    """Compare the entropy of a SACK with that of its packet."""
    ring = np.int64(state.flows[peer].ring) - 1
    if ring < 0 or state.ring_psn[ring, psn & (st.RING - 1)] != psn + 1:
        return
    ev = np.int64(state.ring_ev[ring, psn & (st.RING - 1)])
    turned = ((ev & 0xFFFF) << 16) | (ev >> 16)
    if entropy == ev:
        state.votes[st.BOTH if entropy == turned else st.LABEL_HIGH] += 1
    else:
        state.votes[st.PORT_HIGH if entropy == turned else st.NEITHER] += 1


@inlined
def _depth(bitmap: np.uint64, sack_offset: Int) -> Int:
    """PSNs from the cumulative PSN to the highest in a SACK's bitmap."""
    if bitmap == np.uint64(0):
        return 0
    highest = sack_offset
    rest = bitmap >> np.uint64(1)
    while rest:
        highest += 1
        rest >>= np.uint64(1)
    return max(0, highest)


@inlined
def _sacked(state: State, mrc: MrcRecord, f: Int, peer: Int, found: Int, time: Int) -> None:
    """A SACK that flow `f` carries about flow `peer` (-1 while unknown)."""
    flow, ev = state.flows[f], state.evs.records[found]
    flow.sacks += 1
    ev.sacks += 1
    cumulative = np.int64(mrc.psn)
    if mrc.feedback == headers.SKIP_ONCE:
        flow.skips += 1
        ev.skips += 1
    elif mrc.feedback == headers.ALWAYS_SKIP:
        flow.always_skips += 1
        ev.always_skips += 1
        ev.last_always_skip_ns = time
        flow.last_always_skip_ns = time
    if mrc.probe_response:
        flow.probe_responses += 1
    elif peer >= 0:
        _vote(state, peer, psn_add(cumulative, np.int64(mrc.psn_offset)), np.int64(mrc.entropy))
    depth = _depth(np.uint64(mrc.sack_bitmap), np.int64(mrc.sack_offset))
    observe(state.histograms, f, st.OOO_DEPTH, depth)
    if mrc.mpr:
        flow.mpr = mrc.mpr
    if peer >= 0 and state.flows[peer].started:
        behind = psn_distance(np.int64(state.flows[peer].next_psn), cumulative) - 1
        observe(state.histograms, f, st.IN_FLIGHT, behind)
    if not mrc.present & headers.CC_STATE:
        return
    if mrc.timestamp:  # 0 when the request had none
        _round_trip(state, mrc, f, peer, found, time)
    flow.max_ooo_count = max(np.int64(flow.max_ooo_count), np.int64(mrc.ooo_count))
    counter = np.int64(mrc.rcvd_bytes)
    grown = (counter - np.int64(flow.rcvd_bytes)) & 0xFFFFFF
    if not flow.told_bytes:
        flow.told_bytes = 1
        flow.rcvd_bytes = counter
    elif grown < 0x800000:  # otherwise the SACK was overtaken
        flow.received_units += grown
        flow.rcvd_bytes = counter


@inlined
def _refused(
    state: State, mrc: MrcRecord, rows: Rows, row: Int, f: Int, peer: Int, found: Int
) -> None:
    """A NACK that flow `f` carries."""
    psn, reason = np.int64(mrc.psn), np.int64(mrc.reason)
    state.flows[f].nacks[reason_index(reason)] += 1
    if reason == headers.TRIMMED or reason == headers.TRIMMED_LASTHOP:
        _note_trim(state.flows[f], st.TOLD, rows, row)
    state.evs.records[found].nacks += 1
    _note(state, st.LOG_NACK, f, rows, row, np.int64(mrc.entropy), psn, reason, 0, 0)
    if peer < 0:
        return
    ring = np.int64(state.flows[peer].ring) - 1
    if ring >= 0 and state.ring_psn[ring, psn & (st.RING - 1)] == psn + 1:
        state.ring_nacked[ring, psn & (st.RING - 1)] = 1
    if mrc.timestamp:
        _round_trip(state, mrc, f, peer, found, rows.time_ns[row])


@subkernel
def count_rows(start: Int, mrc: Records, rows: Rows, path_mtu: Ints, state: State) -> Int:
    """Count MRC packets from `start`; returns their number, or the index where the table is full.

    path_mtu, int64[flows], is 0 where it is not known.
    """
    for i in range(start, len(mrc)):
        record = mrc[i]
        row = record.row
        seen = rows.verdict[row]
        if seen == TAP_COPY or seen == DUPLICATE or seen == MIRROR_DUPLICATE:
            continue
        f = np.int64(rows.flow[row])
        peer = np.int64(rows.peer[f])
        time = rows.time_ns[row]
        if OPCODE_CLASS[rows.opcode[row]] & REQUEST:
            lane, key = st.SENT, np.int64(record.ev)
        elif record.present & (headers.SETH | headers.NETH):
            lane, key = st.TOLD, np.int64(record.entropy)
        else:
            if record.present & headers.ERTH and record.operation == headers.PORT_STATUS_UPDATE:
                state.used[st.LAST_PORT_NS] = time
            continue
        # At most two records: of the packet and of the packet that it retransmits.
        if state.evs.used[0] + 2 > len(state.evs.records):
            return i
        found = find_record(st.LANES * f + lane, key, state.evs)
        ev = state.evs.records[found]
        last_ns = ev.last_ns
        ev.first_ns = min(ev.first_ns, time)
        ev.last_ns = max(last_ns, time)
        if lane == st.SENT:
            _sent(state, record, rows, row, f, peer, found, last_ns, path_mtu[f])
        elif record.present & headers.SETH:
            _sacked(state, record, f, peer, found, time)
        else:
            _refused(state, record, rows, row, f, peer, found)
    return len(mrc)
