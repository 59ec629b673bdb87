"""Messages that are not complete: pieces until all packets arrived, requests until their responses.

A piece is a run of consecutive packets of one message. In order there is one growing piece, which
the message's last packet completes. A packet that does not continue it starts another piece, and
pieces join when the packet between them arrives. Identity and size of a message thus depend on PSNs
only and are exact under any reordering.

Outstanding requests are in a bounded ring per flow, ordered by PSN: packets with AckReq, ends of
messages, READ and atomic requests. ACKs, NAKs and responses of the peer answer them; ACKs are
cumulative (InfiniBand specification 9.7.5.1), and NAKs and responses acknowledge all earlier
requests.
"""

from __future__ import annotations

import numpy as np

from ...kernels.kernel import Int, Ints, Record, RecordArray, inlined, subkernel
from ..statistics.histogram import Histograms, observe
from ..wire.bth import psn_distance

PIECES = 128
"""Shelved pieces per flow: a sprayed flow needs about a quarter of its reordering depth in packets.
Beyond that the oldest is dropped as incomplete."""

EXPIRED = 1 << 14
"""A piece this many PSNs back is dropped: no path is that late, and no NIC retransmits as many."""

PIECE = np.dtype(
    [
        ("low", np.uint32),  # PSN of its first packet
        ("next", np.uint32),  # PSN after its last packet
        ("open", np.uint8),  # 1: in use as the growing piece
        ("first", np.uint8),  # 1: begins with the message's first packet
        ("last", np.uint8),  # 1: ends with the message's last packet
        ("watched", np.uint8),  # 1: the flow of the responses was known when the message began
        ("bytes", np.int64),  # payload
        ("begun", np.int64),  # ns, earliest packet
        ("ended", np.int64),  # ns, latest packet
    ],
    align=True,
)

ASSEMBLY_FIELDS = [
    ("shelf", np.int32),  # 1 + shelf of the flow in the pool; 0 without one
    ("pieces", np.int32),  # pieces on the shelf
    ("begun", np.int64),  # dropped messages with a start
    ("ended", np.int64),  # dropped messages with an end but no start
]
"""Fields of a flow's state for the functions below."""


class PieceRecord(Record):
    """An element of PIECE."""


@inlined
def continues(shelves: RecordArray, s: Record, c: PieceRecord, psn: Int, begins: bool) -> bool:
    """True when a packet only starts or extends the growing piece and joins no other."""
    if begins == (c.open == 1) or not (begins or psn == c.next):
        return False
    if s.pieces > 0:
        shelf = shelves[s.shelf - 1]
        for i in range(s.pieces):
            distance = psn_distance(np.int64(shelf[i].low), psn)
            if distance == 1 or distance < -EXPIRED:
                return False
    return True


@inlined
def begin(c: PieceRecord, psn: Int, first: bool, payload: Int, time: Int, watched: bool) -> None:
    """Make `c` the piece of one packet."""
    c.low = psn
    c.next = (psn + 1) & 0xFFFFFF
    c.open = 1
    c.first = first
    c.last = 0
    c.watched = watched
    c.bytes = payload
    c.begun = time
    c.ended = time


@inlined
def extend(c: PieceRecord, psn: Int, payload: Int, time: Int) -> None:
    """Add the packet that follows the piece."""
    c.next = (psn + 1) & 0xFFFFFF
    c.bytes += payload
    if time > c.ended:
        c.ended = time
    elif time < c.begun:
        c.begun = time


@subkernel
def place(
    shelves: RecordArray,
    used: Ints,
    s: Record,
    c: PieceRecord,
    psn: Int,
    begins: bool,
    ends: bool,
    payload: Int,
    time: Int,
    watched: bool,
) -> None:
    """Add a packet to its piece; `c` is then that piece, which may be complete."""
    if c.open:
        set_aside(shelves, used, s, c)
    begin(c, psn, begins, payload, time, watched)
    c.last = ends
    if s.pieces == 0:
        return
    shelf = shelves[s.shelf - 1]
    for i in range(s.pieces - 1, -1, -1):
        piece = shelf[i]
        if not begins and not piece.last and piece.next == psn:
            c.low = piece.low
            c.first = piece.first
            c.watched = piece.watched
            _absorb(shelf, s, c, i)
        elif not ends and not piece.first and piece.low == (psn + 1) & 0xFFFFFF:
            c.next = piece.next
            c.last = piece.last
            _absorb(shelf, s, c, i)
        elif psn_distance(np.int64(piece.low), psn) < -EXPIRED:
            give_up(s, piece)
            _take_away(shelf, s, i)


@inlined
def _absorb(shelf: RecordArray, s: Record, c: PieceRecord, i: Int) -> None:
    piece = shelf[i]
    c.bytes += piece.bytes
    c.begun = min(c.begun, piece.begun)
    c.ended = max(c.ended, piece.ended)
    _take_away(shelf, s, i)


