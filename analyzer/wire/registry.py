"""The registry of one analysis: addresses and SRv6 segment lists by number, and the taps."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address

import numpy as np
from numpy.typing import NDArray

from ...kernels.kernel import Int32s, Ints, NamedTuple, UInt64s, inlined, kernel
from ..errors import UsageError
from .taps import Link, Taps

# Random keys of hash tables: no capture can force collisions.


def salt(words: int) -> NDArray[np.uint64]:
    """uint64[words] of system randomness; the module `secrets` loads more slowly."""
    return np.frombuffer(os.urandom(8 * words), np.uint64).copy()


# Interned network addresses: every address of an analysis has a small index.
#
# Kernels look addresses up and add them while they run; Python only grows the table between runs.
# IPv4 addresses are kept as ::ffff:a.b.c.d, so an IPv4 host and its RoCE GID are one endpoint. A
# running analysis numbers a limited count of addresses: a sender may forge a new one in every
# packet.

IPV4_MAPPED = 0xFFFF << 32
"""Upper half of the low 64 bits of ::ffff:a.b.c.d."""
MOST_ADDRESSES = 1 << 18
"""Limit of a running analysis: 6 MB of addresses, and some 30 MB as text."""
_NO_LIMIT = 1 << 31


class EndpointArrays(NamedTuple):
    """The table for kernels: open addressing with linear probing."""

    slots: Int32s
    """int32[power of two]: index of the address in this slot, -1 when free."""
    high: UInt64s
    """uint64[len(slots) / 2]: first eight bytes of each address, in order of appearance."""
    low: UInt64s
    """uint64[len(slots) / 2]: last eight bytes."""
    used: Ints
    """int64[1]: addresses in use."""
    most: Ints
    """int64[1]: `most - 1` is the index of all further addresses, and its text `::`."""
    key: UInt64s
    """uint64[2], random: no capture can force collisions."""


@inlined
def _slot_of(high: np.uint64, low: np.uint64, arrays: EndpointArrays) -> np.uint64:
    h = (low ^ arrays.key[0]) * np.uint64(0x9E3779B97F4A7C15)
    h ^= h >> np.uint64(32)
    h = (h ^ high ^ arrays.key[1]) * np.uint64(0xD6E8FEB86659FD93)
    h ^= h >> np.uint64(32)
    return np.uint64(h & np.uint64(len(arrays.slots) - 1))


@inlined
def intern(high: np.uint64, low: np.uint64, arrays: EndpointArrays) -> np.int64:
    """Index of an address, added when new. The caller has checked `has_room`."""
    mask = np.uint64(len(arrays.slots) - 1)
    slot = _slot_of(high, low, arrays)
    while True:
        index = np.int64(arrays.slots[slot])
        if index < 0:
            index = np.int64(arrays.used[0])
            if index >= arrays.most[0] - 1:
                arrays.used[0] = arrays.most[0]
                return np.int64(arrays.most[0] - 1)
            arrays.slots[slot] = index
            arrays.high[index] = high
            arrays.low[index] = low
            arrays.used[0] = index + 1
            return index
        if arrays.low[index] == low and arrays.high[index] == high:
            return index
        slot = (slot + np.uint64(1)) & mask


@inlined
def has_room(arrays: EndpointArrays, addresses: int) -> bool:
    """Whether this many more addresses fit before Python must grow the table."""
    most = min(arrays.used[0] + addresses, arrays.most[0])
    return bool(most <= len(arrays.high))


@kernel
def _refill(high: UInt64s, low: UInt64s, arrays: EndpointArrays) -> None:
    for i in range(len(high)):
        intern(high[i], low[i], arrays)


@kernel
def _find(high: np.uint64, low: np.uint64, arrays: EndpointArrays) -> np.int64:
    mask = np.uint64(len(arrays.slots) - 1)
    slot = _slot_of(high, low, arrays)
    while True:
        index = np.int64(arrays.slots[slot])
        if index < 0 or (arrays.low[index] == low and arrays.high[index] == high):
            return index
        slot = (slot + np.uint64(1)) & mask


def _halves(text: str) -> tuple[np.uint64, np.uint64]:
    try:
        address = ip_address(text)
    except ValueError:
        raise UsageError(f"{text!r} is not an IPv4 or IPv6 address") from None
    value = int(address)
    if isinstance(address, IPv4Address):
        value |= IPV4_MAPPED
    return np.uint64(value >> 64), np.uint64(value & 0xFFFF_FFFF_FFFF_FFFF)


class Endpoints:
    """The addresses seen so far, numbered in order of first appearance.

    One thread at a time may add addresses; reading is safe from any thread. `most`: with this many,
    all further addresses have one index, `beyond`.
    """

    def __init__(self, capacity: int = 1024, most: int | None = None) -> None:
        self.beyond = None if most is None else most - 1
        """The index of all addresses beyond the limit; None without a limit."""
        limit = np.array([_NO_LIMIT if most is None else most], np.int64)
        self.arrays = self._allocate(max(2, capacity), salt(2), limit)
        """The arrays for a kernel; `grow` replaces them."""
        self._texts: list[str] = []

    @staticmethod
    def _allocate(capacity: int, key: UInt64s, most: Ints) -> EndpointArrays:
        rows = 1 << (capacity - 1).bit_length()
        return EndpointArrays(
            np.full(rows * 2, -1, np.int32),
            np.zeros(rows, np.uint64),
            np.zeros(rows, np.uint64),
            np.zeros(1, np.int64),
            most,
            key,
        )

    def grow(self) -> None:
        """Double the capacity. Indices do not change."""
        old, count = self.arrays, len(self)
        new = self._allocate(len(old.high) * 2, old.key, old.most)
        _refill(old.high[:count], old.low[:count], new)
        self.arrays = new

    def add(self, text: str) -> int:
        """Index of an address, added when new."""
        high, low = _halves(text)
        index = int(_find(high, low, self.arrays))
        if index < 0:
            if len(self.arrays.high) == len(self) < int(self.arrays.most[0]):
                self.grow()
            _refill(np.array([high]), np.array([low]), self.arrays)
            index = len(self) - 1
        return index

    def index_of(self, text: str) -> int | None:
        """Index of an address; None when no packet has it. UsageError when it is not an address."""
        index = int(_find(*_halves(text), self.arrays))
        return None if index < 0 else index

    def packed(self, index: int) -> int:
        """The address as a 128-bit number."""
        if not 0 <= index < len(self):
            raise IndexError(f"no endpoint {index}")
        return int(self.arrays.high[index]) << 64 | int(self.arrays.low[index])

    def text(self, index: int) -> str:
        """The address as text: `10.0.0.1`, `2001:db8::1`."""
        value = self.packed(index)
        if value & ~0xFFFF_FFFF == IPV4_MAPPED:
            return str(IPv4Address(value & 0xFFFF_FFFF))
        return str(IPv6Address(value))

    def texts(self) -> list[str]:
        """All addresses as text, in order of their index."""
        known = self._texts
        texts = [*known, *map(self.text, range(len(known), len(self)))]
        self._texts = texts
        return texts.copy()

    def __len__(self) -> int:
        return int(self.arrays.used[0])


# Interned segment lists of SRv6: each different one has a number, like an address.
#
# Source: RFC 9800 (compressed SIDs), F3216: 32-bit block, 16-bit uSIDs.

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


def address_text(address: int) -> str:
    """`02:66:2d:25:06:99`."""
    return address.to_bytes(6).hex(":")


_ETHER = re.compile(r"([0-9A-Fa-f]{1,2})" + r"[:.-]([0-9A-Fa-f]{1,2})" * 5 + r"\s+(\S+)")
_MOST_ETHERS_BYTES = 1 << 24


def read_ethers(path: str) -> dict[int, str]:
    """The names of Ethernet addresses in a file as ethers(5) and Wireshark have it.

    A line has an address and a name, here of a device (`leaf1`) or its port (`leaf1:swp3`); `#`
    begins a comment. UsageError if the file cannot be read, or for the first line that is wrong.
    """
    try:
        with open(path, "rb") as file:
            text = file.read(_MOST_ETHERS_BYTES + 1)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"--ethers {path}: {reason}") from None
    if len(text) > _MOST_ETHERS_BYTES:
        raise UsageError(f"--ethers {path}: larger than 16 MiB: is it a file of names?")
    names: dict[int, str] = {}
    for number, raw in enumerate(text.split(b"\n"), 1):
        line = raw.decode("utf-8", "replace").partition("#")[0].strip()
        if not line:
            continue
        match = _ETHER.fullmatch(line)
        if match is None:
            raise UsageError(
                f"--ethers {path}: line {number} is {line[:60]!r}, not an address and a name, such"
                " as 02:66:2d:25:06:99 leaf1"
            )
        address = int.from_bytes(bytes(int(match[n], 16) for n in range(1, 7)))
        if names.setdefault(address, match[7]) != match[7]:
            raise UsageError(
                f"--ethers {path}: line {number} names {address_text(address)}"
                f" {match[7][:60]!r}, an earlier line {names[address][:60]!r}"
            )
    return names


@dataclass(frozen=True, slots=True)
class Registry:
    """The addresses, vantage points and segment lists of an analysis.

    Columns `src`, `dst`, `tap` and `path_evidence` of its packet tables are numbers of these.
    """

    endpoints: Endpoints = field(default_factory=Endpoints)
    taps: Taps = field(default_factory=Taps)
    segments: SegmentLists = field(default_factory=SegmentLists)
    ethers: Mapping[int, str] = field(default_factory=dict)
    """Names of Ethernet addresses: `leaf1`, or with a port `leaf1:swp3`."""
    advertised: dict[int, str] = field(default_factory=dict)
    """The same as frames of LLDP and CDP tell; `ethers` takes precedence."""
    devices: dict[int, str] = field(default_factory=dict)
    """Devices by Ethernet address, as far as the packets so far show them (`name_links`)."""

    def device_named(self, address: int) -> str:
        """The device that has an address, as `ethers` or a frame of its own names it; "" for
        none."""
        named = self.ethers.get(address) or self.advertised.get(address, "")
        return named.partition(":")[0]

    @property
    def tap_names(self) -> list[str]:
        return [tap.name for tap in self.taps.items]


DIVIDER = " | "
"""Between the ends of a link whose names may hold signs that separate the parts of other names."""


def name_links(registry: Registry, device_of: Mapping[int, str] | None = None) -> None:
    """Name each link of a capture with several by its two ends: `leaf1-spine3`, or with other signs
    than letters and digits `10.0.1.1 | pod3-leaf1`.

    device_of: names of the devices that have an Ethernet address, where more is known than the
    address itself. A tap of a switched link keeps its name.
    """
    registry.devices.update(device_of or {})
    tap_of: dict[str, int] = {}
    for tap, shown in enumerate(registry.taps.items):
        link = shown.link
        if link is None or not link.is_one_of_several:
            continue
        ends = _ends_of(link, registry)
        if len(ends) != 2:
            continue
        name = (DIVIDER if any(not end.isalnum() for end in ends) else "-").join(ends)
        if name in tap_of:
            name += f" ({address_text(link.addresses[0])})"
        tap_of[name] = tap
    others = {tap.name for n, tap in enumerate(registry.taps.items) if n not in tap_of.values()}
    for name, tap in tap_of.items():
        registry.taps[tap].name = name if name not in others else f"{name} (tap {tap})"


def _ends_of(link: Link, registry: Registry) -> list[str]:
    """The host and the router of a link, or two routers by name; other numbers if it is neither."""
    hosts, routers = dict[str, None](), dict[str, None]()
    for address in link.addresses:
        known = registry.device_named(address)
        if address in link.hosts:
            hosts[known or registry.endpoints.text(link.hosts[address])] = None
        else:
            routers[known or registry.devices.get(address, address_text(address))] = None
    return [*hosts, *routers] if hosts else sorted(routers)
