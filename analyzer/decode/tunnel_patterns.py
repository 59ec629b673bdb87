"""Outer headers that repeat: a pattern learned from one walk recognises the next frames."""

from __future__ import annotations

from typing import Final

import numpy as np

from ...kernels.kernel import Int, inlined
from ..wire.packets import I64, LINKTYPE_ETHERNET, U8
from ..wire.registry import IPV4_MAPPED
from . import sessions as ses
from . import tunnels as wk
from .headers import FRAGMENT, UDP_BYTES, be16, be32, be64, byte
from .tunnels import GRE_CHECKSUM, GRE_SEQUENCE, KNOWN_ETHERTYPES, PROBED_OFFSETS, TYPE_ERSPAN

# Recognises outer headers equal to those of an earlier frame, without a walk.
#
# A mirror adds the same headers at the same positions to every frame, with other lengths, sequence
# numbers, checksums, addresses and timestamps. A pattern holds the bits that decided the walk,
# which must be equal, and the positions of the fields that the walk read. `recognise` then returns
# the result of the walk. It checks every length as the walk does; a frame that differs elsewhere
# does not match and is walked. `Patterns` below makes patterns.

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
    BEGIN,  # as in tunnels.py
    LINK,
    FRAME,
    VLAN_AT,
    OUTER_IPV6,
    STAMP,
    ETHERNET,
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
) = range(29)
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
    w[wk.ETHERNET] = begin + t[p, ETHERNET] if t[p, ETHERNET] >= 0 else -1
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


# Makes a pattern of a walk: bits that must be equal in the next frame, positions of its values.
#
# The tables follow tunnels.py and headers.py and need every bit that decides how these continue:
# without one, a different frame would match. The tests flip each of these bits.

LEARNED_AGAIN = 1 << 15
"""When all patterns are in use, one walk in N makes a new one: it costs as much as thousands."""
_TAGS = "0000ffff" * 4
_STRICT: Final = {
    wk.ETHERNET_STEP: "00" * 12 + "ffff" + _TAGS,
    wk.SLL_STEP: "00" * 14 + "ffff" + _TAGS,
    wk.SLL2_STEP: "ffff" + "00" * 18 + _TAGS,
    wk.IPV4_STEP: "ff00000000003fff00ff",
    wk.IPV6_STEP: "f00000000000ff",
    wk.ROCE_STEP: "0000ffff",
    wk.GRE_STEP: "ffffffff",
    wk.ERSPAN_2_STEP: "f0",
    wk.ERSPAN_3_STEP: "f00000000000000000007c01",
    wk.VXLAN_STEP: "0000ffff0000000008",
    wk.GENEVE_STEP: "0000ffff00000000ff80ffff",
    wk.TIMESTAMP_STEP: "ffffffff",
    wk.VXLAN_LIKE_STEP: "0000ffff000000000f000000000000ff",
    wk.VXLAN_GPE_STEP: "0000ffff000000000d0000ff",
    wk.UDP_STEP: "0000ffff",
    wk.GTP_STEP: "0000ffff00000000f7ff",
    wk.NSH_STEP: "c03f00ff",
    wk.TAG_STEP: "00000000ffff",
    wk.E_TAG_STEP: "000000000000ffff",
    wk.CISCO_METADATA_STEP: "ffff00000000ffff",
    wk.BACKBONE_STEP: "c7c0",
}
"""The bits of each header that decide how a walk continues."""
_BITS: Final = {step: bytes.fromhex(text) for step, text in _STRICT.items()}
_BEFORE_AN_ETHERTYPE: Final = frozenset(
    (wk.TIMESTAMP_STEP, wk.TAG_STEP, wk.E_TAG_STEP, wk.CISCO_METADATA_STEP)
)
_POSITION = (1 << wk.STEP_SHIFT) - 1
_BOTTOM_OF_STACK = 1
_PLAIN_GTP_BYTES = UDP_BYTES + 8
_FIRST_NIBBLE = 0xF0


