"""The compiled walk over the blocks of a pcapng section."""

from __future__ import annotations

import numpy as np

from ...kernels.kernel import Array, Bytes, inlined, kernel
from ..wire.frames import FrameColumns
from ..wire.packets import I64
from ..wire.record import Record
from . import framing
from .framing import load32, note_disorder

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
    ],
    align=True,
)
"""State of an interface for the walk."""

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
        if kind == ENHANCED_PACKET:
            interface = load32(data, position + 8, swapped)
        elif kind == OBSOLETE_PACKET:
            word = load32(data, position + 8, swapped)  # interface and drop count, u16 each
            interface = word >> 16 if swapped else word & 0xFFFF
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
        if held > framing.MAX_CAPTURED_BYTES or held > total - body - 4:
            reason = framing.DAMAGED
            break
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
