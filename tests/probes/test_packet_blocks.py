"""Packet blocks written from rings made by hand, against a plain-Python twin."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from examples import examples
from hand_made import HandMadeRing
from hypothesis import given
from hypothesis import strategies as st

from rocescope.probes.packet_blocks import INBOUND, OUTBOUND, PacketBlocks

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
        st.integers(0, 256),  # captured bytes
        st.integers(0, 3),  # later than the record before
        st.integers(0, 1),
    ),
    max_size=30,
)


@pytest.mark.thorough
@examples(60)
@given(
    rings=st.lists(st.tuples(records, st.integers(0, 1)), min_size=1, max_size=3),
    start=st.integers(0, 5000).map(lambda n: n * 8),
    horizon=st.integers(0, 60) | st.just(FOREVER),
    left=st.none() | st.integers(0, 40),
    buffer_bytes=st.sampled_from([400, 2000, 1 << 20]),
)
def test_blocks_are_those_of_the_twin(rings, start, horizon, left, buffer_bytes):
    made, waiting = [], []
    being_written = [busy for _, busy in rings]
    for number, (contents, _) in enumerate(rings):
        ring, time, queue = HandMadeRing(start), 0, []
        for captured, later, tap in contents:
            time += later
            frame = bytes((number * 50 + i) % 255 for i in range(captured))
            assert ring.put(time, captured + 7, FIRST_TAP + tap, frame)
            queue.append((time, frame, tap))
        if being_written[number]:
            queue.append(None)
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
        [ring.words() for ring in made],
        FIRST_TAP,
        [INBOUND, OUTBOUND],
        buffer_bytes,
    )
    blocks.left = left
    positions = np.array([ring.tail for ring in made], np.uint64)
    heads = np.array([ring.head for ring in made], np.uint64) | np.array(being_written, np.uint64)
    got, got_more = blocks.lay_out(positions, heads, horizon, OFFSET_NS)
    assert bytes(got.data) == expected
    assert got.frames.tolist() == frames
    assert got_more == more
    assert blocks.left == wanted
    # What was left out is read next.
    blocks.left = None
    later, _ = blocks.lay_out(positions, heads, horizon, OFFSET_NS)
    rest = [queue[0] for queue in waiting if queue]
    if rest and None not in rest and min(rest)[0] <= horizon:
        time, frame, tap = min(rest, key=lambda row: row[0])
        first = block(frame, time, len(frame) + 7, tap)
        assert bytes(later.data[: len(first)]) == first


def test_a_tap_of_nobody_is_left_out():
    ring = HandMadeRing(0)
    for tap in (FIRST_TAP - 1, FIRST_TAP + 2, FIRST_TAP + 1):
        ring.put(1, 16, tap, bytes(16))
    blocks = PacketBlocks([ring.words()], FIRST_TAP, [INBOUND, OUTBOUND])
    positions, heads = np.zeros(1, np.uint64), np.array([ring.head], np.uint64)
    got, more = blocks.lay_out(positions, heads, FOREVER, OFFSET_NS)
    assert bytes(got.data) == block(bytes(16), 1, 16, 1)
    assert not more
    assert positions.tolist() == [ring.head]


@pytest.mark.parametrize("size", [0, 11, 12, 71, 72, 75, 76, 1000])
def test_what_is_whole(size):
    ring = HandMadeRing(0)
    for number in range(3):
        ring.put(number, 20, FIRST_TAP + number % 2, bytes(20 + number % 2))
    blocks = PacketBlocks([ring.words()], FIRST_TAP, [INBOUND, OUTBOUND])
    positions, heads = np.zeros(1, np.uint64), np.array([ring.head], np.uint64)
    got, _ = blocks.lay_out(positions, heads, FOREVER, OFFSET_NS)
    size = min(size, len(got.data))
    whole = got.whole(size)
    lengths = [len(block(bytes(20 + n % 2), 0, 0, 0)) for n in range(3)]
    number = sum(sum(lengths[: n + 1]) <= size for n in range(3))
    assert len(whole.data) == sum(lengths[:number])
    assert whole.frames.tolist() == [(number + 1) // 2, number // 2]
