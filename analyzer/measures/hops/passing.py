"""The kernel of the hop measure: pairs the sightings of every packet and follows its path.

Two rows are sightings of one transmission when flow, opcode, PSN, IPv4 identification and, for
acknowledgements, the AETH agree. Without identification (IPv6, or 0) a second sighting at the same
tap is a copy within `TWIN_NS` of the first one, unless the tracker knows a retransmission (it
follows a NAK), later a retransmission. Where two transmissions of one packet are on their way, a
sighting belongs to that whose time to this tap is as usual; clocks that differ do not matter. Two
taps with the same hop limit are on parallel paths, and no transmission passes both, unless most
packets that a flow sends in order do.
"""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import (
    Int,
    Ints,
    RecordArray,
    UInt64s,
    inlined,
    kernel,
    prefetch_item,
    subkernel,
)
from ...statistics.histogram import Histograms, observe
from ...track.batch import OVERTAKEN, RECOVERED, RETRANSMITTED, Rows
from ...wire import bth
from ...wire.bth import psn_distance
from ...wire.packets import FIRST_FRAGMENT, ICRC_BAD, ICRC_OK, IPV6, RTX
from . import state as st
from .state import EdgeRecord, Passing, SightingRecord, TransmissionRecord, VisitRecord

FIRST_HORIZON_NS = 4_000_000_000
"""Sightings of one packet farther apart than this are not paired."""
LEAST_HORIZON_NS = 250_000_000
SPANS_WAITED = 8
"""The horizon, in units of the longest time between two sightings of one packet."""
CONCLUDED_BEFORE_NARROWING = 1_000
LEAST_SAMPLES = 8
"""Packets of each direction from which the order of two taps is learned."""
TWIN_NS = 20_000
"""A repeated packet without identification is a copy within this time (as in track/sequence.py)."""
STEP_NS = 10_000_000_000
"""A packet farther than this from the present does not move it: its time stamp may be wrong."""
AHEAD_TRUSTED, BEHIND_TRUSTED = 8, 1000
"""Packets in a row that do: after a silence, and after a present that was wrong. Taps whose clocks
differ may alternate, so that it takes more to go back."""
MOST_TAPS = 32
"""Sightings of one transmission that are followed; later ones are ignored."""
AMBIGUOUS_NS = 1_000_000
"""A packet without identification that comes so much later than usual may be a retransmission."""
LEAST_USUAL = 16
"""Packets of a hop that show how much its clocks differ."""
OFFSET_NS = 1 << 20
"""A first delay of at least this shows clocks that differ: delays are counted relative to it."""
FIRST_ENDS = 8
"""Ends of every flow and tap with a moment, before any of its packets continued."""
MOST_MOMENTS = 1 << 20
_RESTART = 1 << 20
"""A PSN so far below the highest one starts a new sequence."""
RECENT = 64
"""Bits of VISIT.recent."""
_MOST_OVERTAKING = 0xFFFF
_MOST_TWINS = 8
_AHEAD = 4
"""Rows, and transmissions, between a prefetch and its use."""
_EMPTY = -1
_COPY = 1 << 62
_NEW, _NEW_AGAIN, _IGNORED = -1, -2, -3
"""Instead of a known transmission: the first one of a packet, a further one, a row to ignore."""
_NEVER = -(2**63)
_ALWAYS = 2**63 - 1
_UNKNOWN = 1 << 62
"""Least misfit of a sighting after a tap from which no packet is known to have come."""
_CE = 3
_SHIFT = np.uint64(32)

DONE, NO_SIGHTINGS, NO_TRANSMISSIONS, NO_EDGES, NO_VISITS, NO_HOPS = range(6)
"""Why `follow` returned: all rows done, or what has no room."""


@inlined
def _mixed(a: Int, b: Int, salt: UInt64s) -> Int:
    """Multiply-shift hash of two integers with random odd factors."""
    mixed = np.uint64(a) * salt[0] + np.uint64(b) * salt[1]
    return np.int64((mixed ^ (mixed >> np.uint64(29))) * salt[2] >> _SHIFT)


@inlined
def _identity(rows: Rows, i: Int) -> tuple[Int, Int, Int]:
    """What sightings of one transmission have in common beside the flow: label, ip_id, extra."""
    opcode = np.int64(rows.opcode[i])
    is_v6 = np.int64(rows.decode_flags[i]) & IPV6 != 0
    ip_id = np.int64(0) if is_v6 else np.int64(rows.ip_id[i])
    extra = np.int64(0)
    if np.int64(bth.OPCODE_CLASS[opcode]) & bth.ACKNOWLEDGE:
        extra = np.int64(rows.aeth[i])
    elif np.int64(bth.OPCODE_CLASS[opcode]) & bth.MARKS_RESENDS:
        # MRC: transmissions of one PSN differ by path or RTX bit.
        is_rtx = np.int64(rows.bth_flags[i]) & RTX != 0
        extra = (np.int64(rows.udp_sport[i]) << 1) | is_rtx
        ip_id = np.int64(0)
    if len(rows.fingerprint) > 0:
        extra ^= np.int64(rows.fingerprint[i])
    return (opcode << 24) | np.int64(rows.psn[i]), ip_id, extra


@inlined
def _hash(flow: Int, label: Int, ip_id: Int, extra: Int, salt: UInt64s) -> Int:
    return _mixed((flow << 32) | label, (extra << 16) | ip_id, salt)


@inlined
def _fetch_ahead(p: Passing, hashes: Ints, i: Int) -> None:
    """Prefetch what the next rows need: packets in flight exceed the caches."""
    buckets, ring = len(p.buckets) - 1, len(p.transmissions) - 1
    if i + 3 * _AHEAD < len(hashes):
        prefetch_item(p.buckets, hashes[i + 3 * _AHEAD] & buckets)
        _fetch(p.transmissions, p.buckets[hashes[i + 2 * _AHEAD] & buckets])
        t = p.transmissions[p.buckets[hashes[i + _AHEAD] & buckets] & ring]
        _fetch(p.sightings, np.int64(t.sighting))
    t = p.transmissions[(p.used[st.TAIL] + _AHEAD) & ring]
    _fetch(p.sightings, np.int64(t.sighting))


