"""Rules of go-back-N transports: requests, their responses, and READs."""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Int, inlined, subkernel
from ...statistics.histogram import observe
from ...track.batch import AHEAD, RECOVERED, RETRANSMITTED
from ...track.sequence import SILENCE_NS
from ...track.window import reserved_psns
from ...wire.bth import (
    BEGINS,
    ENDS,
    FULL,
    PSN_MASK,
    SYNDROME_KIND_MASK,
    SYNDROME_NAK,
    SYNDROME_RNR_NAK,
    id_distance,
    psn_add,
    psn_distance,
)
from . import rules as rule_list
from . import state as st
from .state import Book, ReadRecord, RequesterRecord, SeenAt, breaks, keeps, leaves_open

# Rules of the requester: where a rewind starts, what follows, and requests with AckReq.
#
# A missing ACK shows when the request is retransmitted. It is a violation only if the receiver
# responds later, so it is alive, and only at a tap next to the receiver (see
# summary/conformance.py): elsewhere the request may be lost after the tap, or the ACK before it.


@inlined
def asks_for_answer(s: RequesterRecord, psn: Int, time: Int, frame: Int) -> None:
    """An in-order request has AckReq."""
    s.ask_last_psn = psn
    s.ask_last_time = time
    s.ask_last_frame = frame
    if not s.ask_open:
        _watch(s)


@inlined
def _watch(s: RequesterRecord) -> None:
    """Watch the latest request with AckReq from now on."""
    s.ask_open = 1
    s.ask_psn = s.ask_last_psn
    s.ask_time = s.ask_last_time
    s.ask_frame = s.ask_last_frame
    s.ask_again_frame = 0


@inlined
def asks_for_answer_again(book: Book, s: RequesterRecord, psn: Int, time: Int, frame: Int) -> None:
    """A request is retransmitted: is it the watched one without an ACK?"""
    if not s.ask_open or psn != s.ask_psn or s.ask_again_frame != 0:
        return
    waited = time - s.ask_time
    if waited > book.used[st.REACTION_NS]:
        s.ask_again_frame = frame
        s.ask_waited = waited


@subkernel
def gets_answer(book: Book, f: Int, s: RequesterRecord, through: Int, tap: Int) -> None:
    """All requests before PSN `through` are acknowledged."""
    if not s.ask_open or psn_distance(through, np.int64(s.ask_psn)) <= 0:
        return
    if s.ask_again_frame:
        breaks(
            book, f, rule_list.NO_ANSWER, SeenAt(tap, s.ask_time, s.ask_frame), s.ask_again_frame,
            s.ask_psn, 0, s.ask_waited,
        )  # fmt: skip
        s.asked = max(s.asked - 1, 0)
    s.ask_open = 0
    if psn_distance(np.int64(s.ask_last_psn), through) >= 0:
        _watch(s)


@subkernel
def sent_at(book: Book, s: RequesterRecord, psn: Int) -> Int:
    """Time of the first transmission of a PSN at the tap, -1 when no longer known."""
    if s.times == 0:
        return np.int64(-1)
    entry = book.times[s.times - 1, psn & (st.TIMES - 1)]
    return np.int64(entry.time) if entry.psn == psn and entry.time != 0 else np.int64(-1)


@inlined
def _note_time(book: Book, s: RequesterRecord, psn: Int, time: Int) -> None:
    if s.times == 0:
        book.used[st.USED_TIMES] += 1
        s.times = book.used[st.USED_TIMES]
    entry = book.times[s.times - 1, psn & (st.TIMES - 1)]
    entry.psn = psn
    entry.time = time
    entry.last = time


@subkernel
def _goes_out_again(
    book: Book, f: Int, s: RequesterRecord, psn: Int, time: Int, begins: bool
) -> None:
    """Record a retransmission of a PSN, which may start a rewind."""
    sent = sent_at(book, s, psn)
    if sent < 0:
        return
    entry = book.times[s.times - 1, psn & (st.TIMES - 1)]
    if begins:
        observe(book.histograms, f, st.RETRANSMISSION, time - entry.last)
        following = sent_at(book, s, psn_add(psn, 1))
        if entry.last == sent and following >= sent:
            observe(book.histograms, f, st.NEXT_DELIVERED, following - sent)
    entry.last = time


