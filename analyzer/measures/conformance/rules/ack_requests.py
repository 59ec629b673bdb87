"""Requests with AckReq and their ACKs.

A missing ACK shows when the request is retransmitted. It is a violation only if the receiver
responds later, so it is alive, and only at a tap next to the receiver (see summary/conformance.py):
elsewhere the request may be lost after the tap, or the ACK before the tap.
"""

from __future__ import annotations

import numpy as np

from .....kernels.kernel import Int, inlined, subkernel
from ....wire.psn import psn_distance
from ..rule_list import NO_ANSWER
from ..state import REACTION_NS, Book, Here, RequesterRecord, breaks


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
            book, f, NO_ANSWER, Here(tap, s.ask_time, s.ask_frame), s.ask_again_frame, s.ask_psn, 0,
            s.ask_waited,
        )  # fmt: skip
        s.asked = max(s.asked - 1, 0)
    s.ask_open = 0
    if psn_distance(np.int64(s.ask_last_psn), through) >= 0:
        _watch(s)
