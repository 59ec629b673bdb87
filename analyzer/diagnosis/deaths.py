"""Queue pairs that are dead: refused permanently, or without any answer until the end."""

from __future__ import annotations

from typing import Literal, NamedTuple

from ..measures.troubles import FATAL_SENT
from ..results.flow import Flow
from ..wire.bth import PSN_HALF, PSN_MASK
from .case import Case, seen_in_part

ROUNDS = 3
"""Rewinds to one PSN without an answer that prove death. With a loss of 1 % on both ways, three in
a row at the end of a capture happen to one queue pair in 100,000."""
SILENCE_NS = 500_000_000
"""Time without an answer after which two rewinds are enough; four times as long, one. ACK timeouts
of NICs are below this at their usual settings (4.096 us * 2^14 = 67 ms)."""
QUEUE_FACTOR = 2
"""The silence is also this many times the longest wait on a hop that the requests or their answers
pass: packets at the end of a growing queue wait longer than all that left it."""
SILENCE_FACTOR = 4
"""The silence is also this much longer than any gap that the flow survived."""


class Death(NamedTuple):
    """How a queue pair ended."""

    why: Literal["refused", "unanswered", "silent"]
    since_ns: int
    """The first request for an ACK after the last answer, or that answer."""
    packets: int
    """Retransmissions without an answer; 1 for a refused request."""


def death_of(case: Case, flow: Flow) -> Death | None:
    """How the sender of `flow` ended; None while it lives or the capture cannot tell."""
    death = _death_as_seen(case, flow)
    return None if death is None or _is_hidden(case, flow, death) else death


def may_be_answered(case: Case, flow: Flow) -> bool:
    """Whether the sender gets no answer at the taps, and answers may take paths without a tap."""
    death = _death_as_seen(case, flow)
    return death is not None and _is_hidden(case, flow, death)


def _is_hidden(case: Case, flow: Flow, death: Death) -> bool:
    return death.why != "refused" and (
        seen_in_part(flow)
        or flow.dst in case.partly_seen
        or answered_elsewhere(case, flow)
        or _answered_in_a_gap(case, flow, death.since_ns)
    )


def _answered_in_a_gap(case: Case, flow: Flow, since_ns: int) -> bool:
    """Whether the capture of a tap of the connection has a gap after this time."""
    peer = case.peers.get(flow.id)
    taps = {*flow.taps, *(() if peer is None else case.flows[peer].taps)}
    ends = [gap.until_ns for tap in taps for gap in case.gaps.get(tap, ())]
    return any(until_ns is None or until_ns >= since_ns for until_ns in ends)


def answered_elsewhere(case: Case, flow: Flow) -> bool:
    """Whether the sender went back to a packet after its first one and no tap saw any answer: what
    it did not go back to was acknowledged. Not so if answers that are too few to be paired name its
    packets, or if it goes back there again and again and they may be its own."""
    progress = case.measuring.troubles.progress(flow.id)
    ahead = int(progress["base_psn"]) - int(progress["first_psn"]) & PSN_MASK
    if not progress["rounds"] or progress["answer_time"] or not 0 < ahead < PSN_HALF:
        return False
    if flow.id in case.likely_peers:
        return False
    return bool(progress["rounds"] < ROUNDS) or not case.unpaired_answers(flow)


def _death_as_seen(case: Case, flow: Flow) -> Death | None:
    troubles, progress = case.measuring.troubles, case.measuring.troubles.progress(flow.id)
    if flow.retransmitted_packets is None or not flow.request_packets:
        return None
    peer = case.peers.get(flow.id)
    refusal = None if peer is None else troubles.of(peer, FATAL_SENT)
    new_ns = int(progress["new_time"])
    if refusal is not None and new_ns <= refusal.last_ns:
        return Death("refused", refusal.first_ns, 1)
    resent, rounds = int(progress["resent_unanswered"]), int(progress["rounds_unanswered"])
    answer_ns, asked_ns = int(progress["answer_time"]), int(progress["asked_time"])
    resent_ns = int(progress["resent_unanswered_time"])
    since = max(asked_ns, answer_ns) if answer_ns else min(new_ns or resent_ns, resent_ns)
    # Where answers pass the tap, new packets after a request for an ACK show none.
    owed_ns = min(asked_ns, new_ns) if asked_ns > answer_ns > 0 else new_ns
    silent = case.last_ns - max(owed_ns, answer_ns)
    waits = case.longest_waits
    queued = max(waits.get(flow.id, 0), 0 if peer is None else waits.get(peer, 0))
    if case.last_ns - since < QUEUE_FACTOR * queued:
        return None
    if resent:
        # Where no answer was ever seen, the tap may see one direction only: then new packets show
        # that the sender got one.
        answered_here = (flow.dst, flow.src) in case.hosts_seen
        heard = answer_ns > 0 or resent_ns >= new_ns or answered_here
        patience = SILENCE_NS if rounds > 1 else 4 * SILENCE_NS
        if heard and (rounds >= ROUNDS or silent >= patience):
            return Death("unanswered", since, resent)
        return None
    if peer is None or not progress["acked"] or asked_ns <= answer_ns:
        return None
    outstanding = (int(progress["run_next"]) - 1 - int(progress["ack_psn"])) & 0xFFFFFF
    silent = case.last_ns - flow.last_time_ns
    patience = max(2 * SILENCE_NS, SILENCE_FACTOR * flow.idle_gaps.max_ns)
    if progress["run_known"] and 0 < outstanding < 1 << 23 and silent >= patience:
        return Death("silent", since, outstanding)
    return None