@subkernel
def start(s: RequesterRecord, psn: Int) -> None:
    """A new sequence begins: reset the state of the previous one."""
    s.started = 1
    s.acked = 0
    s.answered = 0
    s.in_gap = 0
    s.nak_open = 0
    s.resending = 0
    s.fatal = 0
    s.rnr_open = 0
    s.refused = 0
    s.loose = 0
    s.msn_known = 0
    s.early_answer = 0
    s.doubtful_nak = 0
    s.asked = 0
    s.ask_open = 0
    s.first = psn
    s.duplicates_before = s.duplicates
    s.next = psn
    s.arrived = psn
    s.unacked = psn
    s.heard_known = 0
    s.passed = psn
    for i in range(st.GAPS):
        s.gap_known[i] = 0
        s.nak_waits[i] = 0


@subkernel
def misses_the_first(s: RequesterRecord, psn: Int) -> None:
    """`psn`, before the first PSN seen, was lost before the tap: a receiver waited for it."""
    # It accepted nothing that the tap saw so far, and had nothing of it already.
    s.beyond += psn_distance(np.int64(s.arrived), np.int64(s.first))
    s.beyond += s.duplicates - s.duplicates_before
    s.duplicates = s.duplicates_before
    s.first = psn
    s.arrived = psn
    s.passed = psn
    s.in_gap = 1


@subkernel
def _asked_for(s: RequesterRecord, psn: Int) -> Int:
    """The pending NAK that names `psn`, -1 without one."""
    for i in range(st.GAPS):
        if s.nak_waits[i] and s.nak_waits_psn[i] == psn:
            return i
    return -1


@subkernel
def _goes_back(
    book: Book, f: Int, s: RequesterRecord, psn: Int, is_read: bool, seen_at: SeenAt
) -> None:
    """The sender rewinds to `psn`: judge the start and find the trigger.

    A response at the tap may never reach the sender. Only a rewind to the PSN of a NAK proves that
    the sender received it: all earlier PSNs are then acknowledged.
    """
    nak = _asked_for(s, psn)
    trigger = st.BY_UNKNOWN
    if s.rnr_open and psn == s.rnr_psn:
        trigger = st.BY_RNR
    elif nak >= 0:
        trigger = st.BY_NAK
        observe(book.histograms, f, st.NAK_RESPONSE, seen_at.time - s.nak_waits_time[nak])
    elif is_read:
        trigger = st.BY_READ
    elif seen_at.time - s.request_time >= SILENCE_NS:
        trigger = st.BY_TIMEOUT
    s.rewinds[trigger] += 1
    _goes_out_again(book, f, s, psn, seen_at.time, trigger != st.BY_RNR)
    if s.heard_known and psn_distance(psn, np.int64(s.heard)) < 0:
        breaks(book, f, rule_list.REWIND_BELOW, seen_at, s.rewind_frame, psn, s.heard, 0)
    elif trigger == st.BY_NAK or trigger == st.BY_RNR:
        keeps(book, f, rule_list.REWIND_START)
        s.heard_known = 1
        s.heard = psn
        s.rewind_frame = seen_at.frame
    elif not s.acked:
        leaves_open(book, f, rule_list.REWIND_START, rule_list.UNSEEN)
    elif psn_distance(psn, np.int64(s.unacked)) < 0:
        leaves_open(book, f, rule_list.REWIND_START, rule_list.IN_FLIGHT)
    elif is_read or psn == s.unacked:  # a separate rule covers the start of a repeated READ
        keeps(book, f, rule_list.REWIND_START)
    else:
        breaks(book, f, rule_list.REWIND_ABOVE, seen_at, s.ack_frame, psn, s.unacked, 0)
    for i in range(st.GAPS):  # NAKs up to here are handled
        if s.nak_waits[i] and psn_distance(np.int64(s.nak_waits_psn[i]), psn) <= 0:
            s.nak_waits[i] = 0


