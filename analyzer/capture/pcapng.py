"""pcapng: sections of both byte orders, interfaces, packet blocks, drop counters.

Format: https://datatracker.ietf.org/doc/draft-ietf-opsawg-pcapng/
A compiled kernel walks packet blocks; Python reads section headers, interface descriptions and
statistics, which are few.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ...kernels.kernel import Array, Bytes, Record, inlined, kernel
from ..errors import UnreadableInput
from ..wire.packets import I64, FrameBatch, FrameColumns
from ..wire.taps import MANY_TAPS, Tap, Taps
from . import framing
from .bytestream import Window
from .erf import open_record
from .framing import (
    DAMAGED,
    NEED,
    NEED_BYTES,
    NO_TIME,
    POSITION,
    UNTIMED,
    Framing,
    load32,
    note_disorder,
)

# The compiled walk over the blocks of a pcapng section.

SECTION_HEADER = 0x0A0D0D0A  # identical in both byte orders
INTERFACE_DESCRIPTION = 1
OBSOLETE_PACKET = 2
SIMPLE_PACKET = 3
INTERFACE_STATISTICS = 5
ENHANCED_PACKET = 6

MAX_PACKET_BLOCK_BYTES = 1 << 20
"""Longest plausible packet, section, interface or statistics block."""
MAX_BLOCK_BYTES = 1 << 24
"""Longest plausible block of another type (same limit as Wireshark)."""

TIME_MAX = (1 << 63) - 1

INTERFACE_DTYPE = np.dtype(
    [
        ("tap", np.int64),
        ("link_type", np.int64),
        ("supported", np.int64),
        ("snap_length", np.int64),  # bytes, 0 for unlimited
        ("binary", np.int64),  # time unit: 1 for 2**-exponent s, 0 for 10**-exponent s
        ("exponent", np.int64),
        ("factor", np.uint64),  # decimal: 10 ** |9 - exponent|, 0 where that overflows
        ("most_ticks", np.uint64),  # decimal: the last timestamp that fits int64 ns
        ("offset_ns", np.int64),  # added to every time
        ("frames", np.int64),  # counted by the walk
        ("first_ns", np.int64),  # time of the first of `frames`
        ("last_ns", np.int64),  # time of the last frame, NO_TIME before
        ("clock_steps", np.int64),  # frames more than a second before the previous one
        ("dropped", np.int64),  # sum of the drop counts of packets, NOT_STATED without any
    ],
    align=True,
)
"""State of an interface for the walk."""

NOT_STATED = -1
_MAX_DROPS = 1 << 40
"""More dropped frames are no count: some programs write all bits for an unknown one."""
_DROP_COUNT = 4
"""Option code of a drop count of a packet."""

BLOCK = framing.DAMAGED + 1
"""Why the kernel stopped, beside the reasons in framing.py: at a block that Python reads."""


@inlined
def scaled(value: np.uint64, shift: int) -> np.uint64:
    """floor(value * 10**9 / 2**shift) for value < 2**shift, exact; shift is 0 to 127."""
    billion = np.uint64(1_000_000_000)
    if shift <= 32:
        return (value * billion) >> np.uint64(shift)
    word = np.uint64(32)
    high = (value >> word) * billion + (((value & np.uint64(0xFFFFFFFF)) * billion) >> word)
    if shift >= 96:
        return np.uint64(0)
    return high >> np.uint64(shift - 32)


@inlined
def nanoseconds(high: int, low: int, interface: Record) -> int:
    """A pcapng timestamp in ns since the Unix epoch; TIME_MAX for times after the year 2262."""
    exponent, factor, offset_ns = interface.exponent, interface.factor, interface.offset_ns
    ticks = np.uint64(high) << np.uint64(32) | np.uint64(low)
    if interface.binary == 0:
        if ticks > interface.most_ticks:
            return TIME_MAX
        if exponent <= 9:
            ns = ticks * factor
        else:
            ns = ticks // factor if factor > 0 else np.uint64(0)
    else:
        billion = np.uint64(1_000_000_000)
        seconds = ticks >> np.uint64(exponent) if exponent < 64 else np.uint64(0)
        if seconds >= np.uint64(TIME_MAX - max(offset_ns, 0)) // billion:
            return TIME_MAX
        rest = ticks - (seconds << np.uint64(exponent)) if exponent < 64 else ticks
        ns = seconds * billion + scaled(rest, exponent)
    return np.int64(ns) + offset_ns


@inlined
def drop_count(data: Bytes, at: int, stop: int, swapped: bool) -> int:
    """The drop count among the options at `data[at:stop]` of a packet; NOT_STATED without."""
    while at + 4 <= stop:
        word = load32(data, at, swapped)  # code and length, u16 each
        code = word >> 16 if swapped else word & 0xFFFF
        length = word & 0xFFFF if swapped else word >> 16
        if code == 0 or at + 4 + length > stop:
            break
        if code == _DROP_COUNT and length == 8:
            first, second = load32(data, at + 4, swapped), load32(data, at + 8, swapped)
            high = first if swapped else second
            if high < _MAX_DROPS >> 32:
                return high << 32 | (second if swapped else first)
        at += 4 + length + (-length & 3)
    return NOT_STATED


@kernel
def walk_blocks(
    data: Bytes,
    end: int,
    swapped: bool,
    interfaces: Array,
    interface_count: int,
    columns: FrameColumns,
    state: I64,
) -> int:
    """Write one row per packet block of `data[state[POSITION]:end]`; returns the reason it stopped.

    Stops with BLOCK at section headers, interface descriptions and statistics;
    skips other blocks. `interfaces` (INTERFACE_DTYPE) describes the first
    `interface_count` interfaces.
    """
    position = state[framing.POSITION]
    rows = state[framing.FRAMES]
    last = state[framing.LAST_TIME]
    reason = framing.BATCH_FULL
    while rows < len(columns.offset):
        left = end - position
        if left < 12:
            state[framing.NEED] = 12
            reason = framing.NEED_BYTES
            break
        kind = load32(data, position, swapped)
        if kind == SECTION_HEADER or kind == INTERFACE_DESCRIPTION or kind == INTERFACE_STATISTICS:
            reason = BLOCK
            break
        packet = kind == ENHANCED_PACKET or kind == SIMPLE_PACKET or kind == OBSOLETE_PACKET
        total = load32(data, position + 4, swapped)
        most = MAX_PACKET_BLOCK_BYTES if packet else MAX_BLOCK_BYTES
        if total < 12 or total % 4 != 0 or total > most:
            reason = framing.DAMAGED
            break
        if left < total:
            state[framing.NEED] = total
            reason = framing.NEED_BYTES
            break
        if load32(data, position + total - 4, swapped) != total:
            reason = framing.DAMAGED
            break
        if not packet:
            position += total
            continue
        simple = kind == SIMPLE_PACKET
        body = 12 if simple else 28
        if total < body + 4:
            reason = framing.DAMAGED
            break
        interface = 0
        drops = NOT_STATED
        if kind == ENHANCED_PACKET:
            interface = load32(data, position + 8, swapped)
        elif kind == OBSOLETE_PACKET:
            word = load32(data, position + 8, swapped)  # interface and drop count, u16 each
            interface = word >> 16 if swapped else word & 0xFFFF
            drops = word & 0xFFFF if swapped else word >> 16
            if drops == 0xFFFF or drops == 0:  # unknown, or not counted
                drops = NOT_STATED
        if interface >= interface_count:
            reason = framing.DAMAGED
            break
        row = interfaces[interface]
        if simple:
            length = load32(data, position + 8, swapped)
            held = min(length, total - 16)
            if row["snap_length"] > 0:
                held = min(held, row["snap_length"])
            time = last if last != framing.NO_TIME else 0
            state[framing.UNTIMED] += 1
        else:
            held = load32(data, position + 20, swapped)
            length = load32(data, position + 24, swapped)
            high = load32(data, position + 12, swapped)
            time = nanoseconds(high, load32(data, position + 16, swapped), row)
        snap = row["snap_length"]
        most = max(framing.MAX_CAPTURED_BYTES, min(snap, framing.MAX_LARGE_BYTES))
        if held > total - body - 4 or (held > most and snap != 0):
            reason = framing.DAMAGED
            break
        if length == 0 and held > 0:
            length = held
            state[framing.UNSIZED] += 1
        if kind == ENHANCED_PACKET:
            options = position + body + ((held + 3) & ~3)
            if options < position + total - 4:
                drops = drop_count(data, options, position + total - 4, swapped)
        if drops != NOT_STATED:
            row["dropped"] = min(max(row["dropped"], 0) + drops, _MAX_DROPS)
        if time < last:
            note_disorder(state, last - time)
        last = time
        if held < length:
            state[framing.SNAPPED] += 1
        columns.offset[rows] = position + body
        columns.captured[rows] = held if row["supported"] else 0
        columns.wire[rows] = length
        columns.time_ns[rows] = time
        columns.tap[rows] = row["tap"]
        columns.link_type[rows] = row["link_type"]
        if row["link_type"] == framing.LINKTYPE_ERF:
            open_record(data, columns, rows, state)
        if row["frames"] == 0:
            row["first_ns"] = time
        before = row["last_ns"]
        if time < before and before - time > framing.CLOCK_STEP_NS:
            row["clock_steps"] += 1
        row["last_ns"] = time
        row["frames"] += 1
        rows += 1
        position += total
    state[framing.POSITION] = position
    state[framing.FRAMES] = rows
    state[framing.LAST_TIME] = last
    return reason


@kernel
def find_block(data: Bytes, start: int, end: int, at_end: bool, swapped: bool) -> tuple[bool, int]:
    """The first place from `start` with a block of a known type and two equal lengths.

    `at_end`: the capture ends at `data[end]`. Returns (False, place) when every place before
    `place` is ruled out and `place` needs more bytes to judge.
    """
    for place in range(start, end):
        left = end - place
        if left < 12:
            return False, end if at_end else place
        kind = load32(data, place, swapped)
        if kind == SECTION_HEADER:
            # The length may be in the other byte order, which only the magic number shows.
            if load32(data, place + 8, False) == 0x1A2B3C4D:
                order = False
            elif load32(data, place + 8, True) == 0x1A2B3C4D:
                order = True
            else:
                continue
        elif INTERFACE_DESCRIPTION <= kind <= ENHANCED_PACKET:
            order = swapped
        else:
            continue
        total = load32(data, place + 4, order)
        if total < 12 or total % 4 != 0 or total > MAX_PACKET_BLOCK_BYTES:
            continue
        if left < total:
            if at_end:
                continue
            return False, place
        if load32(data, place + total - 4, order) == total:
            return True, place
    return False, end


MAGIC = struct.pack("<I", SECTION_HEADER)
_BYTE_ORDER_MAGIC = 0x1A2B3C4D
_MAX_TIME_OFFSET_SECONDS = 1 << 32
_MAX_SPEED = 1 << 60
"""Bits per second; higher values are not link rates."""

# Option codes of interface descriptions (IF) and statistics (ISB).
_IF_NAME, _IF_SPEED, _IF_TSRESOL, _IF_FILTER, _IF_TSOFFSET = 2, 8, 9, 11, 14
_ISB_IFDROP, _ISB_OSDROP = 5, 7
_COMMENT = 1

_OWNER = b"owner: "  # see analyzer/pipeline/owners.py
_MAX_OWNERS = 100_000
"""Limit far above the queue pairs of one host, because a file may hold any number of comments."""
_MOST_OWNER_BYTES = 512
_MOST_NAME_BYTES = 128
_MOST_FILTER_BYTES = 512

SharedTaps = dict[tuple[str, int, int], int]
"""(name, link type, rank among interfaces of that name) -> tap, for interfaces that are one tap."""
_FURTHER = ("", -1, 0)


@dataclass(slots=True)
class _Interface:
    """State of an interface in Python; the kernel's state is a row of the table."""

    tap: int
    link_type: int
    stated: int = 0
    """Dropped frames by the latest statistics of this interface in this section."""
    dropped: int = 0
    """Dropped frames that its tap counts already."""