@inlined
def _take_away(shelf: RecordArray, s: Record, i: Int) -> None:
    s.pieces -= 1
    shelf[i] = shelf[s.pieces]


@subkernel
def set_aside(shelves: RecordArray, used: Ints, s: Record, c: PieceRecord) -> None:
    """Move the growing piece to the shelf."""
    if s.shelf == 0:
        used[0] += 1
        s.shelf = used[0]
    shelf = shelves[s.shelf - 1]
    if s.pieces == PIECES:
        oldest = 0
        for i in range(1, PIECES):
            if psn_distance(np.int64(shelf[i].low), np.int64(shelf[oldest].low)) < 0:
                oldest = i
        give_up(s, shelf[oldest])
        _take_away(shelf, s, oldest)
    shelf[s.pieces] = c
    s.pieces += 1
    c.open = 0


@inlined
def give_up(s: Record, piece: PieceRecord) -> None:
    """Count the message of a piece as incomplete."""
    if piece.first:
        s.begun += 1
        s.outstanding -= piece.watched
    elif piece.last:
        s.ended += 1


@subkernel
def give_up_all(shelves: RecordArray, s: Record, c: PieceRecord) -> None:
    """The sequence restarted or ended: open messages can no longer be completed."""
    for i in range(s.pieces):
        give_up(s, shelves[s.shelf - 1][i])
    s.pieces = 0
    if c.open:
        give_up(s, c)
        c.open = 0


RING_BITS = 7
RING = 1 << RING_BITS
"""Entries kept per flow (a power of two): common tools post up to 128 messages at once. Beyond that
the oldest is not timed and is counted in `untracked`."""
FIRST_RING_BITS = 3
"""A ring begins with so few entries, and then has its largest size at once."""
MOST_ENTRIES = (1 << FIRST_RING_BITS) + RING
"""Entries of the pool that a flow may take: both sizes once."""

_USED = 1
"""Item of `used` that counts the entries handed out."""

# Bits of an entry's `wants`.
ACK = 0x01  # the packet has AckReq and is timed by its ACK
COMPLETION = 0x02  # the end of a message, or a single request
FIRST_RESPONSE = 0x04  # a READ request whose first response can be timed
LAST_RESPONSE = 0x08  # only its responses complete it, not an ACK
WATCHED = 0x10  # the flow of the responses was known when the message began

# Histograms of the requesting flow.
SIZE, DURATION, COMPLETED, ACKED, RESPONDED = range(5)
KINDS = 5

ENTRY = np.dtype(
    [
        ("psn", np.uint32),
        ("wants", np.uint32),  # pending events; 0: none, or only WATCHED
        ("sent", np.int64),  # ns, time of the packet itself
        ("begun", np.int64),  # ns, time of the first packet of its message
    ],
    align=True,
)

WAITER_FIELDS = [
    ("ring", np.int64),  # 1 + first entry of the flow's ring in the pool; 0 without one
    ("ring_bits", np.uint8),  # log2 of its entries
    ("head", np.int64),  # position of the oldest entry; counts on, modulo the ring size
    ("waiting", np.int32),  # entries in the ring, including acknowledged ones after the oldest
    ("dropped", np.int32),  # outstanding messages among the dropped entries, the newest at
    ("dropped_psn", np.uint32),  # this PSN
    ("covers", np.uint8),  # 1: a response was seen; all requests up to
    ("covered", np.uint32),  # this PSN are acknowledged
    ("outstanding", np.int64),  # watched messages started and not yet acknowledged
    ("max_outstanding", np.int64),
    ("untracked", np.int64),  # watched messages with an unknown or untracked response
]
"""Fields of a flow's state for the functions below."""


class EntryRecord(Record):
    """An element of ENTRY."""


@inlined
def begin_message(s: Record) -> None:
    """A watched message begins."""
    s.outstanding += 1
    s.max_outstanding = max(s.max_outstanding, s.outstanding)


@subkernel
def wait(
    rings: RecordArray, used: Ints, s: Record, psn: Int, wants: Int, sent: Int, begun: Int
) -> None:
    """Add a request to the ring, or a message's end to a waiting packet."""
    if s.covers and wants & LAST_RESPONSE == 0 and psn_distance(psn, np.int64(s.covered)) <= 0:
        if wants & COMPLETION and wants & WATCHED:  # seen after its own response: at another tap
            s.outstanding -= 1
            s.untracked += 1
        return
    if s.ring == 0:
        _new_ring(rings, used, s, FIRST_RING_BITS)
    ring, last = s.ring - 1, (np.int64(1) << np.int64(s.ring_bits)) - 1
    place = s.head + s.waiting  # after the newest entry with a PSN that is not larger
    behind = place
    while behind > s.head:
        distance = psn_distance(np.int64(rings[ring + ((behind - 1) & last)].psn), psn)
        if distance < 0:
            break
        if distance == 0:
            entry = rings[ring + ((behind - 1) & last)]
            entry.wants |= np.uint32(wants)
            entry.begun = begun
            return
        behind -= 1
    if s.waiting == RING:
        if behind == s.head:  # the oldest entry: dropped
            _drop(s, psn, wants)
            return
        oldest = rings[ring + (s.head & last)]
        _drop(s, np.int64(oldest.psn), np.int64(oldest.wants))
        s.head += 1
        s.waiting -= 1
    elif s.waiting > last:
        _new_ring(rings, used, s, RING_BITS)
        ring, last = s.ring - 1, np.int64(RING - 1)
    for i in range(place, behind, -1):
        rings[ring + (i & last)] = rings[ring + ((i - 1) & last)]
    entry = rings[ring + (behind & last)]
    entry.psn = psn
    entry.wants = wants
    entry.sent = sent
    entry.begun = begun
    s.waiting += 1


