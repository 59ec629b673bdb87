"""Interned segment lists of SRv6: each different one has a number, like an address.

Source: RFC 9800 (compressed SIDs), F3216: 32-bit block, 16-bit uSIDs.
"""

from __future__ import annotations

from ipaddress import IPv6Address

from ...kernels.named import NamedTuple
from ..errors import UsageError
from .endpoints import EndpointArrays, Endpoints

MAX_PATHS = 1 << 16
"""Most segment lists with their own number; further lists share `OTHER`."""
OTHER = MAX_PATHS + 1


class UsidFormat(NamedTuple):
    """Structure of a carrier: lengths of block and uSID."""

    block_bits: int = 32
    usid_bits: int = 16


def parse_usid_format(text: str) -> UsidFormat:
    """`32:16`: bits of the locator block and of a uSID, multiples of 8; UsageError otherwise."""
    parts = text.split(":")
    if len(parts) == 2 and all(part.isdecimal() for part in parts):
        block, usid = map(int, parts)
        if 8 <= block <= 96 and usid in (8, 16, 24, 32) and block % 8 == 0:
            return UsidFormat(block, usid)
    raise UsageError(
        f"{text!r} is not a uSID format: give bits of block and uSID, multiples of 8, such as 32:16"
    )


class SegmentArrays(NamedTuple):
    """The interned segment lists for kernels."""

    segments: EndpointArrays
    """Carriers and other SIDs, 128 bits each."""
    lists: EndpointArrays
    """A list is (number of the list before it, index of its last segment); numbers from 1."""


class SegmentLists:
    """The segment lists seen so far, numbered from 1; one thread at a time may add."""

    def __init__(self, usid: UsidFormat | None = None) -> None:
        self.usid = usid or UsidFormat()
        self._segments = Endpoints()
        self._lists = Endpoints()

    def __len__(self) -> int:
        return len(self._lists)

    @property
    def arrays(self) -> SegmentArrays:
        """The arrays for a kernel; `make_room` replaces them."""
        return SegmentArrays(self._segments.arrays, self._lists.arrays)

    def make_room(self, lists: int) -> None:
        """Grow for this many more lists, up to MAX_PATHS."""
        while min(len(self._lists) + lists, MAX_PATHS) > self._room():
            self._segments.grow()
            self._lists.grow()

    def _room(self) -> int:
        return min(len(self._segments.arrays.high), len(self._lists.arrays.high))

    def add(self, segments: tuple[int, ...]) -> int:
        """The number of a list of 128-bit segments, created when new."""
        number = 0
        for segment in segments:
            if self._room() < MAX_PATHS and len(self._lists) + 1 > self._room() // 2:
                self._segments.grow()
                self._lists.grow()
            index = self._segments.add(str(IPv6Address(segment)))
            number = self._lists.add(str(IPv6Address(number << 64 | index))) + 1
        return number

    def segments(self, number: int) -> tuple[int, ...]:
        """The 128-bit segments of a list, the active one first."""
        segments: list[int] = []
        while number:
            entry = self._lists.packed(number - 1)
            segments.append(self._segments.packed(entry & (1 << 64) - 1))
            number = entry >> 64
        return tuple(reversed(segments))

    def usids(self, carrier: int) -> tuple[str, list[str], int]:
        """(block, remaining uSIDs, empty places after them) of a carrier."""
        block_bits, usid_bits = self.usid
        digits = f"{carrier:032x}"
        head = digits[: block_bits // 4]
        block = ":".join(f"{int(head[i : i + 4], 16):x}" for i in range(0, len(head), 4))
        step = usid_bits // 4
        places = range(len(head), len(digits) - step + 1, step)
        usids = [digits[i : i + step] for i in places]
        left = len(usids)
        while left and not int(usids[left - 1], 16):
            left -= 1
        return block, usids[:left], len(usids) - left

    def name(self, number: int) -> str:
        """`fcbb:bb00:0101:0201:f001`: block and remaining uSIDs; further segments after ` > `."""
        if number == OTHER:
            return "other"
        if not number:
            return "no segments"
        if number > len(self):
            return f"segment list {number}"
        parts = []
        for segment in self.segments(number):
            block, usids, _ = self.usids(segment)
            parts.append(":".join([block, *usids]))
        return " > ".join(parts)

    def names(self) -> list[str]:
        """The name of every number from 0 on."""
        return [self.name(number) for number in range(len(self) + 1)]
