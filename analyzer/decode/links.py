"""The links in one tap: each pair of Ethernet addresses becomes a tap of its own.

A router rewrites both addresses of a frame: a mirror of several ports, or of several VLANs, shows
each link as a pair of addresses. Switches without routing rewrite nothing: all their cables look
like one link.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...kernels.kernel import Int, Int32s, Ints, NamedTuple, UInt64s, inlined, kernel
from ..wire.packets import FULL_HOP_LIMITS, I64, LINKTYPE_ETHERNET, U8, FrameBatch, PacketTable
from ..wire.registry import Registry, name_links, salt
from ..wire.taps import Link, Tap
from .counters import DecodeCounters
from .headers import be16, be32, be64

MOST_PAIRS = 1 << 12
"""Pairs of addresses that a capture keeps apart: a sender may forge addresses. Frames of further
pairs stay at the tap that carries them."""
MOST_LINKS = 256
"""Taps that the links of one capture make: tables of taps against taps grow with the square."""
_MOST_SENDERS = 1 << 14
"""Senders by pair and direction that a capture keeps."""
_UNKNOWN = -1

LOW_BEGINS, LOW_FORWARDS, HIGH_BEGINS, HIGH_FORWARDS = 1, 2, 4, 8
"""Bits of a pair: its lower (or higher) address sends packets with a full hop limit, as hosts do,
or with a lower one, as routers do."""
_IS_FULL: Final[U8] = np.zeros(256, np.uint8)
_IS_FULL[list(FULL_HOP_LIMITS)] = 1


class PairArrays(NamedTuple):
    """The pairs for kernels: open addressing with linear probing."""

    slots: Int32s
    """int32[2 * MOST_PAIRS]: number of a pair, -1 when free."""
    keys: I64
    """int64[MOST_PAIRS, 3]: tap, lower and higher address."""
    bits: Ints
    """int64[MOST_PAIRS]: LOW_BEGINS and so on."""
    hosts: Ints
    """int64[MOST_PAIRS, 2]: the first endpoint whose packets begin at either address, -1."""
    sender_slots: I64
    """int64[2 * _MOST_SENDERS]: 1 + (endpoint << 13 | pair << 1 | direction), 0 when free."""
    senders: I64
    """int64[_MOST_SENDERS]: the same without the 1, in order of appearance."""
    used: Ints
    """int64[2]: pairs and senders in use."""
    key: UInt64s
    """uint64[2], random: no capture can force collisions."""


@inlined
def _mixed(a: np.uint64, b: np.uint64, arrays: PairArrays) -> np.uint64:
    h = (a ^ arrays.key[0]) * np.uint64(0x9E3779B97F4A7C15)
    h ^= h >> np.uint64(32)
    h = (h ^ b ^ arrays.key[1]) * np.uint64(0xD6E8FEB86659FD93)
    return np.uint64(h ^ (h >> np.uint64(32)))


@inlined
def hash_of_pair(data: U8, at: Int) -> np.uint64:
    """A hash of the two addresses of the Ethernet header at `at`, in whatever order; never 0."""
    words = be64(data, at)
    to = words >> np.uint64(16)
    sent_by = ((words & np.uint64(0xFFFF)) << np.uint64(32)) | np.uint64(be32(data, at + 8))
    to *= np.uint64(0x9E3779B97F4A7C15)
    sent_by *= np.uint64(0x9E3779B97F4A7C15)
    mixed = (to ^ (to >> np.uint64(29))) + (sent_by ^ (sent_by >> np.uint64(29)))
    return np.uint64(mixed | np.uint64(1))


@inlined
def _pair_of(tap: Int, low: Int, high: Int, arrays: PairArrays) -> Int:
    """Number of a pair, added when new; -1 when there is no room."""
    mask = np.uint64(len(arrays.slots) - 1)
    mixed = _mixed(np.uint64(low) | (np.uint64(tap) << np.uint64(48)), np.uint64(high), arrays)
    slot = mixed & mask
    while True:
        n = np.int64(arrays.slots[slot])
        if n < 0:
            n = arrays.used[0]
            if n == len(arrays.keys):
                return np.int64(_UNKNOWN)
            arrays.slots[slot] = n
            arrays.keys[n, 0], arrays.keys[n, 1], arrays.keys[n, 2] = tap, low, high
            arrays.used[0] += 1
            return np.int64(n)
        if arrays.keys[n, 1] == low and arrays.keys[n, 2] == high and arrays.keys[n, 0] == tap:
            return n
        slot = (slot + np.uint64(1)) & mask


@inlined
def _note_sender(source: Int, pair: Int, way: Int, arrays: PairArrays) -> None:
    """Remember in which direction the packets of an endpoint pass a pair."""
    entry = (source << 13) | (pair << 1) | way
    mask = np.uint64(len(arrays.sender_slots) - 1)
    slot = _mixed(np.uint64(entry), np.uint64(0), arrays) & mask
    while arrays.sender_slots[slot] != 0:
        if arrays.sender_slots[slot] == entry + 1:
            return
        slot = (slot + np.uint64(1)) & mask
    n = arrays.used[1]
    if n < len(arrays.senders):
        arrays.sender_slots[slot] = entry + 1
        arrays.senders[n] = entry
        arrays.used[1] += 1


@kernel
def number_pairs(
    data: U8,
    begin: I64,
    ethernet: I64,
    tap: NDArray[np.uint16],
    source: NDArray[np.uint32],
    hop_limit: U8,
    arrays: PairArrays,
    with_senders: bool,
    pairs: Int32s,
) -> None:
    """Fill `pairs`, int32[rows], with the number of each row's pair of Ethernet addresses.

    ethernet: position in `data` of the Ethernet header of each row, with which it crossed the link,
    at least 12 bytes of it captured; -1 for none. begin: of its frame; elsewhere than `ethernet`
    the packet is in a tunnel, and its hop limit tells nothing about the link.
    """
    last: Int = np.int64(_UNKNOWN)
    last_tap: Int = np.int64(-1)
    last_low: Int = np.int64(-1)
    last_high: Int = np.int64(-1)
    last_sender = np.int64(-1)
    for i in range(len(ethernet)):
        at = ethernet[i]
        if at < 0:
            pairs[i] = _UNKNOWN
            continue
        to = (be32(data, at) << 16) | be16(data, at + 4)
        sent_by = (be16(data, at + 6) << 32) | be32(data, at + 8)
        low, high = min(to, sent_by), max(to, sent_by)
        t = np.int64(tap[i])
        if low != last_low or high != last_high or t != last_tap:
            last = _pair_of(t, low, high, arrays)
            last_tap, last_low, last_high = t, low, high
        pairs[i] = last
        if last < 0:
            continue
        way = np.int64(0) if sent_by == low else np.int64(1)
        bit = 1 if _IS_FULL[hop_limit[i]] and begin[i] == at else 2
        arrays.bits[last] |= bit << (2 * way)
        if bit == 1 and arrays.hosts[last, way] < 0:
            arrays.hosts[last, way] = source[i]
        sender = (np.int64(source[i]) << 13) | (last << 1) | way
        if with_senders and sender != last_sender:
            _note_sender(np.int64(source[i]), last, way, arrays)
            last_sender = sender


class Links:
    """The links of one capture and their taps."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._arrays = PairArrays(
            np.full(2 * MOST_PAIRS, -1, np.int32),
            np.zeros((MOST_PAIRS, 3), np.int64),
            np.zeros(MOST_PAIRS, np.int64),
            np.full((MOST_PAIRS, 2), -1, np.int64),
            np.zeros(2 * _MOST_SENDERS, np.int64),
            np.zeros(_MOST_SENDERS, np.int64),
            np.zeros(2, np.int64),
            salt(2),
        )
        self._tap_of_pair = np.zeros(0, np.uint16)
        self._taps_of: dict[int, list[int]] = {}
        """By tap that carries the frames: the taps of its links."""
        self._tap_of: dict[tuple[int, object], int] = {}
        """By carrying tap and what tells a link apart: its tap."""
        self._known_bits = np.zeros(0, np.int64)
        self._senders = 0
        self.overflowed = False
        """Whether links share a tap because there were more than `MOST_LINKS`."""

    def __len__(self) -> int:
        """Pairs of addresses so far."""
        return len(self._tap_of_pair)

    def assign(
        self,
        table: PacketTable,
        data: U8,
        base_offset: int,
        ethernet: I64,
        counters: DecodeCounters,
    ) -> None:
        """Move the rows of each further link to a tap of its own; changes `table.tap`.

        data, ethernet: as of `number_pairs`. base_offset: offset in the capture of `data[0]`.
        counters: count the rows at their new taps.
        """
        pairs = np.empty(len(table), np.int32)
        begin = table.file_offset - base_offset

        def number(with_senders: bool) -> None:
            number_pairs(
                data, begin, ethernet, table.tap, table.src, table.hop_limit, self._arrays,
                with_senders, pairs,
            )  # fmt: skip

        several = self._are_several
        number(several)
        used = int(self._arrays.used[0])
        if used > len(self._tap_of_pair) or not np.array_equal(
            self._arrays.bits[:used], self._known_bits
        ):
            self._decide(used)
        if self._are_several:
            if not several:
                number(True)
            self._learn_directions()
            numbered = pairs >= 0
            before = np.bincount(table.tap, minlength=len(self._registry.taps))
            table.tap[numbered] = self._tap_of_pair[pairs[numbered]]
            counters.move_roce(np.bincount(table.tap, minlength=len(before)) - before)

    @property
    def _are_several(self) -> bool:
        """Whether a tap shows several links."""
        return any(len(taps) > 1 for taps in self._taps_of.values())

    def _decide(self, used: int) -> None:
        """The taps of pairs that are new, by all that is known of their addresses."""
        keys, bits = self._arrays.keys[:used].tolist(), self._arrays.bits[:used].tolist()
        begins, forwards = set[tuple[int, int]](), set[tuple[int, int]]()
        for (tap, *addresses), known in zip(keys, bits, strict=True):
            for side, address in enumerate(addresses):
                if known >> (2 * side) & LOW_BEGINS:
                    begins.add((tap, address))
                if known >> (2 * side) & LOW_FORWARDS:
                    forwards.add((tap, address))
        hosts = begins - forwards
        taps = self._tap_of_pair.tolist()
        for n, (tap, low, high) in enumerate(keys):
            ends = [address for address in (low, high) if (tap, address) in hosts]
            kind: object = (low, high) if not ends else ends[0] if len(ends) == 1 else "switched"
            if (tap, kind) not in self._tap_of:
                self._tap_of[tap, kind] = taps[n] if n < len(taps) else self._new_tap(tap)
            if n == len(taps):
                taps.append(self._tap_of[tap, kind])
            link = self._link_at(taps[n])
            for side, address in enumerate((low, high)):
                link.note(address, address in ends, int(self._arrays.hosts[n, side]))
        self._tap_of_pair = np.array(taps, np.uint16)
        self._known_bits = self._arrays.bits[:used].copy()
        self._name()

    def _new_tap(self, carrier: int) -> int:
        """A tap for a further link; the first link keeps that of its frames."""
        taps, links = self._registry.taps, self._taps_of.setdefault(carrier, [])
        if links and (taps.are_many or len(links) == MOST_LINKS):
            self.overflowed = True
            taps[carrier].shared = True
            return carrier
        if links:
            first = taps[carrier]
            links.append(
                taps.add(
                    Tap(
                        f"link {len(links) + 1} in {first.name}",
                        LINKTYPE_ETHERNET,
                        first.snap_length,
                        carrier=taps.clock(carrier),
                    )
                )
            )
        else:
            links.append(carrier)
        return links[-1]

    def _link_at(self, tap: int) -> Link:
        """The link of a tap, begun if it has none."""
        known = self._registry.taps[tap]
        if known.link is None:
            known.link = Link()
        return known.link

    def _learn_directions(self) -> None:
        """Hand the direction of senders that are new over to their links."""
        senders = int(self._arrays.used[1])
        for entry in self._arrays.senders[self._senders : senders].tolist():
            pair, way = entry >> 1 & MOST_PAIRS - 1, entry & 1
            _, low, high = self._arrays.keys[pair].tolist()
            link = self._registry.taps[int(self._tap_of_pair[pair])].link
            if link is not None:
                sender, receiver = (high, low) if way else (low, high)
                link.note_direction(entry >> 13, sender, receiver)
        self._senders = senders

    def _name(self) -> None:
        """Name the links of taps that show several."""
        for taps in self._taps_of.values():
            if len(taps) > 1:
                for tap in taps:
                    self._link_at(tap).is_one_of_several = True
        name_links(self._registry)