@inlined
def _fetch(ring: RecordArray, number: Int) -> None:
    """Prefetch a record, which may begin in one cache line and end in the next."""
    at = number & (len(ring) - 1)
    prefetch_item(ring, at)
    prefetch_item(ring, at + 1)


@inlined
def _edge_place(p: Passing, flow: Int, from_tap: Int, to_tap: Int) -> Int:
    """The slot of an edge: it holds its number, or is empty."""
    mask = len(p.edge_slots) - 1
    at = _mixed(flow + 1, (from_tap << 16) | to_tap, p.salt) & mask
    while p.edge_slots[at] != _EMPTY:
        edge = p.edges[p.edge_slots[at]]
        if edge.flow == flow and edge.from_tap == from_tap and edge.to_tap == to_tap:
            break
        at = (at + 1) & mask
    return at


@inlined
def _visit_place(p: Passing, flow: Int, tap: Int) -> Int:
    mask = len(p.visit_slots) - 1
    at = _mixed(flow + 1, tap, p.salt) & mask
    while p.visit_slots[at] != _EMPTY:
        visit = p.visits[p.visit_slots[at]]
        if visit.flow == flow and visit.tap == tap:
            break
        at = (at + 1) & mask
    return at


@subkernel
def _new_edge(p: Passing, flow: Int, from_tap: Int, to_tap: Int, hop: Int) -> Int:
    """A new edge; the caller has checked the room."""
    index: Int = np.int64(p.used[st.EDGES])
    p.used[st.EDGES] += 1
    p.edge_slots[_edge_place(p, flow, from_tap, to_tap)] = index
    edge = p.edges[index]
    edge.flow = flow
    edge.from_tap = from_tap
    edge.to_tap = to_tap
    edge.hop = hop
    edge.drop_min = edge.limit_min = 0x7FFF
    edge.drop_max = edge.limit_max = -0x7FFF
    edge.bytes_min = edge.first_ns = _ALWAYS
    edge.first_marked_ns = edge.first_late_ns = edge.first_copy_ns = edge.delay_min = _ALWAYS
    edge.first_dscp_ns = edge.first_corrupted_ns = edge.first_fragmented_ns = _ALWAYS
    edge.first_trimmed_ns = _ALWAYS
    edge.last_trimmed_ns = _NEVER
    edge.last_dscp_ns = edge.last_corrupted_ns = edge.last_fragmented_ns = _NEVER
    edge.last_ns = edge.last_marked_ns = edge.last_late_ns = edge.last_copy_ns = _NEVER
    edge.delay_max = _NEVER
    return index


@inlined
def edge_of(p: Passing, flow: Int, from_tap: Int, to_tap: Int) -> Int:
    """The edge of a flow (-1: of all flows), and that of all flows, created when new.

    Room is there for both.
    """
    number = np.int64(p.edge_slots[_edge_place(p, flow, from_tap, to_tap)])
    if number != _EMPTY:
        return number
    of_all: Int = np.int64(p.edge_slots[_edge_place(p, -1, from_tap, to_tap)])
    if of_all == _EMPTY:
        hop = p.used[st.HOPS]
        p.used[st.HOPS] += 1
        of_all = _new_edge(p, -1, from_tap, to_tap, hop)
        p.hops[hop] = of_all
        for w in range(st.WINDOWS):
            p.windows[hop, w, st.DELAY_LEAST] = _ALWAYS
            p.windows[hop, w, st.DELAY_MOST] = _NEVER
            p.windows[hop, w, st.BYTES_MOST] = 0
    if flow < 0:
        return of_all
    return _new_edge(p, flow, from_tap, to_tap, p.edges[of_all].hop)


@subkernel
def _rewindow(p: Passing, width: Int, origin: Int) -> None:
    """Give all windows this width, the present one or twice that, and this first window."""
    old, twice = p.clock[st.ORIGIN], width != p.clock[st.WIDTH]
    shift = old - origin  # windows to the right, without a change of width
    for hop in range(p.used[st.HOPS]):
        row = p.windows[hop]
        for step in range(st.WINDOWS):
            # In the order in which none is read after it was written.
            w = step if twice else st.WINDOWS - 1 - step
            first = 2 * (origin + w) - old if twice else w - shift
            values = (0, 0, 0, 0, _ALWAYS, _NEVER, 0)
            for k in range(first, first + 2 if twice else first + 1):
                if 0 <= k < st.WINDOWS:
                    old_row = row[k]
                    values = (
                        values[0] + old_row[0],
                        values[1] + old_row[1],
                        values[2] + old_row[2],
                        values[3] + old_row[3],
                        min(values[4], old_row[st.DELAY_LEAST]),
                        max(values[5], old_row[st.DELAY_MOST]),
                        max(values[6], old_row[st.BYTES_MOST]),
                    )
            for value in range(st.WINDOW_VALUES):
                row[w, value] = values[value]
    p.clock[st.WIDTH], p.clock[st.ORIGIN] = width, origin


