"""What a verdict refers to: the expected PSN, the gap of a late packet, the earlier packet.

The tracker judges; this module looks up the packets to which its verdicts refer. A bucket of slots
is addressed by stream and PSN, so that consecutive PSNs of a stream never collide; a packet whose
slot was reused is unknown.
"""

from __future__ import annotations

import numpy as np

from ...kernels.kernel import Int, Ints, Record, RecordArray, UInt16s, inlined, kernel, subkernel
from ..wire.bth import (
    ACKNOWLEDGE,
    BEGINS,
    MARKS_RESENDS,
    OPCODE_CLASS,
    READ_REQUEST,
    RESPONSE_DATA,
    psn_add,
    psn_distance,
)
from ..wire.bth import SEQUENCED as HAS_PSN_ORDER
from .batch import (
    AHEAD,
    DUPLICATE,
    IN_ORDER,
    MIRROR_DUPLICATE,
    NOT_SEQUENCED,
    OVERTAKEN,
    RECOVERED,
    REORDERED,
    RESTARTED,
    RETRANSMITTED,
    TAP_COPY,
    Rows,
    TrackedBatch,
)
from .state import RESTART_DISTANCE, State
from .tracker import FlowTracker
from .window import path_mtu_of, responses_of

REFERENCE = np.dtype(
    [
        ("due", "i8"),  # expected PSN
        ("extent", "i8"),  # of late packets, RFC 4737 4.2
        ("late_ns", "i8"),  # of late packets, RFC 4737 4.3: time since the gap opened
        ("gap", "i8"),  # number of the gap that opens, or from which a late packet comes
        ("other", "i8"),  # number of the packet that the verdict refers to
        ("since_ns", "i8"),  # of a copy: time since the previous tap
        ("hop", "i8"),  # taps that have seen the transmission, this one included
    ]
)
"""All fields are -1 where not applicable or unknown."""

_LEAST_SLOTS, _MOST_SLOTS = 1 << 16, 1 << 22
_SLOTS_PER_FLOW = 512
_WAYS = 4
"""Slots of a bucket."""
_OPEN_NS = 10_000_000_000
"""No packet of a gap counts as late after this time."""
"""Memory is bounded by flows: 72 bytes per slot, 300 MB in all at most."""
_STREAMS = 3
"""Per flow: requests, responses, and packets without a PSN order."""
_LOOSE = 2
_SPREAD = 0x9E3779B1
_SMALLEST_PATH_MTU = 256

_SLOT = np.dtype(
    [
        ("key", "i8"),  # stream and PSN plus one; 0: unused
        ("frame", "i8"),  # number of the first sight of the latest transmission; -1: a gap
        ("last_frame", "i8"),  # number of its latest sight
        ("time", "i8"),  # of that
        ("gap", "i8"),  # number of the gap, -1 where the PSN was not skipped
        ("gap_frame", "i8"),  # number of the packet that opened it
        ("gap_arrival", "i8"),
        ("gap_time", "i8"),
        ("sent", "u2"),  # distinguishes transmissions, see state.SLOT
        ("tap", "u2"),  # of the latest sight
        ("hops", "u2"),
    ],
    align=True,
)


class _Slot(Record):
    """An element of the table of slots."""


class References:
    """The packets that verdicts refer to; one object for all batches of a tracker."""

    def __init__(self) -> None:
        self._slots = np.zeros(_LEAST_SLOTS, _SLOT)
        self._next = np.full(0, -1, np.int64)
        self._arrivals = np.zeros(0, np.int64)
        self._counts = np.zeros(2, np.int64)

    @property
    def gaps(self) -> int:
        """Number of gaps so far; they are numbered from 0."""
        return int(self._counts[0])

    @property
    def forgotten(self) -> int:
        """Skipped PSNs whose slots were reused: whether they arrived late is unknown."""
        return int(self._counts[1])

    def update(self, tracker: FlowTracker, batch: TrackedBatch, numbers: Ints) -> RecordArray:
        """REFERENCE[n] of a batch that this tracker judged; numbers: int64[n], of its packets."""
        self._grow(batch.n_flows)
        table = batch.table
        references = np.full(len(table), -1, REFERENCE)
        sent = np.where(
            OPCODE_CLASS[table.opcode] & MARKS_RESENDS != 0, table.udp_sport, table.ip_id
        )
        _look_up(
            tracker.state,
            self._slots,
            self._next,
            self._arrivals,
            self._counts,
            batch.rows,
            sent,
            numbers,
            references,
        )
        return references

    def _grow(self, flows: int) -> None:
        if 2 * flows > len(self._next):
            before, room = len(self._next), 4 * flows
            self._next = np.append(self._next, np.full(room - before, -1, np.int64))
            self._arrivals = np.append(self._arrivals, np.zeros(room - before, np.int64))
        wanted = min(_MOST_SLOTS, flows * _SLOTS_PER_FLOW)
        if wanted > len(self._slots):
            size = 1 << (wanted - 1).bit_length()
            old, self._slots = self._slots, np.zeros(size, _SLOT)
            _move(old, self._slots)


@inlined
def _is_open(slot: _Slot, time: Int) -> bool:
    """Whether a late packet may still fill the slot."""
    return bool(slot.key != 0 and slot.frame < 0 and abs(time - slot.gap_time) <= _OPEN_NS)


