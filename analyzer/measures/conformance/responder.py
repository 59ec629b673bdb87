"""Rules of the responder: ACKs, NAKs and RNR NAKs."""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Int, subkernel
from ...statistics.histogram import observe
from ...wire.bth import (
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
from .requester import gets_answer
from .state import Book, RequesterRecord, SeenAt, breaks, keeps, leaves_open

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
