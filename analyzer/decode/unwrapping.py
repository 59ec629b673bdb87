"""Batches of encapsulated frames become batches of their inner frames."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ...kernels.kernel import Int, NamedTuple, allocating, inlined, subkernel
from ..wire.packets import I64, LINKTYPE_ETHERNET, U8, U16, U32, FrameBatch, FrameColumns
from ..wire.taps import Taps
from . import outcomes, sflow
from . import sessions as ses
from . import tunnel_patterns as pt
from . import tunnels as words
from .control import count_uet
from .counters import CounterArrays, DecodeCounters
from .headers import UDP_BYTES, be16
from .sessions import SessionArrays, Sessions, session_tap
from .sflow import next_header, open_datagram
from .tunnel_patterns import Patterns, recognise, tap_of_pattern
from .tunnels import begin_walk, walk

# Replaces the encapsulated frames of mirrors and tunnels by the inner frames; all others stay.
#
# The decoder calls it only for batches with a frame that may be encapsulated.


class Inner(NamedTuple):
    """Inner frames, as the kernel fills them; the fields of a FrameBatch and more."""

    offset: I64
    captured: U32
    wire: U32
    time_ns: I64
    tap: U16
    link_type: U16
    source: I64
    """Position in the batch of the outer frame of each."""
    vlan: U16
    """Innermost TCI around a packet that has lost its Ethernet header."""
    outer_ipv6: I64
    """Position of the outermost IPv6 header around a packet, -1 for none (SRv6)."""
    stamp: I64
    """Position of a header with a hardware timestamp, -1 for none."""
    rate: U32
    """One frame in N was sampled (sFlow); 0 for all."""
    ethernet: I64
    """Position of the Ethernet header with which the packet crossed the observed link: of a mirror
    the inner one, of a tunnel the outer one; -1 for none."""


def room_for(rows: int) -> Inner:
    """Uninitialised arrays of this many rows."""
    types = (np.int64, np.uint32, np.uint32, np.int64, np.uint16, np.uint16, np.int64, np.uint16)
    return Inner._make(np.empty(rows, t) for t in (*types, np.int64, np.int64, np.uint32, np.int64))


def rows_of(inner: Inner, positions: I64) -> Inner:
    """The rows at these positions, copied."""
    return Inner._make(array[positions] for array in inner)


def part_of(inner: Inner, start: int, stop: int) -> Inner:
    """Rows start..stop as views."""
    return Inner._make(array[start:stop] for array in inner)


@inlined
def _tap_of(w: I64, carrier: Int, sessions: SessionArrays) -> Int:
    """The tap of a walked frame, -1 if its session is not registered yet."""
    if w[words.KIND] == 0:
        return carrier
    what = (w[words.KIND] << ses.KIND_SHIFT) | (w[words.DIRECTION] << ses.DIRECTION_SHIFT)
    what |= (carrier << ses.TAP_SHIFT) | w[words.NUMBER]
    return session_tap(w[words.SOURCE_HIGH], w[words.SOURCE_LOW], what, sessions)


@inlined
def _write(w: I64, out: Inner, row: Int, source: Int, time_ns: Int, tap: Int) -> None:
    r = np.uint64(row)
    out.offset[r] = w[words.BEGIN]
    out.captured[r] = max(w[words.END] - w[words.BEGIN], 0)
    out.wire[r] = max(w[words.STOP] - w[words.FRAME], 0)
    out.time_ns[r] = time_ns
    out.tap[r] = tap
    out.link_type[r] = w[words.LINK]
    out.source[r] = source
    out.vlan[r] = 0 if w[words.LINK] == LINKTYPE_ETHERNET else w[words.VLAN]
    out.outer_ipv6[r] = w[words.OUTER_IPV6]
    out.stamp[r] = w[words.STAMP]
    out.rate[r] = w[words.RATE]
    out.ethernet[r] = w[words.ETHERNET]


@subkernel
def _count_layers(seen: Int, frames: Int, tunnels: I64) -> None:
    kind = 0
    while seen != 0:
        if seen & 1 != 0:
            tunnels[np.uint64(kind)] += frames
        seen >>= 1
        kind += 1


@inlined
def _at_roce(w: I64) -> bool:
    """Whether a walk has ended at a RoCE packet."""
    return bool(
        w[words.STEPS] > 0
        and w[np.uint64(words.TRAIL - 1 + w[words.STEPS])] >> words.STEP_SHIFT == words.ROCE_STEP
    )


@inlined
def _next_pattern(p: np.uint64) -> np.uint64:
    return np.uint64((p + np.uint64(1)) & np.uint64(pt.N_PATTERNS - 1))


@subkernel
def _count_known(t: I64, p: np.uint64, outcome: I64, note: I64, tunnels: I64) -> None:
    """Count the frames that the pattern in row `p` of `t` recognised since the last call."""
    frames, carrier = t[p, pt.FOUND], np.uint64(t[p, pt.CARRIER])
    _count_layers(t[p, pt.SEEN], frames, tunnels)
    note[carrier, outcomes.ENCAPSULATED] += frames
    if t[p, pt.WHAT] != 0:
        outcome[carrier, outcomes.CARRIER] += frames
        note[carrier, outcomes.INNER_FRAMES] += frames
    t[p, pt.FOUND] = 0


_DONE, _WAIT, _PASS_ON = range(3)


@inlined
def _sampled_frames(
    data: U8,
    w: I64,
    x: I64,
    source: Int,
    time_ns: Int,
    carrier: Int,
    row: Int,
    ports: U8,
    sessions: SessionArrays,
    counters: CounterArrays,
    state: I64,
    out: Inner,
) -> tuple[Int, Int, Int]:
    """Unpack the sFlow datagram with UDP at `w[AT]`: (next action, rows written, fields in use).

    _WAIT if an interface is new or `out` is full: a later call continues after the finished
    samples. _PASS_ON if it is not sFlow. A sampled frame belongs to its interface, whatever mirrors
    it contains. Inlined: passing this many arrays costs as much as the walks.
    """
    payload, depth, seen = w[words.AT] + UDP_BYTES, w[words.DEPTH], w[words.SEEN] | (1 << ses.SFLOW)
    stop = min(w[words.STOP], w[words.AT] + be16(data, w[words.AT] + 4))
    end = min(w[words.END], stop)
    rows = samples = 0
    used: Int = 0
    c = np.uint64(carrier)
    outcome = open_datagram(data, x, payload, end, stop)
    if outcome == sflow.NOT_SFLOW:
        return _PASS_ON, rows, used
    if outcome == sflow.ENDED:
        outcome = next_header(data, x)
    while outcome == sflow.SAMPLED:
        samples += 1
        if samples > state[pt.SAMPLES_DONE]:
            what = _port(x, carrier)
            tap = session_tap(x[sflow.AGENT_HIGH], x[sflow.AGENT_LOW], what, sessions)
            if tap < 0 or row + rows == len(out.offset):
                return _WAIT, rows, used
            begin_walk(
                w, x[sflow.HEADER], x[sflow.HEADER_END], x[sflow.HEADER_STOP], x[sflow.HEADER_LINK]
            )
            w[words.KIND] = ses.SFLOW
            w[words.DEPTH] = depth + 1
            w[words.SEEN] = seen
            end_of_walk = walk(data, w, ports)
            w[words.RATE] = x[sflow.RATE]
            counters.notes[c, outcomes.INNER_FRAMES] += 1
            counters.notes[c, outcomes.ENCAPSULATED] += 1
            _count_layers(w[words.SEEN], 1, counters.tunnels)
            if end_of_walk < 0:
                counters.outcomes[np.uint64(tap), np.uint64(-end_of_walk)] += 1
            elif end_of_walk == words.UET_PACKET:
                _count_uet(data, w, tap, counters)
            else:
                _write(w, out, row + rows, source, time_ns, tap)
                used |= _fields_in_use(w)
                rows += 1
            state[pt.SAMPLES_DONE] = samples
        outcome = next_header(data, x)
    state[pt.SAMPLES_DONE] = 0
    counters.outcomes[c, np.uint64(-outcome if outcome < 0 else outcomes.CARRIER)] += 1
    return _DONE, rows, used


@inlined
def _fields_in_use(w: I64) -> Int:
    used = pt.WITH_RATE if w[words.RATE] != 0 else 0
    if w[words.LINK] != LINKTYPE_ETHERNET and w[words.VLAN] != 0:
        used |= pt.WITH_VLAN
    if w[words.OUTER_IPV6] >= 0:
        used |= pt.WITH_OUTER_IPV6
    return used


@inlined
def _port(x: I64, carrier: Int) -> Int:
    what = (ses.SFLOW << ses.KIND_SHIFT) | (x[sflow.DIRECTION] << ses.DIRECTION_SHIFT)
    return what | (carrier << ses.TAP_SHIFT) | x[sflow.INTERFACE]


@inlined
def _count_uet(data: U8, w: I64, tap: Int, counters: CounterArrays) -> None:
    counted = count_uet(
        data, w[words.AT], w[words.END], w[words.STOP] - w[words.FRAME], counters.uet
    )
    counters.outcomes[np.uint64(tap), outcomes.UET if counted else outcomes.TRUNCATED_UDP] += 1


@allocating
def unwrap_frames(
    data: U8,
    frames: FrameColumns,
    first_frame: Int,
    ports: U8,
    sessions: SessionArrays,
    counters: CounterArrays,
    patterns: I64,
    state: I64,
    w: I64,
    out: Inner,
    first_row: Int,
) -> tuple[Int, Int, Int]:
    """Copy frames from `first_frame` on, encapsulated frames replaced by their inner frames.

    Fills `out` from `first_row` on. Returns (frames done, rows filled, fields of `Inner` in use).
    Stops early, before the frame it returns, if a session is new (Sessions.add_pending), a pattern
    is to be learned from the frame (Patterns, which has patterns, state and w) or `out` is full.
    Unreadable frames are counted and left out.
    """
    row = first_row
    x = np.zeros(sflow.N_FIELDS, np.int64)
    last = np.uint64(state[pt.LAST])
    used: Int = 0
    outcome, note = counters.outcomes, counters.notes
    done = len(frames.offset)
    for i in range(first_frame, len(frames.offset)):
        if row == len(out.offset):
            done = i
            break
        u = np.uint64(i)
        begin = frames.offset[u]
        end = begin + np.int64(frames.captured[u])
        stop = begin + np.int64(frames.wire[u])
        carrier = np.int64(frames.tap[u])
        link = np.int64(frames.link_type[u])
        known = False
        for _ in range(pt.N_PATTERNS):
            known = recognise(data, begin, end, stop, link, patterns, last, w)
            if known:
                break
            last = _next_pattern(last)
        if known:
            tap = tap_of_pattern(data, begin, carrier, patterns, last, sessions)
            if tap < 0:
                done = i
                break
            if carrier != patterns[last, pt.CARRIER]:
                _count_known(patterns, last, outcome, note, counters.tunnels)
                patterns[last, pt.CARRIER] = carrier
            patterns[last, pt.FOUND] += 1
            used |= patterns[last, pt.USED]
            _write(w, out, row, i, frames.time_ns[u], tap)
            row += 1
            continue
        begin_walk(w, begin, end, stop, link)
        end_of_walk = walk(data, w, ports)
        if end_of_walk == words.SFLOW_DATAGRAM and w[words.DEPTH] < words.MAX_DEPTH:
            time = frames.time_ns[u]
            step, rows, more = _sampled_frames(
                data, w, x, i, time, carrier, row, ports, sessions, counters, state, out
            )
            row += rows
            used |= more
            if step == _WAIT:
                done = i
                break
            if step == _DONE:
                continue
            end_of_walk = words.END_OF_WALK
        if end_of_walk < 0:
            outcome[np.uint64(carrier), np.uint64(-end_of_walk)] += 1
            continue
        if end_of_walk == words.END_OF_WALK and w[words.DEPTH] > 0 and _at_roce(w):
            if state[pt.WALKS_LEFT] == 0:
                state[pt.DUE] = 1
                done = i
                break
            state[pt.WALKS_LEFT] -= 1
        tap = _tap_of(w, carrier, sessions)
        if tap < 0:
            done = i
            break
        _count_layers(w[words.SEEN], 1, counters.tunnels)
        if w[words.KIND] != 0:
            outcome[np.uint64(carrier), outcomes.CARRIER] += 1
            note[np.uint64(carrier), outcomes.INNER_FRAMES] += 1
        if end_of_walk == words.UET_PACKET:
            _count_uet(data, w, tap, counters)
            continue
        if w[words.DEPTH] == 0:  # not encapsulated: keeps the lengths of its capture
            begin_walk(w, begin, end, stop, link)
        else:
            note[np.uint64(carrier), outcomes.ENCAPSULATED] += 1
            used |= _fields_in_use(w)
        _write(w, out, row, i, frames.time_ns[u], tap)
        row += 1
    state[pt.LAST] = np.int64(last)
    for _ in range(pt.N_PATTERNS):
        _count_known(patterns, last, outcome, note, counters.tunnels)
        last = _next_pattern(last)
    return done, row, used


# Turns batches of encapsulated frames into batches of their inner frames.

_ROWS = 1 << 16
"""Room for the inner frames of one pass; an sFlow datagram may hold several."""


class Unwrapper:
    """Decapsulates mirrors and tunnels for one decoder, and registers their taps."""

    def __init__(self, taps: Taps, roce_ports: U8) -> None:
        self._taps = taps
        self._roce_ports = roce_ports
        self.sessions = Sessions(taps)
        self.patterns = Patterns()
        self._room = room_for(0)

    def batches(
        self, frames: FrameBatch, first: int, counters: DecodeCounters
    ) -> Iterator[tuple[FrameBatch, Inner, int]]:
        """Frames from `first` on in order, encapsulated frames replaced by their inner frames.

        Yields (batch, Inner, fields of `Inner` in use: bits of tunnel_patterns.py).
        `first_frame_number` of a batch is 0: its rows are positions in `Inner`, whose `source` is
        the position of the outer frame in `frames`. A batch is valid until the next one is
        requested.
        """
        done = first
        while done < len(frames):
            if len(self._room.offset) < max(_ROWS, len(frames)):
                self._room = room_for(max(_ROWS, len(frames)))
            room = self._room
            filled = used = 0
            while done < len(frames):
                done, filled, more = self.unwrap(frames, done, room, filled, counters)
                used |= more
                if done == len(frames):
                    break
                if self.sessions.pending:
                    self.sessions.add_pending()
                elif self.patterns.due:
                    begin, link_type = int(frames.offset[done]), int(frames.link_type[done])
                    self.patterns.learn(frames.data, begin, link_type)
                else:
                    break
            counters.make_room(len(self._taps))
            inner = part_of(room, 0, filled)
            yield (
                replace(
                    frames,
                    first_frame_number=0,
                    **{name: getattr(inner, name) for name in FrameColumns._fields},
                ),
                inner,
                used,
            )

    def unwrap(
        self, frames: FrameBatch, first: int, room: Inner, filled: int, counters: DecodeCounters
    ) -> tuple[int, int, int]:
        """One pass of the kernel; returns the result of `unwrap_frames`."""
        counters.make_room(len(self._taps))
        done, rows, used = unwrap_frames(
            frames.data,
            frames.columns,
            first,
            self._roce_ports,
            self.sessions.arrays,
            counters.arrays,
            self.patterns.rows,
            self.patterns.state,
            self.patterns.trail,
            room,
            filled,
        )
        return int(done), int(rows), int(used)