# Names that devices advertise: LLDP (IEEE 802.1AB) and CDP, from the address of the port.

ETHERTYPE_LLDP: Final = 0x88CC
_CDP = bytes.fromhex("01000ccccccc"), bytes.fromhex("aaaa0300000c2000")
"""The address to which CDP goes, and its header after the length of the frame."""
_CHASSIS, _PORT, _SYSTEM = 1, 2, 5
_BY_ADDRESS, _BY_INTERFACE, _BY_AGENT = 4, 5, 7
"""Kinds of identifiers: of a chassis an Ethernet address, of a port its name, or a local text."""
_MOST_ADVERTISED = 1 << 14
_LONGEST_NAME = 64


def note_advertised(frames: FrameBatch, registry: Registry) -> None:
    """Learn the names of devices and ports from frames of LLDP and CDP."""
    ours = np.flatnonzero((frames.captured >= 22) & (frames.link_type == LINKTYPE_ETHERNET))
    at = frames.offset[ours]
    ethertype = frames.data[at + 12].astype(np.uint16) << 8 | frames.data[at + 13]
    for n in ours[(ethertype == ETHERTYPE_LLDP) | (ethertype < 0x0600)].tolist():
        begin = int(frames.offset[n])
        frame = frames.data[begin : begin + int(frames.captured[n])].tobytes()
        told = _lldp(frame[14:]) if frame[12] == ETHERTYPE_LLDP >> 8 else _cdp(frame)
        if told is None or len(registry.advertised) >= _MOST_ADVERTISED:
            continue
        system, port, chassis = told
        sender = int.from_bytes(frame[6:12])
        registry.advertised[sender] = f"{system}:{port}" if port else system
        if chassis:
            registry.advertised.setdefault(chassis, system)