@inlined
def _place(slots: RecordArray, key: Int, time: Int) -> Int:
    """The slot of a key, or a slot for it: the oldest that is not open."""
    bucket = (((key - 1) >> 24) * _SPREAD + (key - 1)) & (len(slots) // _WAYS - 1)
    first = bucket * _WAYS
    best = first
    for at in range(first, first + _WAYS):
        if slots[at].key == key:
            return at
        if slots[at].key == 0:
            best = at
        elif slots[best].key != 0:
            mine, theirs = _is_open(slots[at], time), _is_open(slots[best], time)
            if mine == theirs:
                mine, theirs = slots[at].time > slots[best].time, True
            if theirs and not mine:
                best = at
    return best


@kernel
def _move(old: RecordArray, new: RecordArray) -> None:
    for i in range(len(old)):
        if old[i].key != 0:
            new[_place(new, old[i].key, old[i].time)] = old[i]


@inlined
def _take(slot: _Slot, key: Int, time: Int, counts: Ints) -> None:
    """Reuse a slot for another key."""
    if slot.key != key:
        counts[1] += _is_open(slot, time)
        slot.key = key
        slot.gap = -1


@inlined
def _see(slot: _Slot, number: Int, time: Int, sent: Int, tap: Int) -> None:
    """Record a new transmission of the slot's PSN."""
    slot.frame = slot.last_frame = number
    slot.time = time
    slot.sent = sent
    slot.tap = tap
    slot.hops = 1


@subkernel
def _look_up(
    state: State,
    slots: RecordArray,
    due: Ints,
    arrivals: Ints,
    counts: Ints,
    rows: Rows,
    sent_ids: UInt16s,
    numbers: Ints,
    references: RecordArray,
) -> None:
    """Fill `references`. due, arrivals: int64[2 * flows]; counts: gaps, forgotten skipped PSNs."""
    for i in range(len(rows.flow)):
        f, kind = np.int64(rows.flow[i]), np.int64(rows.verdict[i])
        bits = np.int64(OPCODE_CLASS[rows.opcode[i]])
        psn, time, tap = np.int64(rows.subject_psn[i]), rows.time_ns[i], np.int64(rows.tap[i])
        ordered = bits & HAS_PSN_ORDER != 0 and bits & ACKNOWLEDGE == 0
        which = _LOOSE
        if ordered:
            which = 1 if bits & RESPONSE_DATA else 0
        stream = f * _STREAMS + which
        key = (stream << 24) + psn + 1
        slot = slots[_place(slots, key, time)]
        out = references[i]
        known = slot.key == key
        if kind == TAP_COPY:
            if known and slot.frame >= 0 and slot.sent == sent_ids[i]:
                out.other = slot.last_frame
                out.since_ns = time - slot.time
                slot.hops += 1
                out.hop = slot.hops
                slot.last_frame = numbers[i]
                slot.time = time
                slot.tap = tap
            continue
        if kind == DUPLICATE or kind == MIRROR_DUPLICATE or kind == RETRANSMITTED:
            if known and slot.frame >= 0:
                out.other = slot.last_frame if slot.tap == tap else slot.frame
        if not ordered:
            if kind == NOT_SEQUENCED:
                _take(slot, key, time, counts)
                _see(slot, numbers[i], time, np.int64(sent_ids[i]), tap)
            continue
        if kind == NOT_SEQUENCED:
            continue
        s = 2 * f + which
        expected = due[s]
        out.due = psn if kind == IN_ORDER else expected
        if kind == AHEAD and expected >= 0:
            out.gap = counts[0]
            counts[0] += 1
            skipped = min(psn_distance(psn, expected), np.int64(RESTART_DISTANCE))
            for k in range(skipped):
                missing = psn_add(expected, k)
                other_key = (stream << 24) + missing + 1
                other = slots[_place(slots, other_key, time)]
                _take(other, other_key, time, counts)
                other.frame = -1
                other.time = time
                other.gap = out.gap
                other.gap_frame = numbers[i]
                other.gap_arrival = arrivals[s]
                other.gap_time = time
            slot = slots[_place(slots, key, time)]  # a gap of many PSNs may have taken it
            if which == 1 and bits & BEGINS:  # PSNs of requests other than READs may lie between
                out.due = -1
        elif (kind == REORDERED or kind == OVERTAKEN) and known and slot.gap >= 0:
            out.extent = arrivals[s] - slot.gap_arrival
            out.late_ns = time - slot.gap_time
            out.gap = slot.gap
            out.other = slot.gap_frame if kind == REORDERED else slot.frame
        elif kind == RECOVERED and known and slot.gap >= 0:
            out.other = slot.gap_frame
        if kind != OVERTAKEN and kind != DUPLICATE and kind != MIRROR_DUPLICATE:
            _take(slot, key, time, counts)
            if kind != RECOVERED:
                slot.gap = -1
            _see(slot, numbers[i], time, np.int64(sent_ids[i]), tap)
        if kind == IN_ORDER or kind == AHEAD or kind == RESTARTED:
            count: Int = np.int64(1)
            if bits & READ_REQUEST:
                flow = state.flows[f]
                length = np.int64(rows.dma_length[i])
                count = responses_of(state, flow, bits, length)
                if length > _SMALLEST_PATH_MTU and path_mtu_of(state, flow) == 0:
                    count = np.int64(-1)  # the next PSN is a guess
            due[s] = -1 if count < 0 else psn_add(psn, count)
        if kind == IN_ORDER or kind == AHEAD or kind == REORDERED or kind == OVERTAKEN:
            arrivals[s] += 1