@subkernel
def sends_again(
    book: Book, f: Int, s: RequesterRecord, psn: Int, count: Int, is_read: bool, seen_at: SeenAt
) -> None:
    """A retransmitted request."""
    s.resent += 1
    asks_for_answer_again(book, s, psn, seen_at.time, seen_at.frame)
    if s.doubtful_nak and psn == s.doubtful_missing:  # it was really lost: the NAK skipped it
        nak = SeenAt(seen_at.tap, s.doubtful_time, s.doubtful_frame)
        breaks(
            book,
            f,
            rule_list.NAK_NOT_FIRST,
            nak,
            seen_at.frame,
            s.doubtful_psn,
            s.doubtful_missing,
            0,
        )
        s.unseen -= s.doubtful_unseen  # this tap did not miss the packet
        s.doubtful_nak = 0
    ahead = psn_distance(psn, np.int64(s.resend_next))
    if s.resending and ahead >= 0:
        _goes_out_again(book, f, s, psn, seen_at.time, False)
        if ahead == 0:
            keeps(book, f, rule_list.REWIND_ORDER)
        else:
            _leaves_out(book, f, s, psn, seen_at)
    else:
        _goes_back(book, f, s, psn, is_read, seen_at)
    if s.rnr_open and psn == s.rnr_psn:
        waited = seen_at.time - s.rnr_time
        if waited >= s.rnr_wait:
            keeps(book, f, rule_list.RNR_WAIT)
        elif s.resending:  # perhaps sent before the RNR NAK arrived
            leaves_open(book, f, rule_list.RNR_WAIT, rule_list.IN_FLIGHT)
        else:
            breaks(book, f, rule_list.RNR_EARLY, seen_at, s.rnr_frame, psn, s.rnr_wait, waited)
        s.rnr_open = 0
    s.resending = 1
    s.resend_next = psn_add(psn, count)


@subkernel
def _leaves_out(book: Book, f: Int, s: RequesterRecord, psn: Int, seen_at: SeenAt) -> None:
    """`psn` follows a smaller retransmitted PSN; the PSNs between are skipped."""
    if psn_distance(psn, np.int64(s.unacked)) <= 0:
        keeps(book, f, rule_list.REWIND_ORDER)  # all of them are acknowledged by now
    else:
        expected = np.int64(s.resend_next)
        if psn_distance(np.int64(s.unacked), expected) > 0:
            expected = np.int64(s.unacked)
        breaks(book, f, rule_list.RESEND_SKIPS, seen_at, 0, psn, expected, 0)


@inlined
def sends_new(
    book: Book, f: Int, s: RequesterRecord, psn: Int, count: Int, is_read: bool, seen_at: SeenAt
) -> None:
    """The first transmission of a request, as far as the tap has seen."""
    if s.resending:
        s.resending = 0
        if psn_distance(np.int64(s.next), np.int64(s.resend_next)) > 0:
            _leaves_out(book, f, s, psn, seen_at)
        else:
            keeps(book, f, rule_list.REWIND_ORDER)
    if s.early_answer:
        if psn_distance(psn, np.int64(s.early_psn)) <= 0:  # sent only after its response
            answer = SeenAt(seen_at.tap, s.early_time, s.early_frame)
            breaks(
                book,
                f,
                rule_list.ANSWER_UNSENT,
                answer,
                seen_at.frame,
                s.early_psn,
                s.early_next,
                0,
            )
        else:
            leaves_open(book, f, rule_list.ACK_SENT, rule_list.UNSEEN)
        s.early_answer = 0
    if s.loose and psn_distance(psn, np.int64(s.next)) > 0:
        s.msn_known = 0  # the PSNs between are of the READ, or of messages that the tap missed
    _note_time(book, s, psn, seen_at.time)
    behind = psn_add(psn, count)
    if psn_distance(behind, np.int64(s.next)) > 0 or s.loose:
        s.next = behind


@subkernel
def after_fatal(book: Book, f: Int, s: RequesterRecord, psn: Int, seen_at: SeenAt) -> None:
    """A request after a NAK that ends the connection."""
    late = seen_at.time - s.fatal_time
    if late > book.used[st.REACTION_NS]:
        breaks(book, f, rule_list.AFTER_FATAL, seen_at, s.fatal_frame, psn, 0, late)
    else:
        leaves_open(book, f, rule_list.FATAL_NAK, rule_list.IN_FLIGHT)


@inlined
def arrives(s: RequesterRecord, psn: Int, count: Int, in_order: bool, time: Int) -> None:
    """Update the state of a go-back-N receiver at the tap: it accepts only the expected PSN."""
    distance = psn_distance(psn, np.int64(s.arrived))
    if s.loose and in_order and distance > 0:
        s.arrived = psn
        distance = 0
    if distance == 0:
        if s.nak_open and psn == s.nak_psn:
            s.nak_open = 0
        s.in_gap = 0
        s.refused = 0
        s.arrived = psn_add(psn, count)
        if psn_distance(np.int64(s.arrived), np.int64(s.passed)) > 0:
            s.passed = s.arrived
    elif distance < 0:
        s.duplicates += 1
    else:
        s.beyond += 1
        if s.in_gap:
            return
        s.in_gap = 1
        s.gap_known[s.gap_next] = 1
        s.gap_psn[s.gap_next] = s.arrived
        s.gap_time[s.gap_next] = time
        s.gap_next = (s.gap_next + 1) % st.GAPS


