"""READs and atomics: responses and retransmitted requests."""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Int, inlined, subkernel
from ...track.batch import AHEAD, RECOVERED, RETRANSMITTED
from ...track.window import reserved_psns
from ...wire.bth import BEGINS, ENDS, FULL, psn_add, psn_distance
from .responder import acknowledge
from .rules import (
    LOSS_BEFORE,
    NO_PATH_MTU,
    READ_AGAIN,
    READ_MISPLACED,
    READ_ORDER,
    READ_OUTSIDE,
    READ_RANGE,
    READ_UNASKED,
    REREAD_ENDS,
    TOO_MANY_READS,
    UNSEEN,
)
from .state import (
    READS,
    USED_READS,
    Book,
    ReadRecord,
    RequesterRecord,
    SeenAt,
    breaks,
    keeps,
    leaves_open,
)

_ANY_PATH_MTU = 256
"""Up to this length a READ takes one PSN with every path MTU."""


@inlined
def reserves(s: RequesterRecord, dma_length: Int) -> Int:
    """PSNs that a READ of `dma_length` bytes (an atomic: 0) reserves; 0 when unknown."""
    if dma_length <= _ANY_PATH_MTU:
        return np.int64(1)
    if s.path_mtu == 0:
        return np.int64(0)
    return reserved_psns(dma_length, np.int64(s.path_mtu))


@subkernel
def asks(book: Book, s: RequesterRecord, psn: Int, dma_length: Int) -> None:
    """The first transmission of a READ or atomic request."""
    if s.reads == 0:
        book.used[USED_READS] += 1
        s.reads = book.used[USED_READS]
    read = book.reads[s.reads - 1, s.reads_seen & (READS - 1)]
    s.reads_seen += 1
    read.used = 1
    read.again = 0
    read.psn = psn
    read.dma_length = dma_length
    read.next = psn


@subkernel
def _find(book: Book, s: RequesterRecord, psn: Int) -> Int:
    """The tracked READ that reserved `psn`; -1: none, -2: its length is unknown.

    Requests may be recorded in another order than that of their PSNs. READs do not overlap, so
    only the nearest one at or before `psn` can have reserved it.
    """
    nearest: Int = np.int64(-1)
    least: Int = np.int64(1 << 24)
    for i in range(min(s.reads_seen, READS)):
        at = (s.reads_seen - 1 - i) & (READS - 1)
        behind = psn_distance(psn, np.int64(book.reads[s.reads - 1, at].psn))
        if 0 <= behind < least:
            nearest, least = at, behind
            count = reserves(s, np.int64(book.reads[s.reads - 1, at].dma_length))
            if behind < count:
                return at
    if nearest < 0:
        return np.int64(-1)
    known = reserves(s, np.int64(book.reads[s.reads - 1, nearest].dma_length)) > 0
    return np.int64(-1 if known else -2)


@subkernel
def asks_again(
    book: Book, f: Int, s: RequesterRecord, psn: Int, dma_length: Int, seen_at: SeenAt
) -> None:
    """A retransmitted READ or atomic request, whole or from a later response."""
    at = _find(book, s, psn)
    count = reserves(s, dma_length)
    if at == -2 or count == 0:
        leaves_open(book, f, READ_AGAIN, NO_PATH_MTU)
    elif at < 0:
        leaves_open(book, f, READ_AGAIN, TOO_MANY_READS if s.reads_seen > READS else UNSEEN)
    else:
        read = book.reads[s.reads - 1, at]
        behind = psn_add(np.int64(read.psn), reserves(s, np.int64(read.dma_length)))
        if psn_add(psn, count) == behind:
            keeps(book, f, READ_AGAIN)
        else:
            breaks(book, f, REREAD_ENDS, seen_at, 0, psn, behind, 0)
        _may_repeat(read, psn)


@subkernel
def comes_again(book: Book, s: RequesterRecord, psn: Int) -> None:
    """A further copy of a READ or atomic request, from the network: its responder answers it."""
    at = _find(book, s, psn)
    if at >= 0:
        _may_repeat(book.reads[s.reads - 1, at], psn)


@inlined
def _may_repeat(read: ReadRecord, psn: Int) -> None:
    """The responses from `psn` on may come again."""
    if not read.again or psn_distance(psn, np.int64(read.again_from)) < 0:
        read.again_from = psn
    read.again = 1
    read.latest_from = psn


@subkernel
def responds(
    book: Book, f: Int, s: RequesterRecord, bits: Int, verdict: Int, psn: Int, seen_at: SeenAt
) -> None:
    """A READ response or atomic ACK for flow `f`."""
    s.answers += 1
    if psn_distance(psn, np.int64(s.first)) < 0:
        return  # requested before the capture
    at = _find(book, s, psn)
    through = psn_add(psn, 1)
    unasked = at == -1 and s.reads_seen <= READS
    if not unasked and psn_distance(through, np.int64(s.unacked)) > 0:
        acknowledge(book, f, s, through, seen_at.tap)
    if at == -2:
        leaves_open(book, f, READ_RANGE, NO_PATH_MTU)
        return
    if unasked:
        breaks(book, f, READ_OUTSIDE, seen_at, 0, psn, 0, 0)
        return
    if at < 0:
        leaves_open(book, f, READ_RANGE, TOO_MANY_READS)
        return
    read = book.reads[s.reads - 1, at]
    behind = psn_add(np.int64(read.psn), reserves(s, np.int64(read.dma_length)))
    first = psn == read.psn or (read.again and psn == read.latest_from)
    last = through == behind
    if bits & BEGINS and not first and read.again:
        leaves_open(book, f, READ_RANGE, UNSEEN)  # perhaps of an earlier repetition
    elif (bits & BEGINS and not first) or bool(bits & ENDS) != last:
        breaks(book, f, READ_MISPLACED, seen_at, 0, psn, 0, 0)
    else:
        keeps(book, f, READ_RANGE)
    if verdict == RETRANSMITTED or verdict == RECOVERED:
        if read.again and psn_distance(psn, np.int64(read.again_from)) >= 0:
            keeps(book, f, READ_ORDER)
        elif verdict == RETRANSMITTED:
            breaks(book, f, READ_UNASKED, seen_at, 0, psn, 0, 0)
        else:
            leaves_open(book, f, READ_ORDER, LOSS_BEFORE)
    elif verdict == AHEAD or psn_distance(psn, np.int64(read.next)) != 0:
        leaves_open(book, f, READ_ORDER, LOSS_BEFORE)
    else:
        keeps(book, f, READ_ORDER)
    if psn_distance(psn, np.int64(read.next)) >= 0:
        read.next = psn_add(psn, 1)


@inlined
def learn_path_mtu(s: RequesterRecord, bits: Int, payload: Int) -> None:
    """First and Middle packets have the length of the path MTU."""
    if bits & FULL and payload > s.path_mtu:
        s.path_mtu = payload
