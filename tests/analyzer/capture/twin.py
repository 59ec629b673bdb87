"""Plain-Python readers of pcap and pcapng: the oracles of the compiled framing.

They read a whole file at once, record by record, and follow the same rules for
damage: the rules are stated here a second time, independent of windows and batches.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from fractions import Fraction

SUPPORTED = {1, 101, 113, 197, 228, 229, 276}
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
    joined_at: list[int] = field(default_factory=list)


PCAP_MAGICS = (0xA1B2C3D4, 0xA1B23C4D, 0xA1B2CD34)


def file_header(data: bytes, at: int) -> tuple[str, int, int, int] | None:
    """Byte order, tick, bytes of a record header and most bytes of a record."""
    for order in "<>":
        if len(data) >= at + 8:
            magic, major, minor = struct.unpack_from(f"{order}IHH", data, at)
            if magic in PCAP_MAGICS and (major, minor) == (2, 4):
                snap = 0
                if len(data) >= at + 20:
                    snap = struct.unpack_from(f"{order}I", data, at + 16)[0]
                tick = 1 if magic == 0xA1B23C4D else 1000
                size = 24 if magic == 0xA1B2CD34 else 16
                return order, tick, size, max(2**18, min(snap, 2**20 - 64))
    return None


def read_pcap(data: bytes) -> Reading:
    """A classic pcap with a good file header."""
    first = file_header(data, 0)
    assert first is not None
    order, tick, header, most = first
    reading = Reading()
    unsized = False

    def fields(at: int) -> tuple[int, int, int, int]:
        seconds, fraction, held, wire = struct.unpack_from(f"{order}IIII", data, at)
        return seconds, fraction, held, wire

    def possible(at: int) -> bool:
        seconds, fraction, held, wire = fields(at)
        if held > most or wire > 2**24:
            return False
        return (wire, held, seconds, fraction) != (0, 0, 0, 0)

    def believable(at: int) -> bool:
        seconds, fraction, held, wire = fields(at)
        first = reading.frames[0][0] // 10**9 if reading.frames else 0
        in_time = seconds >= first - 86400 and fraction < 10**9 // tick
        sized = held <= wire <= 2**24 or (unsized and wire == 0)
        return 0 < held <= most and sized and in_time

    def search(at: int) -> int | None:
        for place in range(at, len(data) - header + 1):
            if file_header(data, place):
                return place
            if believable(place):
                following = place + header + fields(place)[2]
                if following == len(data):
                    return place
                if following + header <= len(data) and file_header(data, following):
                    return place
                if following + header <= len(data) and believable(following):
                    if abs(fields(following)[0] - fields(place)[0]) <= 86400:
                        return place
        return None

    at = 24
    while at < len(data):
        whole = at + header <= len(data)
        if whole and fields(at)[3] == 0 and (other := file_header(data, at)):
            if at + 24 <= len(data):
                order, tick, header, most = other
                reading.joined_at.append(at)
                at += 24
                continue
            whole = False
        if whole and possible(at):
            seconds, fraction, held, wire = fields(at)
            if at + header + held <= len(data):
                time = seconds * 10**9 + fraction * tick
                unsized = unsized or (wire == 0 and held > 0)
                reading.frames.append((time, held, wire or held, at + header))
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
        most = max(2**18, min(interface.snap, 2**20 - 64)) if interface.snap else 2**20
        if held > most or held > len(body) - skip:
            raise _Damaged
        wire = wire if kind == 3 else wire or held
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
