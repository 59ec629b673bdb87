"""SRv6: the remaining segments of a packet as evidence of its path.

The outer IPv6 destination address of a packet holds its path as a carrier of compressed segments
(uSIDs): a locator block, then one uSID per hop. Each hop shifts its own uSID out and zeros in, so a
tap sees the remaining ones. A segment routing header (SRH) may hold further segments. The number of
the list (`wire.segments`) is the packet's `path_evidence`.

Sources: RFC 8754 (SRH), RFC 9800 (compressed SIDs).
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from ....kernels.kernel import Int, UInt64s, inlined, kernel
from ...wire.endpoints import has_room, intern
from ...wire.packets import I64, U8, U32
from ...wire.segments import OTHER, SegmentArrays, SegmentLists
from ..headers.link_and_ip import DESTINATION_OPTIONS, HOP_BY_HOP, MAX_EXTENSION_HEADERS, ROUTING
from ..headers.load import be64, byte

U64: TypeAlias = UInt64s

_MAX_SEGMENTS = 16
_RECENT_BITS = 9
_SEGMENT_ROUTING = 4


@inlined
def _first_usid(high: np.uint64, low: np.uint64, block_bits: Int, usid_bits: Int) -> np.uint64:
    """The active uSID of a carrier; block_bits is 8 to 96."""
    if block_bits < 64:
        rest = high << np.uint64(block_bits) | low >> np.uint64(64 - block_bits)
    elif block_bits == 64:
        rest = low
    else:
        rest = low << np.uint64(block_bits - 64)
    return np.uint64(rest >> np.uint64(64 - usid_bits))


@inlined
def _routing_header(data: U8, at: Int, end: Int) -> Int:
    """Position of the complete SRH after the IPv6 header at `at`; -1 without one."""
    protocol, place = byte(data, at + 6), at + 40
    for _ in range(MAX_EXTENSION_HEADERS):
        known = protocol == HOP_BY_HOP or protocol == ROUTING or protocol == DESTINATION_OPTIONS
        if not known or end - place < 8:
            return -1
        length = (byte(data, place + 1) + 1) * 8
        if end - place < length:
            return -1
        if protocol == ROUTING:
            return place if byte(data, place + 2) == _SEGMENT_ROUTING else -1
        protocol = byte(data, place)
        place += length
    return -1


@inlined
def _appended(
    number: Int, high: np.uint64, low: np.uint64, arrays: SegmentArrays, recent: U64
) -> Int:
    """The number of the list `number` with one more segment; OTHER when the table is full.

    recent: uint64[1 << _RECENT_BITS, 4], recent lists: number of the list without its last segment,
    that segment (two halves), its own number.
    """
    h = (low ^ high ^ np.uint64(number)) * np.uint64(0x9E3779B97F4A7C15)
    slot = (h ^ (h >> np.uint64(32))) >> np.uint64(64 - _RECENT_BITS)
    if recent[slot, 2] == low and recent[slot, 1] == high and recent[slot, 0] == np.uint64(number):
        if recent[slot, 3] != 0:
            return np.int64(recent[slot, 3])
    if number == OTHER or not has_room(arrays.segments, 1) or not has_room(arrays.lists, 1):
        return np.int64(OTHER)
    segment = intern(high, low, arrays.segments)
    longer = intern(np.uint64(number), np.uint64(segment), arrays.lists) + 1
    recent[slot, 0] = number
    recent[slot, 1] = high
    recent[slot, 2] = low
    recent[slot, 3] = longer
    return longer


@inlined
def _path_of(
    data: U8, at: Int, end: Int, block_bits: Int, usid_bits: Int, a: SegmentArrays, recent: U64
) -> Int:
    """The number of the segment list of the IPv6 header at `at`; 0 when it has none."""
    if at < 0 or end - at < 40 or byte(data, at) >> 4 != 6:
        return 0
    high, low = be64(data, at + 24), be64(data, at + 32)
    srh = _routing_header(data, at, end)
    if srh < 0:
        if _first_usid(high, low, block_bits, usid_bits) == np.uint64(0):
            return 0  # an ordinary tunnel
        return _appended(0, high, low, a, recent)
    number = _appended(0, high, low, a, recent)
    # Segment list [0] is the last one; `segments left` is the index of the active one.
    held = min(byte(data, srh + 1) * 8 // 16, byte(data, srh + 4) + 1, _MAX_SEGMENTS)
    for i in range(min(byte(data, srh + 3), held) - 1, -1, -1):
        place = srh + 8 + 16 * i
        number = _appended(number, be64(data, place), be64(data, place + 8), a, recent)
    return number


@kernel
def _number_paths(
    data: U8,
    outer_ipv6: I64,
    begin: I64,
    captured: U32,
    block_bits: int,
    usid_bits: int,
    arrays: SegmentArrays,
    out: U32,
) -> None:
    recent = np.zeros((1 << _RECENT_BITS, 4), np.uint64)
    for i in range(len(out)):
        u = np.uint64(i)
        end = begin[u] + np.int64(captured[u])
        out[u] = _path_of(data, outer_ipv6[u], end, block_bits, usid_bits, arrays, recent)


def number_paths(
    lists: SegmentLists, data: U8, outer_ipv6: I64, begin: I64, captured: U32, out: U32
) -> None:
    """Set `path_evidence` of each packet to the number of its segment list.

    outer_ipv6: position in `data` of the outermost IPv6 header, -1 without one;
    begin, captured: start of the inner packet and its captured bytes.
    """
    # A packet adds at most _MAX_SEGMENTS segments and lists; the tables are grown before.
    lists.make_room(_MAX_SEGMENTS * len(out))
    _number_paths(data, outer_ipv6, begin, captured, *lists.usid, lists.arrays, out)
