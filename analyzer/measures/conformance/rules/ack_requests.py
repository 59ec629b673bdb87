"""Requests that ask for an ACK, and whether their receiver gives one.

A missing answer shows when the request is sent again. It is held against the receiver only
when it answers later, so it is still there, and only at a tap next to it (see conclude.py):
elsewhere the request may have been lost behind the tap, or the answer before it.
"""

from __future__ import annotations

import numpy as np

from .....kernels.kernel import Int, inlined, subkernel
from ....wire.psn import psn_distance
from ..rule_list import NO_ANSWER
from ..state import REACTION_NS, Book, RequesterRecord, breaks


@inlined
def asks_for_answer(s: RequesterRecord, psn: Int, time: Int, frame: Int) -> None:
    """A request that came in order asks for an ACK."""
    s.ask_last_psn = psn
    s.ask_last_time = time
    s.ask_last_frame = frame
    if not s.ask_open:
        _watch(s)


@inlined
def _watch(s: RequesterRecord) -> None:
    """From now on the one to be answered is the latest that asked."""
    s.ask_open = 1
    s.ask_psn = s.ask_last_psn
    s.ask_time = s.ask_last_time
    s.ask_frame = s.ask_last_frame
    s.ask_again_frame = 0


@inlined
def asks_for_answer_again(book: Book, s: RequesterRecord, psn: Int, time: Int, frame: Int) -> None:
    """A request is sent again: is it the one that was not answered for so long?"""
    if not s.ask_open or psn != s.ask_psn or s.ask_again_frame != 0:
        return
    waited = time - s.ask_time
    if waited > book.used[REACTION_NS]:
        s.ask_again_frame = frame
        s.ask_waited = waited


@subkernel
def gets_answer(book: Book, f: Int, s: RequesterRecord, through: Int, tap: Int) -> None:
    """All requests before PSN `through` have been answered."""
    if not s.ask_open or psn_distance(through, np.int64(s.ask_psn)) <= 0:
        return
    if s.ask_again_frame:
        breaks(
            book, f, NO_ANSWER, tap, s.ask_time, s.ask_frame, s.ask_again_frame, s.ask_psn, 0,
            s.ask_waited,
        )  # fmt: skip
        s.asked = max(s.asked - 1, 0)
    s.ask_open = 0
    if psn_distance(np.int64(s.ask_last_psn), through) >= 0:
        _watch(s)