# Rules of the responder: ACKs, NAKs and RNR NAKs.

RNR_TIMER_NS = np.array(
    [
        655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1280, 1920,
        2560, 3840, 5120, 7680, 10_240, 15_360, 20_480, 30_720, 40_960, 61_440, 81_920,
        122_880, 163_840, 245_760, 327_680, 491_520,
    ],
    np.int64,
) * 1000  # fmt: skip
"""int64[32]: wait of each RNR timer code in ns (IBTA 9.7.5.2.8)."""


@subkernel
def _answered(book: Book, f: Int, s: RequesterRecord) -> None:
    book.ok[f, rule_list.ACK_REQUEST] += s.asked
    s.asked = 0


@subkernel
def acknowledge(book: Book, f: Int, s: RequesterRecord, through: Int, tap: Int) -> None:
    """All requests before PSN `through` are acknowledged."""
    gets_answer(book, f, s, through, tap)
    if not s.acked or psn_distance(through, np.int64(s.unacked)) > 0:
        if (
            psn_distance(through, np.int64(s.arrived)) > 0
        ):  # requests arrived there in another order
            s.arrived = through
            s.in_gap = 0
        if psn_distance(through, np.int64(s.passed)) > 0:
            s.unseen += psn_distance(through, np.int64(s.passed))
            s.passed = through
        s.unacked = through
    s.acked = 1
    if s.asked and psn_distance(through, np.int64(s.asked_psn)) > 0:
        _answered(book, f, s)


@subkernel
def _may_be_overtaken(book: Book, s: RequesterRecord, ip_id: Int, has_ids: bool, time: Int) -> bool:
    """True when a response may have been sent before the latest one and arrived late.

    Different IP identifications show the order; without them only responses close in time can be
    reordered.
    """
    if has_ids and ip_id != s.answer_id:
        return bool(id_distance(ip_id, np.int64(s.answer_id)) < 0)
    return bool(time - s.ack_time <= book.used[st.REACTION_NS])


@subkernel
def answers(
    book: Book,
    f: Int,
    s: RequesterRecord,
    psn: Int,
    aeth: Int,
    ip_id: Int,
    has_ids: bool,
    seen_at: SeenAt,
) -> None:
    """An ACK, NAK or RNR NAK for requests of flow `f`."""
    s.answers += 1
    kind = (aeth >> 24) & SYNDROME_KIND_MASK
    negative = kind == SYNDROME_NAK or kind == SYNDROME_RNR_NAK
    code = (aeth >> 24) & 0x1F
    if kind == SYNDROME_NAK and code == 0:
        s.naks += 1
    elif kind == SYNDROME_NAK:
        s.fatal_naks += 1
    elif kind == SYNDROME_RNR_NAK:
        s.rnr_naks += 1
    through = psn if negative else psn_add(psn, 1)
    lost_packet = kind == SYNDROME_NAK and code == 0
    if psn_distance(through, np.int64(s.first)) < 0:  # of requests before the capture
        if lost_packet:
            leaves_open(book, f, rule_list.NAK_PSN, rule_list.UNSEEN)
        return
    # A NAK may name the next PSN: the packet was lost before the tap.
    if not lost_packet and not s.loose:
        if psn_distance(psn, np.int64(s.next)) >= 0:
            s.early_answer = 1
            s.early_psn = psn
            s.early_next = s.next
            s.early_time = seen_at.time
            s.early_frame = seen_at.frame
            return
        keeps(book, f, rule_list.ACK_SENT)
    if s.answered and psn_distance(through, np.int64(s.ack_high)) < 0:
        if _may_be_overtaken(book, s, ip_id, has_ids, seen_at.time):
            leaves_open(book, f, rule_list.ACK_ORDER, rule_list.OVERTAKEN)
            return
        breaks(
            book, f, rule_list.NAK_BACK if negative else rule_list.ACK_BACK, seen_at,
            s.ack_frame, psn, psn_add(np.int64(s.ack_high), -1), 0,
        )  # fmt: skip
        return
    keeps(book, f, rule_list.ACK_ORDER)
    if lost_packet:
        _names_a_loss(book, f, s, psn, seen_at)
    elif kind == SYNDROME_RNR_NAK:
        s.rnr_open = 1
        s.rnr_psn = psn
        s.rnr_time = seen_at.time
        s.rnr_frame = seen_at.frame
        s.rnr_wait = RNR_TIMER_NS[code]
        s.refused = 1
        s.arrived = psn
        s.in_gap = psn_distance(np.int64(s.next), psn) > 1
    elif kind == SYNDROME_NAK:
        s.fatal = 1
        s.fatal_time = seen_at.time
        s.fatal_frame = seen_at.frame
    s.answered = 1
    s.ack_high = through
    s.ack_frame = seen_at.frame
    s.ack_time = seen_at.time
    s.answer_id = ip_id
    unseen = np.int64(s.unseen)
    acknowledge(book, f, s, through, seen_at.tap)
    if s.doubtful_nak and s.doubtful_frame == seen_at.frame:
        s.doubtful_unseen = s.unseen - unseen
    if negative:  # it covers all later requests
        _answered(book, f, s)
        s.ask_open = 0
    if not negative:
        _counts_messages(book, f, s, psn, through, aeth & PSN_MASK, seen_at)


