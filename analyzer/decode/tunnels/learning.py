"""Makes a pattern of a walk: bits that must be equal in the next frame, positions of its values.

The tables follow walk.py and headers.py and need every bit that decides how these continue: without
one, a different frame would match. The tests flip each of these bits.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ...wire.frames import LINKTYPE_ETHERNET
from ...wire.packets import I64, U8
from .. import sessions as ses
from ..headers.link_and_ip import FRAGMENT, UDP_BYTES
from . import patterns as pt
from . import walk as wk
from .headers import GRE_CHECKSUM, GRE_SEQUENCE, PROBED_OFFSETS, TYPE_ERSPAN

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
}
"""The bits of each header that decide how a walk continues."""
_BITS: Final = {step: bytes.fromhex(text) for step, text in _STRICT.items()}
_POSITION = (1 << wk.STEP_SHIFT) - 1
_BOTTOM_OF_STACK = 1
_FIRST_NIBBLE = 0xF0


class Patterns:
    """The patterns of one decoder, and when to learn another."""

    def __init__(self) -> None:
        self.rows = np.zeros((pt.N_PATTERNS, pt.N_FIELDS), np.int64)
        self.state = np.zeros(pt.N_STATES, np.int64)
        self.trail = np.zeros(wk.N_FIELDS, np.int64)
        """Where walks leave their result."""
        self._learned = 0

    @property
    def due(self) -> bool:
        """Whether a kernel has stopped at a frame for which a pattern is to be made."""
        return bool(self.state[pt.DUE])

    def learn(self, data: U8, begin: int, link_type: int) -> None:
        """Make a pattern of the frame at `begin`, which has been walked, if possible."""
        pattern = _Pattern(data, self.trail, begin).made()
        self.state[pt.WALKS_LEFT] = LEARNED_AGAIN
        self.state[pt.DUE] = 0
        if pattern is None:
            return
        pattern[pt.LINK_OUTSIDE] = link_type
        self.rows[self._learned % pt.N_PATTERNS] = pattern
        self._learned += 1
        if self._learned < pt.N_PATTERNS:
            self.state[pt.WALKS_LEFT] = 0


class _Full(Exception):
    """The headers exceed the room of a pattern, or no pattern can describe them."""


class _Pattern:
    """A pattern under construction."""

    def __init__(self, data: U8, trail: I64, begin: int) -> None:
        w = trail.tolist()
        self._w = w
        self._fields = [0] * pt.N_FIELDS
        self._begin = begin
        entries = w[wk.TRAIL : wk.TRAIL + w[wk.STEPS]]
        self._steps = [(e >> wk.STEP_SHIFT, (e & _POSITION) - begin) for e in entries]
        self._limit = self._steps[-1][1] + UDP_BYTES
        self._head = bytes(data[begin : begin + self._limit])
        self._strict = bytearray(self._limit)

    def made(self) -> I64 | None:
        """int64[N_FIELDS], see patterns.py; None if no pattern is possible."""
        t = self._fields
        t[pt.LIMIT] = self._limit
        t[pt.CUT_AT] = -1
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
        # After a timestamp, the addresses are those before it.
        self._must_equal(at, bits if kind == wk.TIMESTAMP_STEP else bits[: after - at])
        if kind == wk.IPV4_STEP:
            self._add_length(at + 2, at, after)
        elif kind == wk.IPV6_STEP:
            self._extension_headers(at, after)
            self._add_length(at + 4, at + 40, after)
        elif kind in (wk.ERSPAN_2_STEP, wk.ERSPAN_3_STEP):
            self._fields[pt.CUT_AT] = at + 2
        elif kind == wk.PROBED_STEP:
            self._fields[pt.CUT_AT] = -1
            gre = self._steps[n - 1][1]
            if self._number(gre, 2) & GRE_SEQUENCE and self._number(gre + 2, 2) == TYPE_ERSPAN:
                raise _Full  # may be ERSPAN II, by its first bits
            for offset in PROBED_OFFSETS:
                if offset < after - at:
                    self._add_probe(at + offset + 12)
        elif kind == wk.MPLS_STEP:
            self._labels(at, behind, after)
        elif kind in (wk.IP_LINK_STEP, wk.OTHER_STEP) and after > at:
            raise _Full  # a header without a step of its own

    def _add_length(self, at: int, base: int, least: int) -> None:
        n = self._fields[pt.IPS]
        if n == pt.MAX_IPS:
            raise _Full
        self._fields[pt.IP + 3 * n : pt.IP + 3 * n + 3] = at, base, least
        self._fields[pt.IPS] = n + 1

    def _add_probe(self, at: int) -> None:
        n = self._fields[pt.PROBES]
        if n == pt.MAX_PROBES:
            raise _Full
        self._fields[pt.PROBE + n] = at
        self._fields[pt.PROBES] = n + 1

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
            if words == pt.MAX_WORDS:
                raise _Full
            at = min(at, self._limit - 8)
            bits = int.from_bytes(self._strict[at : at + 8], signed=True)
            value = int.from_bytes(self._head[at : at + 8], signed=True) & bits
            place = pt.WORD + 3 * words
            self._fields[place : place + 3] = at, bits, value
            words += 1
            at += 8
        self._fields[pt.WORDS] = words

    def _take_over(self) -> None:
        """Other results of the walk, with positions relative to the start of the frame."""
        t, w = self._fields, self._w

        def relative(field: int) -> int:
            return w[field] - self._begin if w[field] >= 0 else -1

        t[pt.BEGIN] = relative(wk.BEGIN)
        t[pt.LINK] = w[wk.LINK]
        t[pt.FRAME] = relative(wk.FRAME)
        t[pt.VLAN_AT] = -1 if w[wk.LINK] == LINKTYPE_ETHERNET else relative(wk.VLAN_AT)
        t[pt.OUTER_IPV6] = relative(wk.OUTER_IPV6)
        t[pt.STAMP] = relative(wk.STAMP)
        t[pt.SEEN] = w[wk.SEEN]
        t[pt.USED] = pt.WITH_VLAN if t[pt.VLAN_AT] >= 0 else 0
        t[pt.USED] |= pt.WITH_OUTER_IPV6 if t[pt.OUTER_IPV6] >= 0 else 0
        kind = w[wk.KIND]
        t[pt.WHAT] = kind << ses.KIND_SHIFT
        t[pt.NUMBER_AT] = t[pt.DIRECTION_AT] = -1
        if not kind:
            return
        t[pt.SOURCE_AT] = relative(wk.SOURCE_AT)
        t[pt.SOURCE_IPV6] = self._head[t[pt.SOURCE_AT]] >> 4 == 6
        at = relative(wk.SESSION_AT)
        if kind == ses.ERSPAN_3:
            t[pt.DIRECTION_AT] = at + 11
        else:
            t[pt.WHAT] |= w[wk.DIRECTION] << ses.DIRECTION_SHIFT
        if kind in (ses.ERSPAN_2, ses.ERSPAN_3):
            t[pt.NUMBER_AT], t[pt.NUMBER_MASK] = at, 0x3FF
        elif kind in (ses.VXLAN, ses.GENEVE):
            t[pt.NUMBER_AT], t[pt.NUMBER_SHIFT], t[pt.NUMBER_MASK] = at + 4, 8, 0xFFFFFF
        elif kind != ses.ERSPAN_1 and w[wk.DIRECTION] == ses.WITH_KEY:
            checksum = 4 if self._number(at, 2) & GRE_CHECKSUM else 0
            t[pt.NUMBER_AT], t[pt.NUMBER_MASK] = at + 4 + checksum, 0xFFFFFFFF
