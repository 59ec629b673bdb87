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

from ...kernels.kernel import Array
from ..errors import UnreadableInput
from ..wire.frames import FrameColumns
from ..wire.taps import MANY_TAPS, Tap, Taps
from . import linktypes, pcapng_walk
from .framing import DAMAGED, NEED, NEED_BYTES, NO_TIME, POSITION, UNTIMED, Framing
from .pcapng_walk import BLOCK, find_block, walk_blocks
from .window import Window

MAGIC = struct.pack("<I", pcapng_walk.SECTION_HEADER)
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
    dropped: int | None = None
    """Latest drop counter of this interface in this section."""


def section_order(head: bytes) -> str | None:
    """ "<" or ">": byte order of the section header with the first 12 bytes `head`."""
    for order in "<>":
        if struct.unpack_from(f"{order}I", head, 8)[0] == _BYTE_ORDER_MAGIC:
            return order
    return None


class PcapngFraming(Framing):
    """Blocks of a pcapng; the window stands at the first section header.

    An interface is a tap named "tap_name:interface"; an interface of a later section with the same
    name, link type and rank among interfaces of that name is the same tap. Frames of an interface
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
        """one_name: an only interface has `tap_name` as its name."""
        super().__init__(window, name, batch_frames)
        self._tap_name, self._one_name = tap_name, one_name
        self._only: tuple[Tap, str] | None = None
        """The only tap so far, and its name once there is another."""
        self._all_taps = taps
        self._shared = shared
        self._order = "<"
        self._table: Array = np.zeros(4, pcapng_walk.INTERFACE_DTYPE)
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
                self.counts.skipped_frames += frames
                skipped = self._skipped.get(interface.link_type, 0)
                self._skipped[interface.link_type] = skipped + frames

    def _conclude(self) -> None:
        super()._conclude()
        self._count_interfaces()
        counts = self.counts
        for link_type, frames in self._skipped.items():
            counts.warnings.append(
                f"{self._name}: {frames} frames skipped: {linktypes.why_unsupported(link_type)}"
            )
        untimed = int(self._state[UNTIMED])
        if untimed:
            counts.warnings.append(
                f"{self._name}: {untimed} simple packet blocks carry no time;"
                " they get the time of the previous frame"
            )

    def _require_supported(self) -> None:
        counts = self.counts
        if counts.frames and counts.skipped_frames == counts.frames:
            raise UnreadableInput(
                f"{self._name}: {linktypes.why_unsupported(next(iter(self._skipped)))}"
            )

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
        if total < 12 or total % 4 or total > pcapng_walk.MAX_PACKET_BLOCK_BYTES:
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
        elif kind == pcapng_walk.INTERFACE_DESCRIPTION:
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
        link_type = linktypes.canonical(link_type)
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
            linktypes.supported(link_type),
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
            link_type,
            snap_length=snap or None,
            filter=_filter(options.get(_IF_FILTER)),
        )
        if self._one_name and not self._shared:
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
        if drops:
            # The counters start with the section: the latest one is the total.
            interface = self._interfaces[index]
            tap = self._all_taps[interface.tap]
            tap.dropped = (tap.dropped or 0) + sum(drops) - (interface.dropped or 0)
            interface.dropped = sum(drops)
        return True


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
    limit = pcapng_walk.TIME_MAX - max(offset_ns, 0)
    if exponent <= 9:
        return limit // factor
    return min(limit * factor, last) if factor else last
