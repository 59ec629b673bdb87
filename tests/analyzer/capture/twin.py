"""Plain-Python readers of pcap and pcapng: the oracles of the compiled framing.

They read a whole file at once, record by record, and follow the same rules for
damage: the rules are stated here a second time, independent of windows and batches.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from fractions import Fraction

SUPPORTED = {1, 101, 113, 228, 229, 276}
INT64_MAX = 2**63 - 1
WINDOW = 2**20
"""Longer blocks of unknown types are skipped without a look at their second length."""


@dataclass
class Reading:
    """(time_ns, captured, wire, offset) of every frame, and what went wrong."""

    frames: list[tuple[int, int, int, int]] = field(default_factory=list)
    interfaces: list[int] = field(default_factory=list)
    damaged_at: list[int] = field(default_factory=list)
    cut_at: int | None = None


def read_pcap(data: bytes) -> Reading:
    """A classic pcap with a good file header."""
    order = "<" if data[:4] in (b"\xd4\xc3\xb2\xa1", b"M<\xb2\xa1", b"\x34\xcd\xb2\xa1") else ">"
    magic = struct.unpack_from(f"{order}I", data)[0]
    tick = 1 if magic == 0xA1B23C4D else 1000
    header = 24 if magic == 0xA1B2CD34 else 16
    reading = Reading()

    def fields(at: int) -> tuple[int, int, int, int]:
        seconds, fraction, held, wire = struct.unpack_from(f"{order}IIII", data, at)
        return seconds, fraction, held, wire

    def possible(at: int) -> bool:
        seconds, fraction, held, wire = fields(at)
        if held > 2**18 or wire > 2**24:
            return False
        return wire > 0 or (held == 0 and (seconds, fraction) != (0, 0))

    def believable(at: int) -> bool:
        seconds, fraction, held, wire = fields(at)
        first = reading.frames[0][0] // 10**9 if reading.frames else 0
        in_time = seconds >= first - 86400 and fraction < 10**9 // tick
        return 0 < held <= 2**18 and held <= wire <= 2**24 and in_time

    def search(at: int) -> int | None:
        for place in range(at, len(data) - header + 1):
            if believable(place):
                following = place + header + fields(place)[2]
                if following == len(data):
                    return place
                if following + header <= len(data) and believable(following):
                    if abs(fields(following)[0] - fields(place)[0]) <= 86400:
                        return place
        return None

    at = 24
    while at < len(data):
        whole = at + header <= len(data)
        if whole and possible(at):
            seconds, fraction, held, wire = fields(at)
            if at + header + held <= len(data):
                time = seconds * 10**9 + fraction * tick
                reading.frames.append((time, held, wire, at + header))
                at += header + held
                continue
            whole = False
        found = search(at + 1)
        if found is None and not whole:
            reading.cut_at = at
            break
        reading.damaged_at.append(at)
        if found is None:
            break
        at = found
    return reading


@dataclass
class _Interface:
    supported: bool
    snap: int
    unit: Fraction
    offset_ns: int


class _Damaged(Exception):
    pass


class _Cut(Exception):
    pass


class _PcapngReader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.order = "<"
        self.interfaces: list[_Interface] = []
        self.reading = Reading()

    def u32(self, at: int, order: str | None = None) -> int:
        value: int = struct.unpack_from(f"{order or self.order}I", self.data, at)[0]
        return value

    def run(self) -> Reading:
        at = 0
        while at < len(self.data):
            try:
                at = self.block(at)
                continue
            except _Cut:
                found = self.search(at + 1)
                if found is None:
                    self.reading.cut_at = at
                    break
            except _Damaged:
                found = self.search(at + 1)
            self.reading.damaged_at.append(at)
            if found is None:
                break
            at = found
        return self.reading

    def block(self, at: int) -> int:
        left = len(self.data) - at
        if left < 12:
            raise _Cut
        kind, order = self.u32(at), self.order
        if kind == 0x0A0D0D0A:
            orders = [o for o in "<>" if self.u32(at + 8, o) == 0x1A2B3C4D]
            if not orders:
                raise _Damaged
            order = orders[0]
        total = self.u32(at + 4, order)
        most = 2**20 if kind in (0x0A0D0D0A, 1, 2, 3, 5, 6) else 2**24
        if total < 12 or total % 4 or total > most:
            raise _Damaged
        if total > WINDOW and kind not in (0x0A0D0D0A, 1, 2, 3, 5, 6):
            if total > left:
                self.reading.cut_at = at
                return len(self.data)
            return at + total
        if total > left:
            raise _Cut
        if self.u32(at + total - 4, order) != total:
            raise _Damaged
        body = self.data[at + 8 : at + total - 4]
        if kind == 0x0A0D0D0A:
            if len(body) < 16:
                raise _Damaged
            self.order, self.interfaces = order, []
        elif kind == 1:
            self.interface(body)
        elif kind == 5:
            if len(body) < 12 or self.u32(at + 8) >= len(self.interfaces):
                raise _Damaged
        elif kind in (2, 3, 6):
            self.packet(kind, at, body)
        return at + total

    def interface(self, body: bytes) -> None:
        if len(body) < 8:
            raise _Damaged
        link, _, snap = struct.unpack_from(f"{self.order}HHI", body)
        unit, offset, at = Fraction(1, 10**6), 0, 8
        while at + 4 <= len(body):
            code, length = struct.unpack_from(f"{self.order}HH", body, at)
            value = body[at + 4 : at + 4 + length]
            if code == 0 or len(value) < length:
                break
            if code == 9 and value:
                exponent = value[0] & 0x7F
                unit = Fraction(1, (2 if value[0] & 0x80 else 10) ** exponent)
            if code == 14 and length == 8:
                offset = struct.unpack(f"{self.order}q", value)[0]
                offset = offset * 10**9 if abs(offset) <= 2**32 else 0
            at += 4 + length + -length % 4
        link = 101 if link in (12, 14) else link
        self.interfaces.append(_Interface(link in SUPPORTED, snap, unit, offset))

    def packet(self, kind: int, at: int, body: bytes) -> None:
        skip = 4 if kind == 3 else 20
        if len(body) < skip:
            raise _Damaged
        number = 0
        if kind == 6:
            number = self.u32(at + 8)
        elif kind == 2:
            number = struct.unpack_from(f"{self.order}H", body)[0]
        if number >= len(self.interfaces):
            raise _Damaged
        interface = self.interfaces[number]
        if kind == 3:
            wire = self.u32(at + 8)
            held = min(wire, len(body) - 4, interface.snap or wire)
            time = self.reading.frames[-1][0] if self.reading.frames else 0
        else:
            high, low, held, wire = struct.unpack_from(f"{self.order}IIII", body, 4)
            exact = (high << 32 | low) * interface.unit * 10**9
            since = exact.numerator // exact.denominator
            fits = since <= INT64_MAX - max(interface.offset_ns, 0)
            time = since + interface.offset_ns if fits else INT64_MAX
        if held > 2**18 or held > len(body) - skip:
            raise _Damaged
        held = held if interface.supported else 0
        self.reading.frames.append((time, held, wire, at + 8 + skip))
        self.reading.interfaces.append(number)

    def search(self, start: int) -> int | None:
        for at in range(start, len(self.data) - 11):
            kind, order = self.u32(at), self.order
            if kind == 0x0A0D0D0A:
                orders = [o for o in "<>" if self.u32(at + 8, o) == 0x1A2B3C4D]
                if not orders:
                    continue
                order = orders[0]
            elif not 1 <= kind <= 6:
                continue
            total = self.u32(at + 4, order)
            if total < 12 or total % 4 or total > 2**20 or at + total > len(self.data):
                continue
            if self.u32(at + total - 4, order) == total:
                return at
        return None


def read_pcapng(data: bytes) -> Reading:
    """A pcapng with a good section header at its start."""
    return _PcapngReader(data).run()
