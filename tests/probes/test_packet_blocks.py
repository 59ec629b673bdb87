"""Packet blocks written from rings made by hand, against a plain-Python twin."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocescope.probes.packet_blocks import INBOUND, OUTBOUND, PacketBlocks

from .hand_made import BUSY, DISCARDED, HandMadeRing

FIRST_TAP, OFFSET_NS, FOREVER = 5, 1_700_000_000_123_456_789, (1 << 63) - 1


def block(frame: bytes, time_ns: int, wire: int, interface: int) -> bytes:
    """An enhanced packet block as the format's draft has it, section 4.3."""
    moment = time_ns + OFFSET_NS
    body = struct.pack("<IIIII", interface, moment >> 32, moment & 0xFFFFFFFF, len(frame), wire)
    body += frame + bytes(-len(frame) % 4)
    body += struct.pack("<HHIHH", 2, 4, (INBOUND, OUTBOUND)[interface], 0, 0)
    return struct.pack("<II", 6, len(body) + 12) + body + struct.pack("<I", len(body) + 12)


records = st.lists(
    st.tuples(
        st.integers(0, 260),  # captured bytes
        st.sampled_from([0] * 12 + [DISCARDED, BUSY]),
        st.integers(0, 3),  # later than the record before
        st.integers(0, 1),
    ),
    max_size=30,
)


@settings(max_examples=60)
@given(
    rings=st.lists(records, min_size=1, max_size=3),
    start=st.integers(0, 5000).map(lambda n: n * 8),
    horizon=st.integers(0, 60) | st.just(FOREVER),
    left=st.none() | st.integers(0, 40),
    buffer_bytes=st.sampled_from([400, 2000, 1 << 20]),
)
def test_blocks_are_those_of_the_twin(rings, start, horizon, left, buffer_bytes):
    made, waiting = [], []
    for number, contents in enumerate(rings):
        ring, time, queue = HandMadeRing(start), 0, []
        for captured, flags, later, tap in contents:
            time += later
            frame = bytes((number * 50 + i) % 255 for i in range(captured))
            ring.put(16 + captured, flags, time, captured + 7, captured, FIRST_TAP + tap, frame)
            if flags != DISCARDED:
                queue.append(None if flags else (time, frame, tap))
        made.append(ring)
        waiting.append(queue)

    expected, frames, more, wanted = b"", [0, 0], False, left
    while True:
        if any(queue and queue[0] is None for queue in waiting):
            more = True
            break
        heads = [(queue[0][0], number) for number, queue in enumerate(waiting) if queue]
        if not heads or min(heads)[0] > horizon:
            break
        queue = waiting[min(heads)[1]]
        time, frame, tap = queue[0]
        one = block(frame, time, len(frame) + 7, tap)
        if len(expected) + len(one) > buffer_bytes or wanted == 0:
            more = True
            break
        queue.pop(0)
        expected += one
        frames[tap] += 1
        wanted = None if wanted is None else wanted - 1

    blocks = PacketBlocks(
        [ring.mapped().view(np.uint32) for ring in made],
        FIRST_TAP,
        [INBOUND, OUTBOUND],
        buffer_bytes,
    )
    blocks.left = left
    positions = np.array([ring.consumer for ring in made], np.uint64)
    producers = np.array([ring.producer for ring in made], np.uint64)
    got, got_more = blocks.lay_out(positions, producers, horizon, OFFSET_NS)
    assert bytes(got.data) == expected
    assert got.frames.tolist() == frames
    assert got_more == more
    assert blocks.left == wanted
    # What was left out is read next.
    blocks.left = None
    later, _ = blocks.lay_out(positions, producers, horizon, OFFSET_NS)
    rest = [queue[0] for queue in waiting if queue]
    if rest and None not in rest and min(rest)[0] <= horizon:
        time, frame, tap = min(rest, key=lambda row: row[0])
        first = block(frame, time, len(frame) + 7, tap)
        assert bytes(later.data[: len(first)]) == first


def test_a_tap_of_nobody_is_left_out():
    ring = HandMadeRing(0)
    for tap in (FIRST_TAP - 1, FIRST_TAP + 2, FIRST_TAP + 1):
        ring.put(32, 0, 1, 16, 16, tap, bytes(16))
    ring.put(32, 0, 2, 16, 17, FIRST_TAP, bytes(16))  # longer than its record
    blocks = PacketBlocks([ring.mapped().view(np.uint32)], FIRST_TAP, [INBOUND, OUTBOUND])
    positions, producers = np.zeros(1, np.uint64), np.array([ring.producer], np.uint64)
    got, more = blocks.lay_out(positions, producers, FOREVER, OFFSET_NS)
    assert bytes(got.data) == block(bytes(16), 1, 16, 1)
    assert not more
    assert positions.tolist() == [ring.producer]


@pytest.mark.parametrize("size", [0, 11, 12, 71, 72, 75, 76, 1000])
def test_what_is_whole(size):
    ring = HandMadeRing(0)
    for number in range(3):
        ring.put(40, 0, number, 20, 20 + number % 2, FIRST_TAP + number % 2, bytes(21))
    blocks = PacketBlocks([ring.mapped().view(np.uint32)], FIRST_TAP, [INBOUND, OUTBOUND])
    positions, producers = np.zeros(1, np.uint64), np.array([ring.producer], np.uint64)
    got, _ = blocks.lay_out(positions, producers, FOREVER, OFFSET_NS)
    size = min(size, len(got.data))
    whole = got.whole(size)
    lengths = [len(block(bytes(20 + n % 2), 0, 0, 0)) for n in range(3)]
    number = sum(sum(lengths[: n + 1]) <= size for n in range(3))
    assert len(whole.data) == sum(lengths[:number])
    assert whole.frames.tolist() == [(number + 1) // 2, number // 2]