def _lldp(content: bytes) -> tuple[str, str, int] | None:
    """(system, port, Ethernet address of the chassis or 0); None without a system name."""
    system, port, chassis = "", "", 0
    while len(content) >= 2:
        head = int.from_bytes(content[:2])
        kind, end = head >> 9, 2 + (head & 0x1FF)
        value, content = content[2:end], content[end:]
        if kind == 0 or len(value) < end - 2:
            break
        if kind == _CHASSIS and len(value) == 7 and value[0] == _BY_ADDRESS:
            chassis = int.from_bytes(value[1:])
        elif kind == _PORT and value[:1] in (bytes([_BY_INTERFACE]), bytes([_BY_AGENT])):
            port = _text(value[1:])
        elif kind == _SYSTEM:
            system = _text(value)
    return (system, port, chassis) if system else None


def _cdp(frame: bytes) -> tuple[str, str, int] | None:
    """As `_lldp`."""
    if frame[:6] != _CDP[0] or frame[14:22] != _CDP[1]:
        return None
    content, texts = frame[26:], {}
    while len(content) >= 4:
        kind, length = int.from_bytes(content[:2]), int.from_bytes(content[2:4])
        if not 4 <= length <= len(content):
            break
        texts[kind] = _text(content[4:length])
        content = content[length:]
    return (texts[1], texts.get(3, ""), 0) if texts.get(1) else None


def _text(value: bytes) -> str:
    """A name without the signs that have a meaning in names of links."""
    text = value[:_LONGEST_NAME].decode("utf-8", "replace")
    return "".join(c for c in text if c.isprintable() and c not in "|:").strip()