@subkernel
def _new_ring(rings: RecordArray, used: Ints, s: Record, bits: Int) -> None:
    """Move the waiting entries to a new ring of 2^bits; positions keep counting."""
    former, last = s.ring - 1, (np.int64(1) << np.int64(s.ring_bits)) - 1
    s.ring = used[_USED] + 1
    s.ring_bits = bits
    used[_USED] += np.int64(1) << bits
    for i in range(s.head, s.head + s.waiting):
        rings[s.ring - 1 + (i & ((np.int64(1) << bits) - 1))] = rings[former + (i & last)]


@inlined
def _entry(rings: RecordArray, s: Record, position: Int) -> EntryRecord:
    return rings[s.ring - 1 + (position & ((np.int64(1) << np.int64(s.ring_bits)) - 1))]


@inlined
def _drop(s: Record, psn: Int, wants: Int) -> None:
    if wants & COMPLETION and wants & WATCHED:
        s.untracked += 1
        s.dropped += 1
        s.dropped_psn = psn


@subkernel
def sent_again(rings: RecordArray, s: Record, psn: Int) -> None:
    """A request was retransmitted: its response is ambiguous (Karn's rule)."""
    for i in range(s.waiting):
        entry = _entry(rings, s, s.head + i)
        if entry.psn == psn:
            entry.wants &= np.uint32(0xFF & ~(ACK | FIRST_RESPONSE))


@subkernel
def answered(
    rings: RecordArray,
    histograms: Histograms,
    s: Record,
    flow: Int,
    psn: Int,
    response: bool,
    begins: bool,
    ends: bool,
    exact: bool,
    time: Int,
) -> None:
    """A response covers all requests of `flow` up to `psn`.

    `response`: a READ response (the first or last when it `begins` or `ends`) or
    atomic ACK. `exact`: an ACK of exactly this PSN, or a response sent only once.
    """
    if s.covers == 0 or psn_distance(psn, np.int64(s.covered)) > 0:
        s.covers = 1
        s.covered = psn
    if s.dropped and psn_distance(np.int64(s.dropped_psn), psn) <= 0:
        s.outstanding -= s.dropped
        s.dropped = 0
    read: Int = np.int64(-1)
    for at in range(s.head, s.head + s.waiting):
        entry = _entry(rings, s, at)
        distance = psn_distance(np.int64(entry.psn), psn)
        if distance > 0:
            break
        wants = np.int64(entry.wants)
        if distance == 0 and exact:
            if wants & ACK and not response:
                observe(histograms, flow, ACKED, time - entry.sent)
            if wants & FIRST_RESPONSE and begins:
                observe(histograms, flow, RESPONDED, time - entry.sent)
        wants &= ~ACK
        if response and begins and distance == 0:
            wants &= ~FIRST_RESPONSE
        entry.wants = wants
        if wants & LAST_RESPONSE:
            read = at
        elif wants & COMPLETION:
            # Responses before the pairing are unknown: only an exact one is certainly the first.
            _complete(histograms, s, flow, entry, time, exact and distance == 0)
    if response and ends and read >= 0:  # the READ with the largest PSN up to this one
        _complete(histograms, s, flow, _entry(rings, s, read), time, exact)
    while s.waiting and not _entry(rings, s, s.head).wants & (COMPLETION | ACK):
        s.head += 1
        s.waiting -= 1


@inlined
def _complete(
    histograms: Histograms, s: Record, flow: Int, entry: EntryRecord, time: Int, surely_first: bool
) -> None:
    if entry.wants & WATCHED or surely_first:
        observe(histograms, flow, COMPLETED, time - entry.begun)
    if entry.wants & WATCHED:
        s.outstanding -= 1
    entry.wants = 0


@inlined
def forget_all(rings: RecordArray, s: Record) -> None:
    """The sequence restarted: responses to earlier requests can no longer be identified."""
    for i in range(s.waiting):
        entry = _entry(rings, s, s.head + i)
        _drop(s, np.int64(entry.psn), np.int64(entry.wants))
    s.head += s.waiting
    s.waiting = 0
    s.dropped = 0
    s.covers = 0
    s.outstanding = 0
