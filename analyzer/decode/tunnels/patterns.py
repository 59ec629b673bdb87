"""Recognises outer headers equal to those of an earlier frame, without a walk.

A mirror adds the same headers at the same positions to every frame, with other lengths, sequence
numbers, checksums, addresses and timestamps. A pattern holds the bits that decided the walk, which
must be equal, and the positions of the fields that the walk read. `recognise` then returns the
result of the walk. It checks every length as the walk does; a frame that differs elsewhere does not
match and is walked. learning.py makes patterns.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ....kernels.kernel import Int, inlined
from ...wire.endpoints import IPV4_MAPPED
from ...wire.packets import I64, U8
from .. import sessions as ses
from ..headers.load import be16, be32, be64, byte
from . import walk as wk
from .headers import KNOWN_ETHERTYPES

N_PATTERNS = 4
MAX_WORDS, MAX_IPS, MAX_PROBES = 16, 6, 8

# One pattern per row, int64[N_PATTERNS, N_FIELDS]; positions are relative to the start of the
# frame.
(
    LINK_OUTSIDE,  # link type of the outer frame
    LIMIT,  # bytes that must be captured and inside all outer packets; 0: no pattern yet
    WORDS,
    IPS,
    PROBES,
    BEGIN,  # as in walk.py
    LINK,
    FRAME,
    VLAN_AT,
    OUTER_IPV6,
    STAMP,
    SEEN,
    CUT_AT,  # byte of the last ERSPAN header with the bit that marks a cut frame; -1 for none
    WHAT,  # description of the session, without the number and ERSPAN III direction; 0 for none
    SOURCE_AT,
    SOURCE_IPV6,
    NUMBER_AT,  # 32 bits with the number of the session; -1 for none
    NUMBER_SHIFT,
    NUMBER_MASK,
    DIRECTION_AT,  # byte with the direction bit of ERSPAN III; -1 for none
    LAST_HIGH,  # the latest session and its tap
    LAST_LOW,
    LAST_WHAT,
    LAST_TAP,
    FOUND,  # recognised frames of the tap CARRIER, not yet counted
    CARRIER,
    USED,  # fields of the inner frames in use, as in `unwrap_frames`
    WORD,  # MAX_WORDS times: position, bits to compare, their value
) = range(28)
IP = WORD + 3 * MAX_WORDS  # MAX_IPS times: position of the length, its base, least end
PROBE = IP + 3 * MAX_IPS  # positions of bytes that must not begin a known EtherType
N_FIELDS = PROBE + MAX_PROBES

WITH_VLAN, WITH_OUTER_IPV6, WITH_RATE = 1, 2, 4
"""Fields of inner frames that hold values."""

# State between calls, int64[N_STATES].
LAST, WALKS_LEFT, DUE, SAMPLES_DONE = range(4)
N_STATES = 4
"""LAST: the pattern of the previous frame; WALKS_LEFT: walks until a pattern is to be learned;
DUE: 1 if a kernel has stopped for that; SAMPLES_DONE: of the sFlow datagram at which it stopped."""


MAY_BEGIN_A_TYPE: Final[U8] = np.zeros(256, np.uint8)
"""uint8[256]: 1 for the first byte of an EtherType that `looks_like_a_frame` accepts."""
MAY_BEGIN_A_TYPE[[ethertype >> 8 for ethertype in KNOWN_ETHERTYPES]] = 1


@inlined
def recognise(
    data: U8, begin: Int, end: Int, stop: Int, link_type: Int, t: I64, p: np.uint64, w: I64
) -> bool:
    """Whether a frame has the headers of the pattern in row `p` of `t`; `w` then holds the result
    of a walk.

    end: of the captured bytes; stop: of the frame on the wire.
    """
    limit = begin + t[p, LIMIT]
    if t[p, LIMIT] == 0 or link_type != t[p, LINK_OUTSIDE] or end < limit:
        return False
    for n in range(t[p, WORDS]):
        k = np.uint64(WORD + 3 * n)
        bits = np.int64(be64(data, begin + t[p, k]))
        if bits & t[p, k + np.uint64(1)] != t[p, k + np.uint64(2)]:
            return False
    packet_stop = stop
    for n in range(t[p, IPS]):
        k = np.uint64(IP + 3 * n)
        packet_stop = begin + t[p, k + np.uint64(1)] + be16(data, begin + t[p, k])
        if packet_stop < begin + t[p, k + np.uint64(2)]:
            return False
        end = min(end, packet_stop)
        stop = min(stop, packet_stop)
    if end < limit:
        return False
    for n in range(t[p, PROBES]):
        if MAY_BEGIN_A_TYPE[byte(data, begin + t[p, np.uint64(PROBE + n)])] != 0:
            return False
    if t[p, CUT_AT] >= 0 and byte(data, begin + t[p, CUT_AT]) & 4 != 0:
        stop = max(stop, end, packet_stop)
    w[wk.BEGIN] = begin + t[p, BEGIN]
    w[wk.END] = end
    w[wk.STOP] = stop
    w[wk.LINK] = t[p, LINK]
    w[wk.FRAME] = begin + t[p, FRAME]
    w[wk.VLAN] = be16(data, begin + t[p, VLAN_AT]) if t[p, VLAN_AT] >= 0 else 0
    w[wk.OUTER_IPV6] = begin + t[p, OUTER_IPV6] if t[p, OUTER_IPV6] >= 0 else -1
    w[wk.STAMP] = begin + t[p, STAMP] if t[p, STAMP] >= 0 else -1
    w[wk.RATE] = 0
    return True


@inlined
def tap_of_pattern(
    data: U8, begin: Int, carrier: Int, t: I64, p: np.uint64, sessions: ses.SessionArrays
) -> Int:
    """The tap of a recognised frame, -1 if its session is not registered yet."""
    if t[p, WHAT] == 0:
        return carrier
    at = begin + t[p, SOURCE_AT]
    high, low = np.int64(0), np.int64(0)
    if t[p, SOURCE_IPV6] != 0:
        high, low = np.int64(be64(data, at + 8)), np.int64(be64(data, at + 16))
    else:
        low = np.int64(IPV4_MAPPED) | be32(data, at + 12)
    what = t[p, WHAT] | (carrier << ses.TAP_SHIFT)
    if t[p, NUMBER_AT] >= 0:
        number = be32(data, begin + t[p, NUMBER_AT])
        what |= (number >> t[p, NUMBER_SHIFT]) & t[p, NUMBER_MASK]
    if t[p, DIRECTION_AT] >= 0:
        egress = (byte(data, begin + t[p, DIRECTION_AT]) >> 3) & 1
        what |= (ses.INGRESS + egress) << ses.DIRECTION_SHIFT
    if what == t[p, LAST_WHAT] and low == t[p, LAST_LOW] and high == t[p, LAST_HIGH]:
        return t[p, LAST_TAP]
    tap = ses.session_tap(high, low, what, sessions)
    if tap >= 0:
        t[p, LAST_HIGH] = high
        t[p, LAST_LOW] = low
        t[p, LAST_WHAT] = what
        t[p, LAST_TAP] = tap
    return tap