@subkernel
def _names_a_loss(book: Book, f: Int, s: RequesterRecord, psn: Int, seen_at: SeenAt) -> None:
    """A NAK for a PSN sequence error: check its PSN and that it is the first NAK for it."""
    if s.nak_open and psn == s.nak_psn:
        breaks(book, f, rule_list.NAK_REPEATED, seen_at, s.nak_frame, psn, psn, 0)
        return
    keeps(book, f, rule_list.NAK_ONCE)
    beyond = psn_distance(np.int64(s.next), psn) > 1
    if beyond or s.loose:
        keeps(book, f, rule_list.NAK_CAUSE)
    else:
        breaks(book, f, rule_list.NAK_UNCAUSED, seen_at, 0, psn, s.next, 0)
    gap = -1
    for i in range(st.GAPS):
        if s.gap_known[i] and s.gap_psn[i] == psn:
            gap = i
    if (
        psn_distance(psn, np.int64(s.arrived)) > 0
    ):  # more packets arrived than an earlier NAK indicated
        known = psn_distance(np.int64(s.passed), psn) < 0
        s.arrived = s.passed if known else psn
        s.in_gap = 1
    if gap >= 0:  # even if it has arrived by now: the NAK was already in flight
        keeps(book, f, rule_list.NAK_PSN)
        observe(book.histograms, f, st.NAK_GENERATION, seen_at.time - s.gap_time[gap])
        s.gap_known[gap] = 0
    elif psn == s.arrived and s.in_gap and (s.refused or psn == s.passed):
        keeps(book, f, rule_list.NAK_PSN)
    elif psn_distance(psn, np.int64(s.passed)) < 0:
        leaves_open(book, f, rule_list.NAK_PSN, rule_list.LOSS_BEHIND)
        s.lost_behind += 1
        s.arrived = psn
        s.in_gap = 1
    else:  # retransmissions will show whether earlier PSNs were lost
        s.doubtful_nak = 1
        s.doubtful_missing = s.arrived
        s.doubtful_psn = psn
        s.doubtful_time = seen_at.time
        s.doubtful_frame = seen_at.frame
    s.nak_open = psn_distance(psn, np.int64(s.arrived)) >= 0
    s.nak_psn = psn
    s.nak_frame = seen_at.frame
    s.nak_waits[s.nak_next] = 1
    s.nak_waits_psn[s.nak_next] = psn
    s.nak_waits_time[s.nak_next] = seen_at.time
    s.nak_next = (s.nak_next + 1) % st.GAPS


@subkernel
def _counts_messages(
    book: Book, f: Int, s: RequesterRecord, psn: Int, through: Int, msn: Int, seen_at: SeenAt
) -> None:
    """Between two responses that cover all requests the MSN grows by the completed messages."""
    if through != s.next or s.resending or s.loose:
        return
    if s.msn_known:
        expected = (np.int64(s.msn) + s.ended - s.msn_ended) & PSN_MASK
        if msn == expected:
            keeps(book, f, rule_list.MSN)
        else:
            breaks(book, f, rule_list.MSN_WRONG, seen_at, 0, psn, expected, msn)
    s.msn_known = 1
    s.msn = msn
    s.msn_ended = s.ended