def section_order(head: bytes) -> str | None:
    """ "<" or ">": byte order of the section header with the first 12 bytes `head`."""
    for order in "<>":
        if struct.unpack_from(f"{order}I", head, 8)[0] == _BYTE_ORDER_MAGIC:
            return order
    return None


class PcapngFraming(Framing):
    """Blocks of a pcapng; the window stands at the first section header.

    An interface is a tap named "tap_name:interface", an only interface without a name `tap_name`;
    an interface of a later section with the same name, link type and rank among interfaces of that
    name is the same tap. Frames of an interface
    with an unsupported link type are passed on without bytes, so that frame numbers equal those of
    Wireshark, and counted as skipped.
    """

    record = "block"

    def __init__(
        self,
        window: Window,
        name: str,
        tap_name: str,
        batch_frames: int,
        taps: Taps,
        shared: SharedTaps,
        one_name: bool = False,
    ) -> None:
        """one_name: an only interface has `tap_name` as its name, also if it has its own."""
        super().__init__(window, name, batch_frames)
        self._tap_name, self._one_name = tap_name, one_name
        self._only: tuple[Tap, str] | None = None
        """The only tap so far, and its name once there is another."""
        self._all_taps = taps
        self._shared = shared
        self._order = "<"
        self._table: Array = np.zeros(4, INTERFACE_DTYPE)
        self._interfaces: list[_Interface] = []
        self._namesakes: dict[tuple[str, int], int] = {}
        self._skipped: dict[int, int] = {}
        self._last_ns: dict[int, int] = {}
        """Time of the last frame of each tap."""

    def _walk(self, columns: FrameColumns) -> int:
        while True:
            reason = walk_blocks(
                self._window.data,
                self._window.end,
                self._order == ">",
                self._table,
                len(self._interfaces),
                columns,
                self._state,
            )
            if reason == BLOCK:
                reason = self._block()
            if reason != BLOCK:
                return reason

    def _find(self, start: int) -> tuple[bool, int]:
        window = self._window
        return find_block(window.data, start, window.end, window.at_end, self._order == ">")

    def _count(self, rows: int) -> None:
        self._count_interfaces()

    def _count_interfaces(self) -> None:
        """Add the frames counted by the walk to the taps."""
        for row, interface in zip(self._table, self._interfaces, strict=False):
            if row["dropped"] != NOT_STATED:
                self._count_drops(interface, int(row["dropped"]))
            frames = int(row["frames"])
            row["frames"] = 0
            tap = self._all_taps[interface.tap]
            tap.frames += frames
            tap.clock_steps += int(row["clock_steps"])
            row["clock_steps"] = 0
            self._last_ns[interface.tap] = int(row["last_ns"])
            if frames and not self.counts.frames and tap.first_time_ns is None:
                tap.first_time_ns = int(row["first_ns"])
            if frames and not row["supported"]:
                skipped = self._skipped.get(interface.link_type, 0)
                self._skipped[interface.link_type] = skipped + frames

    def _conclude(self) -> None:
        super()._conclude()
        self._count_interfaces()
        counts = self.counts
        for link_type, frames in self._skipped.items():
            counts.warnings.append(
                f"{self._name}: {frames} frames skipped: {framing.why_unsupported(link_type)}"
            )
        untimed = int(self._state[UNTIMED])
        if untimed:
            counts.warnings.append(
                f"{self._name}: {untimed} simple packet blocks carry no time;"
                " they get the time of the previous frame"
            )

    def _batch(self, columns: FrameColumns) -> FrameBatch:
        batch = super()._batch(columns)
        self.counts.skipped_frames += sum(self._skipped.values())
        return batch

    def _why_skipped(self) -> str:
        for link_type in self._skipped:
            return framing.why_unsupported(link_type)
        return super()._why_skipped()

    def _block(self) -> int:
        """Read the section header, interface description or statistics at state[POSITION]."""
        window = self._window
        at = int(self._state[POSITION])
        left = window.end - at
        head = window.data[at : at + 12].tobytes()
        is_section = head.startswith(MAGIC)
        order = section_order(head) if is_section else self._order
        if order is None:
            return DAMAGED
        kind, total = struct.unpack_from(f"{order}II", head)
        if total < 12 or total % 4 or total > MAX_PACKET_BLOCK_BYTES:
            return DAMAGED
        if left < total:
            self._state[NEED] = total
            return NEED_BYTES
        block = window.data[at : at + total].tobytes()
        if struct.unpack_from(f"{order}I", block, total - 4)[0] != total:
            return DAMAGED
        body = block[8:-4]
        if is_section:
            good = self._section(order, body)
        elif kind == INTERFACE_DESCRIPTION:
            good = self._interface(body)
        else:
            good = self._statistics(body)
        if not good:
            return DAMAGED
        self._state[POSITION] = at + total
        return BLOCK

    def _section(self, order: str, body: bytes) -> bool:
        if len(body) < 16:
            return False
        self._count_interfaces()
        comments = self.counts.owner_comments
        for code, value in _options(body[16:], order):
            if (
                code == _COMMENT
                and value.startswith(_OWNER)
                and len(value) <= _MOST_OWNER_BYTES
                and len(comments) < _MAX_OWNERS
            ):
                comments.append(_text(value))
        self._order = order
        self._interfaces.clear()
        self._namesakes.clear()
        return True

    def _interface(self, body: bytes) -> bool:
        if len(body) < 8:
            return False
        order = self._order
        link_type, _reserved, snap_length = struct.unpack_from(f"{order}HHI", body)
        link_type = framing.canonical(link_type)
        options = dict(_options(body[8:], order))
        index = len(self._interfaces)
        name = _text(options.get(_IF_NAME, b"")[:_MOST_NAME_BYTES]) or str(index)
        nth = self._namesakes.get((name, link_type), 0)
        self._namesakes[name, link_type] = nth + 1
        tap = self._shared.get((name, link_type, nth))
        if tap is None and self._all_taps.are_many:
            tap = self._tap_of_further(link_type)
        elif tap is None:
            tap = self._new_tap(name, link_type, snap_length, options)
            self._shared[name, link_type, nth] = tap
        if index == len(self._table):
            self._table = np.concatenate([self._table, np.zeros_like(self._table)])
        self._interfaces.append(_Interface(tap, link_type))
        binary, exponent, factor = _resolution(options.get(_IF_TSRESOL))
        offset_ns = self._time_offset_ns(name, options.get(_IF_TSOFFSET))
        self._table[index] = (
            tap,
            link_type,
            framing.supported(link_type),
            snap_length,
            binary,
            exponent,
            factor,
            _most_ticks(exponent, factor, offset_ns),
            offset_ns,
            0,
            0,
            NO_TIME if tap == self._shared.get(_FURTHER) else self._last_ns.get(tap, NO_TIME),
            0,
            NOT_STATED,
        )
        return True

    def _tap_of_further(self, link_type: int) -> int:
        """The tap of all interfaces after the first MANY_TAPS."""
        if _FURTHER not in self._shared:
            tap = self._shared[_FURTHER] = self._new_tap("further interfaces", link_type, 0, {})
            self._all_taps.items[tap].shared = True
            self.counts.warnings.append(
                f"{self._name}: more than {MANY_TAPS} interfaces: further interfaces count as one"
            )
        return self._shared[_FURTHER]

    def _new_tap(self, name: str, link_type: int, snap: int, options: dict[int, bytes]) -> int:
        speed = options.get(_IF_SPEED, b"")
        tap = Tap(
            f"{self._tap_name}:{name}",
            framing.link_type_of_tap(link_type),
            snap_length=snap or None,
            filter=_filter(options.get(_IF_FILTER)),
        )
        if (self._one_name or not options.get(_IF_NAME)) and not self._shared:
            self._only = tap, tap.name
            tap.name = self._tap_name
        elif self._only is not None:
            first, first_name = self._only
            first.name, self._only = first_name, None
        if len(speed) == 8:
            rate: int = struct.unpack(f"{self._order}Q", speed)[0]
            tap.speed_bits_per_second = rate if 0 < rate <= _MAX_SPEED else None
        try:
            return self._all_taps.add(tap)
        except ValueError as error:
            raise UnreadableInput(f"{self._name}: {error}; analyse fewer files at once") from None

    def _time_offset_ns(self, name: str, value: bytes | None) -> int:
        if value is None or len(value) != 8:
            return 0
        seconds: int = struct.unpack(f"{self._order}q", value)[0]
        if abs(seconds) > _MAX_TIME_OFFSET_SECONDS:
            self.counts.warnings.append(
                f"{self._name}:{name} states a time offset of {seconds} s, which is ignored"
            )
            return 0
        return seconds * 1_000_000_000

    def _statistics(self, body: bytes) -> bool:
        if len(body) < 12:
            return False
        index = struct.unpack_from(f"{self._order}I", body)[0]
        if index >= len(self._interfaces):
            return False
        drops = [
            struct.unpack(f"{self._order}Q", value)[0]
            for code, value in _options(body[12:], self._order)
            if code in (_ISB_IFDROP, _ISB_OSDROP) and len(value) == 8
        ]
        drops = [count for count in drops if count < _MAX_DROPS]
        if drops:
            self._interfaces[index].stated = sum(drops)
            self._count_drops(self._interfaces[index], int(self._table[index]["dropped"]))
        return True

    def _count_drops(self, interface: _Interface, of_packets: int) -> None:
        """Update the dropped frames of the tap of an interface.

        Statistics count since the start of the section: the latest are the total. The drop counts
        of its packets count the same frames again.
        """
        total = max(interface.stated, of_packets)
        tap = self._all_taps[interface.tap]
        tap.dropped = (tap.dropped or 0) + total - interface.dropped
        interface.dropped = total


