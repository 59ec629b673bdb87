"""Reassembles messages from packets in any order.

A piece is a run of consecutive packets of one message. In order there is one growing piece, which
the message's last packet completes. A packet that does not continue it starts another piece, and
pieces join when the packet between them arrives. Identity and size of a message thus depend on PSNs
only and are exact under any reordering.
"""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Int, Ints, inlined, subkernel
from ...wire.psn import psn_distance
from ...wire.record import Record, Records

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
def continues(shelves: Records, s: Record, c: PieceRecord, psn: Int, begins: bool) -> bool:
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
    shelves: Records,
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
def _absorb(shelf: Records, s: Record, c: PieceRecord, i: Int) -> None:
    piece = shelf[i]
    c.bytes += piece.bytes
    c.begun = min(c.begun, piece.begun)
    c.ended = max(c.ended, piece.ended)
    _take_away(shelf, s, i)


@inlined
def _take_away(shelf: Records, s: Record, i: Int) -> None:
    s.pieces -= 1
    shelf[i] = shelf[s.pieces]


@subkernel
def set_aside(shelves: Records, used: Ints, s: Record, c: PieceRecord) -> None:
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
def give_up_all(shelves: Records, s: Record, c: PieceRecord) -> None:
    """The sequence restarted or ended: open messages can no longer be completed."""
    for i in range(s.pieces):
        give_up(s, shelves[s.shelf - 1][i])
    s.pieces = 0
    if c.open:
        give_up(s, c)
        c.open = 0