# READs and atomics: responses and retransmitted requests.

_ANY_PATH_MTU = 256
"""Up to this length a READ takes one PSN with every path MTU."""


UNKNOWN_LENGTH = 0xFFFFFFFF
"""`dma_length` of a READ whose RETH is cut off by the snap length."""


@inlined
def reserves(s: RequesterRecord, dma_length: Int) -> Int:
    """PSNs that a READ of `dma_length` bytes (an atomic: 0) reserves; 0 when unknown."""
    if dma_length <= _ANY_PATH_MTU:
        return np.int64(1)
    if s.path_mtu == 0 or dma_length == UNKNOWN_LENGTH:
        return np.int64(0)
    return reserved_psns(dma_length, np.int64(s.path_mtu))


@subkernel
def asks(book: Book, s: RequesterRecord, psn: Int, dma_length: Int) -> None:
    """The first transmission of a READ or atomic request."""
    if s.reads == 0:
        book.used[st.USED_READS] += 1
        s.reads = book.used[st.USED_READS]
    read = book.reads[s.reads - 1, s.reads_seen & (st.READS - 1)]
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
    for i in range(min(s.reads_seen, st.READS)):
        at = (s.reads_seen - 1 - i) & (st.READS - 1)
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
        leaves_open(book, f, rule_list.READ_AGAIN, rule_list.NO_PATH_MTU)
    elif at < 0:
        leaves_open(
            book,
            f,
            rule_list.READ_AGAIN,
            rule_list.TOO_MANY_READS if s.reads_seen > st.READS else rule_list.UNSEEN,
        )
    else:
        read = book.reads[s.reads - 1, at]
        behind = psn_add(np.int64(read.psn), reserves(s, np.int64(read.dma_length)))
        if psn_add(psn, count) == behind:
            keeps(book, f, rule_list.READ_AGAIN)
        else:
            breaks(book, f, rule_list.REREAD_ENDS, seen_at, 0, psn, behind, 0)
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
    unasked = at == -1 and s.reads_seen <= st.READS
    if not unasked and psn_distance(through, np.int64(s.unacked)) > 0:
        acknowledge(book, f, s, through, seen_at.tap)
    if at == -2:
        leaves_open(book, f, rule_list.READ_RANGE, rule_list.NO_PATH_MTU)
        return
    if unasked:
        breaks(book, f, rule_list.READ_OUTSIDE, seen_at, 0, psn, 0, 0)
        return
    if at < 0:
        leaves_open(book, f, rule_list.READ_RANGE, rule_list.TOO_MANY_READS)
        return
    read = book.reads[s.reads - 1, at]
    behind = psn_add(np.int64(read.psn), reserves(s, np.int64(read.dma_length)))
    first = psn == read.psn or (read.again and psn == read.latest_from)
    last = through == behind
    if bits & BEGINS and not first and read.again:
        leaves_open(
            book, f, rule_list.READ_RANGE, rule_list.UNSEEN
        )  # perhaps of an earlier repetition
    elif (bits & BEGINS and not first) or bool(bits & ENDS) != last:
        breaks(book, f, rule_list.READ_MISPLACED, seen_at, 0, psn, 0, 0)
    else:
        keeps(book, f, rule_list.READ_RANGE)
    if verdict == RETRANSMITTED or verdict == RECOVERED:
        if read.again and psn_distance(psn, np.int64(read.again_from)) >= 0:
            keeps(book, f, rule_list.READ_ORDER)
        elif verdict == RETRANSMITTED:
            breaks(book, f, rule_list.READ_UNASKED, seen_at, 0, psn, 0, 0)
        else:
            leaves_open(book, f, rule_list.READ_ORDER, rule_list.LOSS_BEFORE)
    elif verdict == AHEAD or psn_distance(psn, np.int64(read.next)) != 0:
        leaves_open(book, f, rule_list.READ_ORDER, rule_list.LOSS_BEFORE)
    else:
        keeps(book, f, rule_list.READ_ORDER)
    if psn_distance(psn, np.int64(read.next)) >= 0:
        read.next = psn_add(psn, 1)


@inlined
def learn_path_mtu(s: RequesterRecord, bits: Int, payload: Int) -> None:
    """First and Middle packets have the length of the path MTU."""
    if bits & FULL and payload > s.path_mtu:
        s.path_mtu = payload
