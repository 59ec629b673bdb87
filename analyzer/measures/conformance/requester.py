"""Rules of the requester: where a rewind starts, what follows, and requests with AckReq.

A missing ACK shows when the request is retransmitted. It is a violation only if the receiver
responds later, so it is alive, and only at a tap next to the receiver (see summary/conformance.py):
elsewhere the request may be lost after the tap, or the ACK before the tap.
"""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Int, inlined, subkernel
from ...statistics.histogram import observe
from ...track.sequence import SILENCE_NS
from ...wire.bth import psn_add, psn_distance
from . import rules as rule_list
from . import state as st
from .rules import NO_ANSWER
from .state import REACTION_NS, Book, RequesterRecord, SeenAt, breaks, keeps, leaves_open


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
    if waited > book.used[REACTION_NS]:
        s.ask_again_frame = frame
        s.ask_waited = waited


@subkernel
def gets_answer(book: Book, f: Int, s: RequesterRecord, through: Int, tap: Int) -> None:
    """All requests before PSN `through` are acknowledged."""
    if not s.ask_open or psn_distance(through, np.int64(s.ask_psn)) <= 0:
        return
    if s.ask_again_frame:
        breaks(
            book, f, NO_ANSWER, SeenAt(tap, s.ask_time, s.ask_frame), s.ask_again_frame,
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