def _options(data: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    """(code, value) of each option; ends at the first invalid one."""
    at = 0
    while at + 4 <= len(data):
        code, length = struct.unpack_from(f"{order}HH", data, at)
        at += 4
        if code == 0 or at + length > len(data):
            return
        yield code, data[at : at + length]
        at += length + -length % 4


def _text(value: bytes | None) -> str:
    """Text of an option on one line; "" when absent."""
    text = (value or b"").rstrip(b"\x00").decode("utf-8", "replace")
    return "".join(c if c.isprintable() else "?" for c in text)


def _filter(value: bytes | None) -> str | None:
    """The expression of a capture filter; a program of BPF instructions has none."""
    if not value or len(value) == 1:
        return None
    if value[0] != 0:
        return "a BPF program"
    return _text(value[1:_MOST_FILTER_BYTES]) or None


def _resolution(value: bytes | None) -> tuple[int, int, int]:
    """(binary, exponent, factor) of INTERFACE_DTYPE for an if_tsresol option."""
    resolution = value[0] if value else 6
    exponent = resolution & 0x7F
    if resolution & 0x80:
        return 1, exponent, 1
    factor = 10 ** abs(9 - exponent)
    return 0, exponent, factor if factor < 1 << 64 else 0


def _most_ticks(exponent: int, factor: int, offset_ns: int) -> int:
    """The last decimal timestamp that fits int64 ns (all where `factor` overflowed)."""
    last = (1 << 64) - 1
    limit = TIME_MAX - max(offset_ns, 0)
    if exponent <= 9:
        return limit // factor
    return min(limit * factor, last) if factor else last