@inlined
def window_of(p: Passing, time: Int) -> Int:
    """The window of a time; windows are multiples of their width since the Unix epoch.

    All windows double their width until the earliest and the latest time are inside.
    """
    if p.clock[st.FROM] > p.clock[st.TO]:
        p.clock[st.FROM] = p.clock[st.TO] = time
        p.clock[st.ORIGIN] = time // p.clock[st.WIDTH]
    if time > p.clock[st.TO]:
        p.clock[st.TO] = time
        while time // p.clock[st.WIDTH] - p.clock[st.FROM] // p.clock[st.WIDTH] >= st.WINDOWS:
            width = 2 * p.clock[st.WIDTH]
            _rewindow(p, width, p.clock[st.FROM] // width)
    elif time < p.clock[st.FROM]:
        p.clock[st.FROM] = time
        while p.clock[st.TO] // p.clock[st.WIDTH] - time // p.clock[st.WIDTH] >= st.WINDOWS:
            width = 2 * p.clock[st.WIDTH]
            _rewindow(p, width, p.clock[st.ORIGIN] // 2)
        _rewindow(p, p.clock[st.WIDTH], time // p.clock[st.WIDTH])
    return time // p.clock[st.WIDTH] - p.clock[st.ORIGIN]


@inlined
def _grown(edge: EdgeRecord, time: Int, wire_bytes: Int, limit: Int) -> None:
    edge.packets += 1
    edge.wire_bytes += wire_bytes
    edge.bytes_min = min(edge.bytes_min, wire_bytes)
    edge.bytes_max = max(edge.bytes_max, wire_bytes)
    edge.limit_min = min(edge.limit_min, limit)
    edge.limit_max = max(edge.limit_max, limit)
    edge.first_ns = min(edge.first_ns, time)
    edge.last_ns = max(edge.last_ns, time)


@subkernel
def _log_end(
    p: Passing, t: TransmissionRecord, s: SightingRecord, edge: Int, run: Int, output: Int
) -> None:
    """Keep the moment of an end, a start or a skipped tap, if there is room.

    output: that packets of the flow took last from here; `MOST_OUTPUTS` if that is not known.
    """
    if p.used[st.ENDS] == len(p.ends):
        p.used[st.UNLOGGED] += 1
        return
    moment = p.ends[p.used[st.ENDS]]
    p.used[st.ENDS] += 1
    moment.flow = t.flow
    moment.label = t.label
    moment.edge = edge
    moment.tap = s.tap
    moment.udp_sport = s.udp_sport
    moment.hop_limit = s.hop_limit
    moment.wire_bytes = s.wire_bytes
    moment.time = s.time
    moment.frame = s.frame
    moment.later = p.clock[st.NEWEST]
    moment.run = run
    moment.hop_before = moment.hop_after = _EMPTY
    if output < len(p.outputs):
        egress = p.outputs[output]
        moment.hop_before = egress.hop
        moment.delay_before = egress.delay
        moment.chain = egress.waiting
        egress.waiting = p.used[st.ENDS]


@inlined
def _output_of(far: SightingRecord) -> Int:
    """The output of a device by which a packet came to this tap.

    Where links go up to a common device and down again, the hop limits of both directions of a link
    differ by an odd number: each side of the common device has as many links as the other.
    """
    return np.int64(far.tap) * 2 + (np.int64(far.hop_limit) & 1)


@inlined
def _note_output(p: Passing, output: Int, hop: Int, delay: Int) -> None:
    """A packet left by an output: it is beside those that ended since the packet before it."""
    if output >= len(p.outputs):
        return
    egress = p.outputs[output]
    egress.hop = hop
    egress.delay = delay
    while egress.waiting > 0:
        moment = p.ends[egress.waiting - 1]
        moment.hop_after = hop
        moment.delay_after = delay
        egress.waiting = moment.chain


@inlined
def _show(edge: EdgeRecord, kind: Int, seen: SightingRecord) -> None:
    """Keep the first frame of a kind."""
    if edge.shown_frame[kind] == 0:
        edge.shown_frame[kind] = seen.frame
        edge.shown_ns[kind] = seen.time


@inlined
def _note_pass(
    p: Passing,
    histograms: Histograms,
    flow: Int,
    near: SightingRecord,
    far: SightingRecord,
    copies: Int,
    overtaken: Int,
) -> Int:
    """One transmission went from one tap to the next; the edge of its flow.

    copies: that arose on the way. overtaken: on the way, by so many packets.
    """
    of_flow = edge_of(p, flow, np.int64(near.tap), np.int64(far.tap))
    hop = np.int64(p.edges[of_flow].hop)
    at = window_of(p, near.time)
    delay = far.time - near.time
    _note_output(p, _output_of(far), hop, delay)
    drop = np.int64(near.hop_limit) - np.int64(far.hop_limit)
    marked = (near.traffic_class & 3 != _CE) and (far.traffic_class & 3 == _CE)
    corrupted = near.icrc_state == ICRC_OK and far.icrc_state == ICRC_BAD
    fragmented = far.fragment > near.fragment
    trimmed = far.payload_bytes < near.payload_bytes and not fragmented  # tags come and go
    dscp = not trimmed and (near.traffic_class >> 2) != (far.traffic_class >> 2)
    for which in range(2):
        edge = p.edges[of_flow if which == 0 else np.int64(p.hops[hop])]
        if which == 1 and edge.packets == 0 and abs(delay) >= OFFSET_NS:
            edge.delay_base = delay
        _grown(edge, near.time, np.int64(near.wire_bytes), np.int64(near.hop_limit))
        edge.drop_min = min(np.int64(edge.drop_min), drop)
        edge.drop_max = max(np.int64(edge.drop_max), drop)
        edge.delay_min = min(edge.delay_min, delay)
        if delay > edge.delay_max:
            edge.delay_max = delay
            edge.shown_frame[st.SLOWEST] = 0
            _show(edge, st.SLOWEST, far)
        if trimmed:
            edge.trimmed += 1
            _show(edge, st.TRIMMED, far)
            edge.first_trimmed_ns = min(edge.first_trimmed_ns, near.time)
            edge.last_trimmed_ns = max(edge.last_trimmed_ns, near.time)
        if fragmented:
            edge.fragmented += 1
            _show(edge, st.FRAGMENTED, far)
            edge.first_fragmented_ns = min(edge.first_fragmented_ns, near.time)
            edge.last_fragmented_ns = max(edge.last_fragmented_ns, near.time)
        if dscp:
            edge.dscp_changed += 1
            _show(edge, st.DSCP, far)
            edge.first_dscp_ns = min(edge.first_dscp_ns, near.time)
            edge.last_dscp_ns = max(edge.last_dscp_ns, near.time)
        if corrupted:
            edge.corrupted += 1
            _show(edge, st.CORRUPTED, far)
            edge.first_corrupted_ns = min(edge.first_corrupted_ns, near.time)
            edge.last_corrupted_ns = max(edge.last_corrupted_ns, near.time)
        if marked:
            edge.marked += 1
            _show(edge, st.MARKED, far)
            edge.first_marked_ns = min(edge.first_marked_ns, near.time)
            edge.last_marked_ns = max(edge.last_marked_ns, near.time)
        if overtaken > 0:
            edge.late += 1
            _show(edge, st.LATE, far)
            edge.first_late_ns = min(edge.first_late_ns, near.time)
            edge.last_late_ns = max(edge.last_late_ns, near.time)
        if copies > 0:
            edge.copies += copies
            _show(edge, st.COPIED, far)
            edge.first_copy_ns = min(edge.first_copy_ns, near.time)
            edge.last_copy_ns = max(edge.last_copy_ns, near.time)
        if which == 1:
            above = delay - edge.delay_base
            if above >= 0:
                observe(histograms, hop, st.AHEAD, above)
            else:
                observe(histograms, hop, st.BEHIND, -above)
    if overtaken > 0:
        observe(histograms, hop, st.OVERTAKEN, overtaken)
    row = p.windows[hop, at]
    row[st.PACKETS_IN] += 1
    row[st.BYTES_IN] += np.int64(near.wire_bytes)
    row[st.MARKS_IN] += marked
    row[st.LATE_IN] += overtaken > 0
    row[st.DELAY_LEAST] = min(row[st.DELAY_LEAST], delay)
    row[st.DELAY_MOST] = max(row[st.DELAY_MOST], delay)
    row[st.BYTES_MOST] = max(row[st.BYTES_MOST], np.int64(near.wire_bytes))
    return of_flow


@inlined
def _is_before(p: Passing, sighting: SightingRecord, other: SightingRecord, direction: Int) -> bool:
    """Whether a transmission was at the tap of `sighting` before that of `other`: by hop limits,
    else by times.

    Clocks may differ by more than the path between two taps takes. If so, packets of both
    directions seem to go the same way; those of the real direction take longer, always.
    """
    if sighting.hop_limit != other.hop_limit:
        return bool(sighting.hop_limit > other.hop_limit)
    a, b = np.int64(sighting.tap), np.int64(other.tap)
    if a >= st.ORDERED_TAPS or b >= st.ORDERED_TAPS:
        return bool(sighting.time < other.time)
    lags = p.lags[min(a, b), max(a, b)]
    if lags[0, st.SAMPLES] < LEAST_SAMPLES or lags[1, st.SAMPLES] < LEAST_SAMPLES:
        return bool(sighting.time < other.time)
    if lags[direction, st.LEAST] > lags[1 - direction, st.MOST]:
        return bool(a < b)
    if lags[direction, st.MOST] < lags[1 - direction, st.LEAST]:
        return bool(a > b)
    return bool(sighting.time < other.time)


@inlined
def _note_lag(p: Passing, sighting: SightingRecord, other: SightingRecord, direction: Int) -> None:
    """Learn the time between two taps."""
    a, b = np.int64(sighting.tap), np.int64(other.tap)
    if a >= st.ORDERED_TAPS or b >= st.ORDERED_TAPS:
        return
    lag = other.time - sighting.time if a < b else sighting.time - other.time
    lags = p.lags[min(a, b), max(a, b), direction]
    lags[st.LEAST] = lag if lags[st.SAMPLES] == 0 else min(lags[st.LEAST], lag)
    lags[st.MOST] = lag if lags[st.SAMPLES] == 0 else max(lags[st.MOST], lag)
    lags[st.SAMPLES] += 1


@subkernel
def _log_move(p: Passing, visit: VisitRecord, next_tap: Int, time: Int) -> None:
    """Count a move, and keep it if it is one of the first and there is room."""
    if visit.moves < st.LOGGED_MOVES and p.used[st.MOVES] < len(p.moves):
        move = p.moves[p.used[st.MOVES]]
        p.used[st.MOVES] += 1
        move.flow = visit.flow
        move.tap = visit.tap
        move.old_tap = visit.next_tap
        move.new_tap = next_tap
        move.left_ns = visit.next_ns
        move.time = time
    if visit.moves == 0:
        visit.first_move_ns = time
    visit.moves += 1
    visit.last_move_ns = time


@inlined
def _note_next(p: Passing, visit: VisitRecord, next_tap: Int, drop: Int, time: Int) -> bool:
    """Note where a transmission went on; whether it skipped a tap: its hop limit dropped by more
    than that of others of its flow, and it does not show whether the flow moved."""
    skips = visit.went_on > 0 and drop > visit.drop
    if not skips:
        if visit.went_on == 0 or drop < visit.drop:
            visit.drop = drop
            visit.early_ns = visit.next_ns
            if visit.moves == 0:
                visit.first_next_tap = next_tap
        elif visit.next_tap != next_tap:
            _log_move(p, visit, next_tap, time)
        visit.next_tap = next_tap
        visit.next_ns = time
    visit.turns += visit.went_on > 0 and visit.latest_tap != next_tap
    visit.latest_tap = next_tap
    visit.went_on += 1
    visit.run = 0
    return bool(skips)


@inlined
def _are_parallel(p: Passing, flow: Int, tap: Int, other: Int) -> bool:
    """Whether two taps with the same hop limit are beside each other: not most of the packets
    that a flow sent in order passed both. A retransmission may take any path, and comes to it after
    later packets."""
    here = p.visits[p.visit_slots[_visit_place(p, flow, tap)]]
    there = p.visits[p.visit_slots[_visit_place(p, flow, other)]]
    both = np.int64(here.shared) + np.int64(there.shared)
    return bool(4 * (both + 1) < 3 * min(np.int64(here.in_order), np.int64(there.in_order)))


@subkernel
def _without_parallel(p: Passing, flow: Int, path: Ints, taps: Int) -> Int:
    """Leave out sightings at a tap parallel to that before it: they are of a further transmission,
    from before the packets showed that the taps are parallel. The number that stays."""
    kept, mask = np.int64(1), len(p.sightings) - 1
    for k in range(1, taps):
        before, s = p.sightings[path[kept - 1] & mask], p.sightings[path[k] & mask]
        if before.hop_limit == s.hop_limit:
            if _are_parallel(p, flow, np.int64(before.tap), np.int64(s.tap)):
                continue
        path[kept] = path[k]
        kept += 1
    return kept


@inlined
def _began_later(p: Passing, sighting: SightingRecord, other: SightingRecord) -> bool:
    """Whether two sightings are far apart in time, and the tap of one did not capture yet at the
    time of the other."""
    if abs(other.time - sighting.time) <= AMBIGUOUS_NS:
        return False
    first, last = min(sighting.time, other.time), np.int64(other.tap)
    if sighting.time > other.time:
        last = np.int64(sighting.tap)
    return bool(last < st.ORDERED_TAPS and first < p.captured[last, 0])


@subkernel
def _doubt(p: Passing, t: TransmissionRecord) -> None:
    """Note that the sightings of later transmissions of the same packet may be those of `t`."""
    ring = len(p.transmissions) - 1
    hashed = _hash(np.int64(t.flow), np.int64(t.label), np.int64(0), np.int64(t.extra), p.salt)
    at: Int = np.int64(p.buckets[hashed & (len(p.buckets) - 1)])
    while at >= p.used[st.TAIL]:
        other = p.transmissions[at & ring]
        if other.flow == t.flow and other.label == t.label and other.extra == t.extra:
            other.doubtful = 1
        at = np.int64(other.chain)


@subkernel
def _is_of_two(p: Passing, path: Ints, taps: Int) -> bool:
    """Whether these may be sightings of two transmissions: much time is between two taps, and the
    first of them did not capture when the second tap saw the packet. Where others took as long,
    the link is slow or the clocks differ."""
    mask = len(p.sightings) - 1
    for k in range(taps - 1):
        near, far = p.sightings[path[k] & mask], p.sightings[path[k + 1] & mask]
        tap, delay = np.int64(near.tap), far.time - near.time
        if tap >= st.ORDERED_TAPS or abs(delay) <= AMBIGUOUS_NS:
            continue
        if p.captured[tap, 0] <= far.time <= p.captured[tap, 1]:
            continue
        edge = _edge_place(p, -1, np.int64(near.tap), np.int64(far.tap))
        number: Int = np.int64(p.edge_slots[edge])
        if number != _EMPTY:
            least, most = p.edges[number].delay_min, p.edges[number].delay_max
            is_usual = least - AMBIGUOUS_NS <= delay <= most + AMBIGUOUS_NS
            if is_usual and p.edges[number].packets >= LEAST_USUAL:
                continue
        return True
    return False


@inlined
def _conclude(p: Passing, histograms: Histograms, path: Ints, copies: Ints) -> None:
    """Follow the oldest transmission from tap to tap, and forget it. Room is there for its edges.

    `path`, int64[MOST_TAPS]: its sightings, one per tap; `copies`: further sightings there.
    """
    t = p.transmissions[p.used[st.TAIL] & (len(p.transmissions) - 1)]
    p.used[st.TAIL] += 1
    mask = len(p.sightings) - 1
    flow = np.int64(t.flow)
    taps: Int = np.int64(0)
    at = np.int64(t.sighting)
    while at != _EMPTY:  # the latest first
        number = at
        s = p.sightings[number & mask]
        at = np.int64(s.previous)
        if s.copy != 0:
            continue
        # In the order of hop limits, then of times.
        place = taps
        while place > 0:
            if _is_before(p, p.sightings[path[place - 1] & mask], s, np.int64(t.direction)):
                break
            if place < MOST_TAPS:
                path[place] = path[place - 1]
            place -= 1
        if place < MOST_TAPS:
            path[place] = number
        taps = min(taps + 1, MOST_TAPS)
    if t.ip_id == 0:
        taps = _without_parallel(p, flow, path, taps)
        is_new = t.doubtful == 0 and _is_of_two(p, path, taps)
        if is_new:
            _doubt(p, t)
        if is_new or t.doubtful:
            p.used[st.DOUBTED] += 1
            return

    for k in range(taps):
        copies[k] = 0
    at = np.int64(t.sighting)
    while at != _EMPTY:
        s = p.sightings[at & mask]
        at = np.int64(s.previous)
        if s.copy != 0:
            for k in range(taps):
                if p.sightings[path[k] & mask].tap == s.tap:
                    copies[k] += 1

    first = p.sightings[path[0] & mask]
    begun = edge_of(p, flow, st.START, np.int64(first.tap))
    edge = p.edges[begun]
    for which in range(2):
        if which == 1:
            edge = p.edges[np.int64(p.hops[np.int64(edge.hop)])]
        _grown(edge, first.time, np.int64(first.wire_bytes), np.int64(first.hop_limit))
        if copies[0] > 0:
            edge.copies += copies[0]
            edge.first_copy_ns = min(edge.first_copy_ns, first.time)
            edge.last_copy_ns = max(edge.last_copy_ns, first.time)
    visit = p.visits[p.visit_slots[_visit_place(p, flow, st.START)]]
    is_new = (visit.went_on and visit.next_tap != first.tap) or p.edges[begun].packets <= 1
    drop = 255 - np.int64(first.hop_limit)
    if _note_next(p, visit, np.int64(first.tap), drop, first.time) or is_new:
        _log_end(p, t, first, begun, np.int64(0), np.int64(st.MOST_OUTPUTS))

    for k in range(taps - 1):
        near, far = p.sightings[path[k] & mask], p.sightings[path[k + 1] & mask]
        # Late at the first tap, it was sent late; parallel taps before this hop hid that.
        in_order = near.overtaken == 0 and first.overtaken == 0
        overtaken = np.int64(far.overtaken) if in_order else np.int64(0)
        more = max(copies[k + 1] - copies[k], 0)
        passed = _note_pass(p, histograms, flow, near, far, more, overtaken)
        visit = p.visits[p.visit_slots[_visit_place(p, flow, np.int64(near.tap))]]
        drop = np.int64(near.hop_limit) - np.int64(far.hop_limit)
        if _note_next(p, visit, np.int64(far.tap), drop, near.time):
            _log_end(p, t, near, passed, np.int64(0), np.int64(st.MOST_OUTPUTS))
        visit.output = _output_of(far)

    last = p.sightings[path[taps - 1] & mask]
    ended = edge_of(p, flow, np.int64(last.tap), st.END)
    visit = p.visits[p.visit_slots[_visit_place(p, flow, np.int64(last.tap))]]
    visit.run += 1
    if visit.went_on or p.edges[ended].packets < FIRST_ENDS:
        output = np.int64(visit.output) if visit.went_on else np.int64(st.MOST_OUTPUTS)
        _log_end(p, t, last, ended, np.int64(visit.run), output)
    else:
        p.edges[ended].unlogged_early += 1
        p.edges[ended].last_early_ns = last.time
    if visit.run == st.LONG_RUN:
        visit.long_runs += 1
        visit.in_long_runs += st.LONG_RUN
    elif visit.run > st.LONG_RUN:
        visit.in_long_runs += 1
    edge = p.edges[ended]
    _grown(edge, last.time, np.int64(last.wire_bytes), np.int64(last.hop_limit))
    of_all = p.edges[np.int64(p.hops[np.int64(edge.hop)])]
    _grown(of_all, last.time, np.int64(last.wire_bytes), np.int64(last.hop_limit))


@subkernel
def conclude_until(
    p: Passing,
    histograms: Histograms,
    path: Ints,
    copies: Ints,
    time: int,
) -> int:
    """Conclude transmissions first seen before `time`; DONE, or what has no room."""
    while p.used[st.TAIL] < p.used[st.HEAD]:
        t = p.transmissions[p.used[st.TAIL] & (len(p.transmissions) - 1)]
        if t.first_ns >= time:
            break
        if p.used[st.EDGES] + 2 * MOST_TAPS + 4 > len(p.edges):
            return NO_EDGES
        if p.used[st.HOPS] + MOST_TAPS + 2 > len(p.hops):
            return NO_HOPS
        _conclude(p, histograms, path, copies)
    return DONE


@inlined
def visit_of(p: Passing, flow: Int, tap: Int) -> Int:
    """The visits of a flow at a tap, created when new; room is there."""
    place = _visit_place(p, flow, tap)
    index = np.int64(p.visit_slots[place])
    if index == _EMPTY:
        index = p.used[st.VISITS]
        p.used[st.VISITS] += 1
        p.visit_slots[place] = index
        visit = p.visits[index]
        visit.flow = flow
        visit.tap = tap
        visit.next_tap = st.START
    return index


@inlined
def _overtaken(visit: VisitRecord, opcode: Int, psn: Int) -> Int:
    """How many packets with higher PSNs of its sequence were at this tap before; counts the packet.

    0: in order. PSNs more than 64 below the highest one all count as seen.
    """
    visit.packets += 1
    bits = np.int64(bth.OPCODE_CLASS[opcode])
    if not bits & bth.SEQUENCED or not bits & (bth.REQUEST | bth.RESPONSE_DATA):
        return 0
    which = 1 if bits & bth.RESPONSE_DATA else 0
    distance = psn_distance(psn, np.int64(visit.highest[which]))
    begins = visit.started[which] == 0 or distance < -_RESTART
    if begins or distance > 0:
        kept = np.uint64(0) if begins or distance >= RECENT else np.uint64(visit.recent[which])
        visit.started[which] = 1
        visit.highest[which] = psn
        visit.recent[which] = (kept << np.uint64(distance & (RECENT - 1))) | np.uint64(1)
        return 0
    behind = -distance
    higher = np.uint64(visit.recent[which])
    if behind < RECENT:
        higher &= (np.uint64(1) << np.uint64(behind)) - np.uint64(1)
        visit.recent[which] |= np.uint64(1) << np.uint64(behind)
    count = max(behind - RECENT, 0)
    while higher:
        higher &= higher - np.uint64(1)
        count += 1
    return min(max(count, 1), _MOST_OVERTAKING)


@inlined
def _misfit(p: Passing, t: TransmissionRecord, tap: Int, limit: Int, time: Int) -> Int:
    """How far, in ns, a sighting is outside the times that packets took from the latest sighting of
    a transmission to this tap; at least `_UNKNOWN` where none did, least for the next router."""
    before = p.sightings[np.int64(t.sighting) & (len(p.sightings) - 1)]
    other = np.int64(before.tap)
    unknown = _UNKNOWN + abs(np.int64(before.hop_limit) - limit - 1)
    if tap >= st.ORDERED_TAPS or other >= st.ORDERED_TAPS:
        return unknown
    lags = p.lags[min(tap, other), max(tap, other), np.int64(t.direction)]
    if lags[st.SAMPLES] == 0:
        return unknown
    lag = time - before.time if other < tap else before.time - time
    return max(lags[st.LEAST] - lag, lag - lags[st.MOST], 0)


@inlined
def _match(
    p: Passing, rows: Rows, i: Int, label: Int, ip_id: Int, extra: Int, overtaken: Int, head: Int
) -> Int:
    """The transmission that row i is a sighting of, or one of `_NEW` to `_IGNORED`.

    `overtaken`: as `_overtaken`; `head`: the newest transmission of its bucket. Copies give the
    transmission plus `_COPY`.
    """
    if ip_id == 0:
        return _match_without_id(p, rows, i, label, extra, overtaken, head)
    ring, mask = len(p.transmissions) - 1, len(p.sightings) - 1
    flow, tap = np.int64(rows.flow[i]), np.int64(rows.tap[i])
    at = head
    while at >= p.used[st.TAIL]:
        t = p.transmissions[at & ring]
        if t.flow == flow and t.label == label and t.ip_id == ip_id and t.extra == extra:
            seen = np.int64(t.sighting)
            while seen != _EMPTY and p.sightings[seen & mask].tap != tap:
                seen = np.int64(p.sightings[seen & mask].previous)
            if seen == _EMPTY:
                return at
            if p.sightings[seen & mask].hop_limit != rows.hop_limit[i]:
                return _IGNORED  # one tap mirrors the packet before and after a router
            return at + _COPY
        at = np.int64(t.chain)
    return _NEW


@subkernel
def _match_without_id(
    p: Passing, rows: Rows, i: Int, label: Int, extra: Int, overtaken: Int, head: Int
) -> Int:
    """The same without identification: of several transmissions the one that fits learned times
    best, the oldest that fits, else the newest of equals."""
    ring, mask = len(p.transmissions) - 1, len(p.sightings) - 1
    flow, tap, limit = np.int64(rows.flow[i]), np.int64(rows.tap[i]), np.int64(rows.hop_limit[i])
    verdict, time = np.int64(rows.verdict[i]), np.int64(rows.time_ns[i])
    again = verdict == RETRANSMITTED or verdict == RECOVERED
    best: Int
    original: Int
    misfit: Int
    best, original, misfit = np.int64(_NEW), np.int64(-1), np.int64(_ALWAYS)
    twins = 0
    at = head
    while at >= p.used[st.TAIL] and twins < _MOST_TWINS:
        t = p.transmissions[at & ring]
        if t.flow == flow and t.label == label and t.ip_id == 0 and t.extra == extra:
            twins += 1
            beside, late = np.int64(-1), np.int64(0)
            seen = np.int64(t.sighting)
            while seen != _EMPTY and p.sightings[seen & mask].tap != tap:
                if p.sightings[seen & mask].hop_limit == limit:
                    beside = np.int64(p.sightings[seen & mask].tap)
                    late = overtaken + np.int64(p.sightings[seen & mask].overtaken)
                seen = np.int64(p.sightings[seen & mask].previous)
            if seen == _EMPTY:
                if beside >= 0 and late == 0 and twins == 1:
                    p.visits[p.visit_slots[_visit_place(p, flow, tap)]].shared += 1
                if beside < 0 or not _are_parallel(p, flow, tap, beside):
                    if not t.again and twins == 1:
                        return at
                    off = _misfit(p, t, tap, limit, time)
                    if off < misfit or off == 0:
                        best, misfit = at, off
            else:
                s = p.sightings[seen & mask]
                if s.hop_limit != limit:
                    return _IGNORED
                if time - s.time < TWIN_NS and not again and original < 0:
                    original = at
            if not t.again:
                break
        at = np.int64(t.chain)
    if original >= 0 and misfit > TWIN_NS:
        return original + _COPY
    if best < 0 and twins > 0:
        return _NEW_AGAIN
    return best


@inlined
def _oldest_sighting(p: Passing) -> Int:
    """The oldest sighting still in use."""
    if p.used[st.TAIL] == p.used[st.HEAD]:
        return p.used[st.SIGHTED]
    return np.int64(p.transmissions[p.used[st.TAIL] & (len(p.transmissions) - 1)].first_sighting)


@subkernel
def _log_resent(p: Passing, rows: Rows, i: Int, label: Int) -> None:
    """Keep the moment of a retransmission, if there is room."""
    if p.used[st.RESENT] == len(p.resent):
        p.used[st.UNLOGGED] += 1
        return
    moment = p.resent[p.used[st.RESENT]]
    p.used[st.RESENT] += 1
    moment.flow = rows.flow[i]
    moment.label = label
    moment.edge = -1
    moment.tap = rows.tap[i]
    moment.udp_sport = rows.udp_sport[i]
    moment.hop_limit = rows.hop_limit[i]
    moment.wire_bytes = rows.wire_bytes[i]
    moment.time = rows.time_ns[i]
    moment.frame = rows.frame_number[i]
    moment.later = p.clock[st.NEWEST]


@kernel
def rehash(p: Passing) -> None:
    """Fill the empty slots and buckets after a table has grown."""
    for index in range(p.used[st.EDGES]):
        edge = p.edges[index]
        place = _edge_place(p, np.int64(edge.flow), np.int64(edge.from_tap), np.int64(edge.to_tap))
        p.edge_slots[place] = index
    for index in range(p.used[st.VISITS]):
        visit = p.visits[index]
        p.visit_slots[_visit_place(p, np.int64(visit.flow), np.int64(visit.tap))] = index
    for number in range(p.used[st.TAIL], p.used[st.HEAD]):
        t = p.transmissions[number & (len(p.transmissions) - 1)]
        flow, label = np.int64(t.flow), np.int64(t.label)
        bucket = _hash(flow, label, np.int64(t.ip_id), np.int64(t.extra), p.salt)
        bucket &= len(p.buckets) - 1
        t.chain = p.buckets[bucket]
        p.buckets[bucket] = number


@inlined
def _tick(p: Passing, time: Int) -> None:
    """Move the present to the time of a packet; single packets far from it do not move it."""
    clock = p.clock
    time = min(time, _ALWAYS - 1)  # what waits since then can still be concluded
    half = time // 2 - clock[st.NEWEST] // 2  # wild times differ by more than an int64 holds
    if abs(half) <= STEP_NS // 2 or clock[st.NEWEST] == st.NOT_BEGUN:
        clock[st.NEWEST] = max(clock[st.NEWEST], time)
        clock[st.AWAY] = 0
        return
    away = max(clock[st.AWAY], 0) + 1 if half > 0 else min(clock[st.AWAY], 0) - 1
    clock[st.AWAY] = away
    if abs(away) == 1:
        p.used[st.AWAY_FROM] = p.used[st.HEAD]
    if away >= AHEAD_TRUSTED or away <= -BEHIND_TRUSTED:
        clock[st.NEWEST], clock[st.AWAY] = time, 0
        for number in range(max(p.used[st.AWAY_FROM], p.used[st.TAIL]), p.used[st.HEAD]):
            p.transmissions[number & (len(p.transmissions) - 1)].first_ns = time


@subkernel
def hash_rows(rows: Rows, salt: UInt64s, hashes: Ints) -> None:
    """Write the hash of each row, int64[rows], for `follow`."""
    for i in range(len(rows.flow)):
        label, ip_id, extra = _identity(rows, i)
        hashes[i] = _hash(np.int64(rows.flow[i]), label, ip_id, extra, salt)


@subkernel
def follow(
    p: Passing,
    histograms: Histograms,
    rows: Rows,
    start: int,
    may_grow: bool,
    reason: Ints,
    path: Ints,
    copies: Ints,
    hashes: Ints,
) -> int:
    """Take in rows from `start`; returns their number, or the row that has no room.

    `reason`, int64[1]: what has no room. `hashes`: of `hash_rows`. Without `may_grow` the oldest
    transmissions are concluded early for lack of room in the rings.
    """
    for i in range(start, len(rows.flow)):
        _fetch_ahead(p, hashes, i)
        flow, tap = np.int64(rows.flow[i]), np.int64(rows.tap[i])
        time = rows.time_ns[i]
        opcode, psn = np.int64(rows.opcode[i]), np.int64(rows.psn[i])
        _tick(p, time)
        if tap < st.ORDERED_TAPS:
            p.captured[tap, 0] = min(p.captured[tap, 0], time)
            p.captured[tap, 1] = max(p.captured[tap, 1], time)
        if p.used[st.TAIL] > CONCLUDED_BEFORE_NARROWING:
            waited = max(SPANS_WAITED * p.clock[st.LONGEST], LEAST_HORIZON_NS)
            p.clock[st.HORIZON] = min(waited, FIRST_HORIZON_NS)
        until = p.clock[st.NEWEST] - p.clock[st.HORIZON]
        # Two at a time keep pace and never stop the rows for long.
        for _ in range(2):
            oldest = p.transmissions[p.used[st.TAIL] & (len(p.transmissions) - 1)]
            crowded = p.used[st.HEAD] - p.used[st.TAIL] >= len(p.transmissions) or p.used[
                st.SIGHTED
            ] - _oldest_sighting(p) >= len(p.sightings)
            # Where the rings have room, a packet may wait for longer than any did before.
            waits_since = until if crowded else p.clock[st.NEWEST] - FIRST_HORIZON_NS
            if p.used[st.TAIL] == p.used[st.HEAD] or (
                waits_since <= oldest.first_ns <= p.clock[st.NEWEST] and (may_grow or not crowded)
            ):
                break
            if p.used[st.EDGES] + 2 * MOST_TAPS + 4 > len(p.edges):
                reason[0] = NO_EDGES
                return i
            if p.used[st.HOPS] + MOST_TAPS + 2 > len(p.hops):
                reason[0] = NO_HOPS
                return i
            if oldest.first_ns >= until:
                p.clock[st.HURRIED] += 1
            _conclude(p, histograms, path, copies)
        if p.used[st.HEAD] - p.used[st.TAIL] >= len(p.transmissions):
            reason[0] = NO_TRANSMISSIONS
            return i
        if p.used[st.SIGHTED] - _oldest_sighting(p) >= len(p.sightings):
            reason[0] = NO_SIGHTINGS
            return i
        if p.used[st.VISITS] + 2 > len(p.visits):
            reason[0] = NO_VISITS
            return i
        label, ip_id, extra = _identity(rows, i)
        bucket = hashes[i] & (len(p.buckets) - 1)
        visit = p.visits[visit_of(p, flow, tap)]
        overtaken = _overtaken(visit, opcode, psn)
        visit.in_order += overtaken == 0
        head = np.int64(p.buckets[bucket])
        match = _match(p, rows, i, label, ip_id, extra, np.int64(overtaken), head)
        if match == _IGNORED:
            continue
        copy = match >= _COPY
        if copy:
            match -= _COPY
        number = p.used[st.SIGHTED]
        p.used[st.SIGHTED] += 1
        s = p.sightings[number & (len(p.sightings) - 1)]
        s.previous = _EMPTY
        if match < 0:
            is_known = match == _NEW_AGAIN
            match = p.used[st.HEAD]
            p.used[st.HEAD] += 1
            visit_of(p, flow, st.START)
            t = p.transmissions[match & (len(p.transmissions) - 1)]
            t.flow = flow
            t.direction = rows.src[i] < rows.dst[i]
            t.label = label
            t.ip_id = ip_id
            t.extra = extra
            t.again = is_known
            t.doubtful = 0
            t.first_ns = p.clock[st.NEWEST]
            t.first_sighting = number
            t.chain = p.buckets[bucket]
            p.buckets[bucket] = match
            verdict = rows.verdict[i]
            if verdict == RETRANSMITTED or verdict == RECOVERED or verdict == OVERTAKEN:
                overtaken = max(overtaken, 1)
                _log_resent(p, rows, i, label)
        else:
            t = p.transmissions[match & (len(p.transmissions) - 1)]
            s.previous = t.sighting
            span = abs(time - t.first_ns)
            if not copy and p.clock[st.LONGEST] < span <= FIRST_HORIZON_NS:
                p.clock[st.LONGEST] = span
        t.sighting = number
        s.time = time
        s.frame = rows.frame_number[i]
        s.wire_bytes = rows.wire_bytes[i]
        s.payload_bytes = rows.payload_bytes[i]
        s.tap = tap
        s.udp_sport = rows.udp_sport[i]
        s.hop_limit = rows.hop_limit[i]
        s.traffic_class = rows.traffic_class[i]
        s.overtaken = overtaken
        s.copy = copy
        s.icrc_state = rows.icrc_state[i]
        s.fragment = rows.decode_flags[i] & FIRST_FRAGMENT != 0
        if s.previous != _EMPTY and not copy:
            before = p.sightings[s.previous & (len(p.sightings) - 1)]
            alike = s.hop_limit == before.hop_limit
            if alike or (ip_id == 0 and not t.again and not _began_later(p, before, s)):
                _note_lag(p, before, s, np.int64(t.direction))
    return len(rows.flow)