class Patterns:
    """The patterns of one decoder, and when to learn another."""

    def __init__(self) -> None:
        self.rows = np.zeros((N_PATTERNS, N_FIELDS), np.int64)
        self.state = np.zeros(N_STATES, np.int64)
        self.trail = np.zeros(wk.N_FIELDS, np.int64)
        """Where walks leave their result."""
        self._learned = 0

    @property
    def due(self) -> bool:
        """Whether a kernel has stopped at a frame for which a pattern is to be made."""
        return bool(self.state[DUE])

    def learn(self, data: U8, begin: int, link_type: int) -> None:
        """Make a pattern of the frame at `begin`, which has been walked, if possible."""
        pattern = _Pattern(data, self.trail, begin).made()
        self.state[WALKS_LEFT] = LEARNED_AGAIN
        self.state[DUE] = 0
        if pattern is None:
            return
        pattern[LINK_OUTSIDE] = link_type
        self.rows[self._learned % N_PATTERNS] = pattern
        self._learned += 1
        if self._learned < N_PATTERNS:
            self.state[WALKS_LEFT] = 0


class _Full(Exception):
    """The headers exceed the room of a pattern, or no pattern can describe them."""


class _Pattern:
    """A pattern under construction."""

    def __init__(self, data: U8, trail: I64, begin: int) -> None:
        w = trail.tolist()
        self._w = w
        self._fields = [0] * N_FIELDS
        self._begin = begin
        entries = w[wk.TRAIL : wk.TRAIL + w[wk.STEPS]]
        self._steps = [(e >> wk.STEP_SHIFT, (e & _POSITION) - begin) for e in entries]
        self._limit = self._steps[-1][1] + UDP_BYTES
        self._head = bytes(data[begin : begin + self._limit])
        self._strict = bytearray(self._limit)

    def made(self) -> I64 | None:
        """int64[N_FIELDS], a row of patterns; None if no pattern is possible."""
        t = self._fields
        t[LIMIT] = self._limit
        t[CUT_AT] = -1
        try:
            for n in range(len(self._steps)):
                self._add(n)
            self._pack()
        except _Full:
            return None
        self._take_over()
        return np.array(t, np.int64)

    def _number(self, at: int, size: int) -> int:
        return int.from_bytes(self._head[at : at + size])

    def _must_equal(self, at: int, bits: bytes) -> None:
        for k, value in enumerate(bits, at):
            self._strict[k] |= value

    def _add(self, n: int) -> None:
        """The header of step `n`."""
        kind, at = self._steps[n]
        behind, after = self._steps[n + 1] if n + 1 < len(self._steps) else (-1, self._limit)
        bits = _BITS.get(kind, b"")
        # After a timestamp or tag, the addresses are those before it.
        self._must_equal(at, bits if kind in _BEFORE_AN_ETHERTYPE else bits[: after - at])
        if kind == wk.IPV4_STEP:
            self._add_length(at + 2, at, after)
        elif kind == wk.IPV6_STEP:
            self._extension_headers(at, after)
            self._add_length(at + 4, at + 40, after)
        elif kind in (wk.ERSPAN_2_STEP, wk.ERSPAN_3_STEP):
            self._fields[CUT_AT] = at + 2
        elif kind == wk.PROBED_STEP:
            self._fields[CUT_AT] = -1
            gre = self._steps[n - 1][1]
            if self._number(gre, 2) & GRE_SEQUENCE and self._number(gre + 2, 2) == TYPE_ERSPAN:
                raise _Full  # may be ERSPAN II, by its first bits
            for offset in PROBED_OFFSETS:
                if offset < after - at:
                    self._add_probe(at + offset + 12)
        elif kind == wk.GTP_STEP and after - at > _PLAIN_GTP_BYTES:
            raise _Full  # optional fields
        elif kind == wk.MPLS_STEP:
            self._labels(at, behind, after)
        elif kind in (wk.IP_LINK_STEP, wk.OTHER_STEP) and after > at:
            raise _Full  # a header without a step of its own

    def _add_length(self, at: int, base: int, least: int) -> None:
        n = self._fields[IPS]
        if n == MAX_IPS:
            raise _Full
        self._fields[IP + 3 * n : IP + 3 * n + 3] = at, base, least
        self._fields[IPS] = n + 1

    def _add_probe(self, at: int) -> None:
        n = self._fields[PROBES]
        if n == MAX_PROBES:
            raise _Full
        self._fields[PROBE + n] = at
        self._fields[PROBES] = n + 1

    def _extension_headers(self, ip: int, after: int) -> None:
        """The walk follows their types and lengths, and all other bits of a fragment header."""
        protocol, at = self._head[ip + 6], ip + 40
        while at < after:
            fragment = protocol == FRAGMENT
            self._must_equal(at, b"\xff" * (8 if fragment else 2))
            protocol = self._head[at]
            at += 8 if fragment else (self._head[at + 1] + 1) * 8

    def _labels(self, at: int, behind: int, after: int) -> None:
        """A label stack, and the header after it (`behind`), which shows the payload (`mpls`)."""
        bottom = 0
        while not bottom:
            self._strict[at + 2] |= _BOTTOM_OF_STACK
            bottom = self._head[at + 2] & _BOTTOM_OF_STACK
            at += 4
        self._strict[at] |= _FIRST_NIBBLE
        nibble = self._head[at] >> 4
        if behind != wk.ETHERNET_STEP and nibble == 6:
            self._add_probe(at + 12)
        elif behind == wk.ETHERNET_STEP and after == at:  # without a control word
            if nibble == 4:
                raise _Full
            if nibble == 0:
                self._add_probe(at + 4 + 12)

    def _pack(self) -> None:
        """The bits to compare, eight bytes at a time."""
        words, at = 0, 0
        while at < self._limit:
            if not self._strict[at]:
                at += 1
                continue
            if words == MAX_WORDS:
                raise _Full
            at = min(at, self._limit - 8)
            bits = int.from_bytes(self._strict[at : at + 8], signed=True)
            value = int.from_bytes(self._head[at : at + 8], signed=True) & bits
            place = WORD + 3 * words
            self._fields[place : place + 3] = at, bits, value
            words += 1
            at += 8
        self._fields[WORDS] = words

    def _take_over(self) -> None:
        """Other results of the walk, with positions relative to the start of the frame."""
        t, w = self._fields, self._w

        def relative(field: int) -> int:
            return w[field] - self._begin if w[field] >= 0 else -1

        t[BEGIN] = relative(wk.BEGIN)
        t[LINK] = w[wk.LINK]
        t[FRAME] = relative(wk.FRAME)
        t[VLAN_AT] = -1 if w[wk.LINK] == LINKTYPE_ETHERNET else relative(wk.VLAN_AT)
        t[OUTER_IPV6] = relative(wk.OUTER_IPV6)
        t[STAMP] = relative(wk.STAMP)
        t[ETHERNET] = relative(wk.ETHERNET)
        t[SEEN] = w[wk.SEEN]
        t[USED] = WITH_VLAN if t[VLAN_AT] >= 0 else 0
        t[USED] |= WITH_OUTER_IPV6 if t[OUTER_IPV6] >= 0 else 0
        kind = w[wk.KIND]
        t[WHAT] = kind << ses.KIND_SHIFT
        t[NUMBER_AT] = t[DIRECTION_AT] = -1
        if not kind:
            return
        t[SOURCE_AT] = relative(wk.SOURCE_AT)
        t[SOURCE_IPV6] = self._head[t[SOURCE_AT]] >> 4 == 6
        at = relative(wk.SESSION_AT)
        if kind == ses.ERSPAN_3:
            t[DIRECTION_AT] = at + 11
        else:
            t[WHAT] |= w[wk.DIRECTION] << ses.DIRECTION_SHIFT
        if kind in (ses.ERSPAN_2, ses.ERSPAN_3):
            t[NUMBER_AT], t[NUMBER_MASK] = at, 0x3FF
        elif kind in (ses.VXLAN, ses.GENEVE):
            t[NUMBER_AT], t[NUMBER_SHIFT], t[NUMBER_MASK] = at + 4, 8, 0xFFFFFF
        elif kind != ses.ERSPAN_1 and w[wk.DIRECTION] == ses.WITH_KEY:
            checksum = 4 if self._number(at, 2) & GRE_CHECKSUM else 0
            t[NUMBER_AT], t[NUMBER_MASK] = at + 4 + checksum, 0xFFFFFFFF
