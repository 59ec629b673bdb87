"""Goodput: the payload of a flow that its receiver acknowledged, and the time that it took.

- requests: payload of first copies up to the PSN that an ACK, a NAK or a response covers. An ACK
  for a part of the outstanding PSNs acknowledges the same part of the outstanding payload: exact
  when an ACK covers all of them, and for packets of one size; the payload that remains at the end
  is at most what was outstanding
- READ responses: payload of first copies; they are the answer, and nothing acknowledges them
- UC and UD: nothing, because they have no ACKs
- time: first copy of the first packet to the last packet, retransmitted packets included, or to the
  last ACK that covers more than the ones before
"""

from __future__ import annotations

import numpy as np

from ....kernels.kernel import Int, inlined
from ...wire.psn import psn_add, psn_distance
from ...wire.record import Record

DELIVERED_FIELDS = [
    ("delivered", np.int64),  # bytes acknowledged, or of responses
    ("pending", np.int64),  # bytes of first copies that wait for an ACK
    ("base", np.uint32),  # PSN up to which all is acknowledged; at first the one before the first
    ("top", np.uint32),  # largest PSN of a request
    ("first_time", np.int64),  # ns
    ("last_time", np.int64),
    ("started", np.uint8),  # 1: the times are set
    ("asked", np.uint8),  # 1: a request was seen, `base` and `top` are set
    ("acked", np.uint8),  # 1: an answer was seen
    ("began_anew", np.uint8),  # 1: without an answer the sender went back to its first request
]
"""Fields of a flow's state for the functions below."""


@inlined
def _pass(s: Record, time: Int) -> None:
    if s.started == 0:
        s.started = 1
        s.first_time = time
        s.last_time = time
    s.first_time = min(np.int64(s.first_time), time)
    s.last_time = max(np.int64(s.last_time), time)


@inlined
def arrived(s: Record, payload: Int, time: Int) -> None:
    """A response passes for the first time."""
    _pass(s, time)
    s.delivered += payload


@inlined
def offered(s: Record, psn: Int, payload: Int, time: Int) -> None:
    """A request of a reliable transport passes for the first time."""
    _pass(s, time)
    s.began_anew = 0
    if s.asked == 0:
        s.asked = 1
        s.base = psn_add(psn, -1)
        s.top = psn
    ahead = psn_distance(psn, np.int64(s.base))
    if ahead <= 0 and s.acked:
        s.delivered += payload
        return
    if ahead <= 0:
        s.base = psn_add(psn, -1)
    if psn_distance(psn, np.int64(s.top)) > 0:
        s.top = psn
    s.pending += payload


@inlined
def resent(s: Record, psn: Int, time: Int, is_request: bool) -> None:
    """A packet passes again."""
    if s.started:
        s.last_time = max(np.int64(s.last_time), time)
    if is_request and s.asked and s.acked == 0 and psn == psn_add(np.int64(s.base), 1):
        s.began_anew = 1


@inlined
def acknowledged(s: Record, psn: Int, time: Int) -> None:
    """An answer covers all requests up to `psn`."""
    if s.asked == 0:
        return
    s.acked = 1
    covers = psn_distance(psn, np.int64(s.base))
    if covers <= 0:
        return
    s.last_time = max(np.int64(s.last_time), time)
    outstanding = psn_distance(np.int64(s.top), np.int64(s.base))
    part = np.int64(s.pending)
    if covers < outstanding:
        part = part * covers // outstanding
    s.delivered += part
    s.pending -= part
    s.base = psn


@inlined
def began_again(s: Record) -> None:
    """The sequence restarts: what was outstanding is never acknowledged."""
    s.pending = 0
    s.acked = 0
    s.asked = 0
