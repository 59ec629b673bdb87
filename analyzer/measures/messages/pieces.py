"""Messages put together from packets in any order.

A piece is a run of consecutive packets of one message. In order there is one
piece, which grows until the message's last packet completes it. A packet that
does not continue it begins another piece, and pieces join when the packet
between them comes. So identity and size of a message come from PSNs alone and
are exact however its packets were reordered.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....kernels.kernel import inlined, subkernel
from ...wire.psn import psn_distance

_int: Any = np.int64  # to mypy, numpy's integers are no int

PIECES = 128
"""Pieces kept aside per flow: a sprayed flow holds about a quarter as many as packets overtake
each other. Of more, the oldest is given up as incomplete."""

EXPIRED = 1 << 14
"""A piece so many PSNs behind is given up: no path is that late, no NIC resends so much."""

PIECE = np.dtype(
    [
        ("low", np.uint32),  # PSN of its first packet
        ("next", np.uint32),  # PSN after its last packet
        ("open", np.uint8),  # 1: in use, as the piece that grows
        ("first", np.uint8),  # 1: begins with the message's first packet
        ("last", np.uint8),  # 1: ends with the message's last packet
        ("watched", np.uint8),  # 1: the answering flow was known when the message began
        ("bytes", np.int64),  # payload
        ("begun", np.int64),  # ns, earliest packet
        ("ended", np.int64),  # ns, latest packet
    ],
    align=True,
)

ASSEMBLY_FIELDS = [
    ("shelf", np.int32),  # 1 + shelf of the flow in the pool; 0 while it needs none
    ("pieces", np.int32),  # pieces on the shelf
    ("begun", np.int64),  # messages given up that had begun
    ("ended", np.int64),  # messages given up whose end was there but not their beginning
]
"""Fields of a flow's state that the functions below keep."""


@inlined
def continues(shelves: Any, s: Any, c: Any, psn: int, begins: bool) -> bool:
    """True when a packet just begins or extends the piece that grows and joins no other."""
    if begins == (c.open == 1) or not (begins or psn == c.next):
        return False
    if s.pieces > 0:
        shelf = shelves[s.shelf - 1]
        for i in range(s.pieces):
            distance = psn_distance(_int(shelf[i].low), psn)
            if distance == 1 or distance < -EXPIRED:
                return False
    return True


@inlined
def begin(c: Any, psn: int, first: bool, payload: int, time: int, watched: bool) -> None:
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
def extend(c: Any, psn: int, payload: int, time: int) -> None:
    """Add the packet that follows the piece."""
    c.next = (psn + 1) & 0xFFFFFF
    c.bytes += payload
    if time > c.ended:
        c.ended = time
    elif time < c.begun:
        c.begun = time


@subkernel
def place(
    shelves: Any,
    used: Any,
    s: Any,
    c: Any,
    psn: int,
    begins: bool,
    ends: bool,
    payload: int,
    time: int,
    watched: bool,
) -> None:
    """Put a packet where it belongs; `c` is then its piece, which may be complete."""
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
        elif psn_distance(_int(piece.low), psn) < -EXPIRED:
            give_up(s, piece)
            _take_away(shelf, s, i)


@inlined
def _absorb(shelf: Any, s: Any, c: Any, i: int) -> None:
    piece = shelf[i]
    c.bytes += piece.bytes
    c.begun = min(c.begun, piece.begun)
    c.ended = max(c.ended, piece.ended)
    _take_away(shelf, s, i)


@inlined
def _take_away(shelf: Any, s: Any, i: int) -> None:
    s.pieces -= 1
    shelf[i] = shelf[s.pieces]


@subkernel
def set_aside(shelves: Any, used: Any, s: Any, c: Any) -> None:
    """Move the piece that grows to the shelf."""
    if s.shelf == 0:
        used[0] += 1
        s.shelf = used[0]
    shelf = shelves[s.shelf - 1]
    if s.pieces == PIECES:
        oldest = 0
        for i in range(1, PIECES):
            if psn_distance(_int(shelf[i].low), _int(shelf[oldest].low)) < 0:
                oldest = i
        give_up(s, shelf[oldest])
        _take_away(shelf, s, oldest)
    shelf[s.pieces] = c
    s.pieces += 1
    c.open = 0


@inlined
def give_up(s: Any, piece: Any) -> None:
    """Count the message of a piece as incomplete."""
    if piece.first:
        s.begun += 1
        s.outstanding -= piece.watched
    elif piece.last:
        s.ended += 1


@subkernel
def give_up_all(shelves: Any, s: Any, c: Any) -> None:
    """The sequence began anew or ended: nothing that is open can be completed."""
    for i in range(s.pieces):
        give_up(s, shelves[s.shelf - 1][i])
    s.pieces = 0
    if c.open:
        give_up(s, c)
        c.open = 0
