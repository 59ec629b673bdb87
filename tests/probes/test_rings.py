"""Counts of frames at the probes."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, fields
from pathlib import Path

import numpy as np
import pytest
from bpf_runs import run_program
from examples import examples
from hand_made import CHUNK, LARGEST, HandMadeRing
from hypothesis import given
from hypothesis import strategies as st
from network import roce

from rocescope.probes import bpf
from rocescope.probes import rings as module
from rocescope.probes.program import program
from rocescope.probes.program.program import Compiled, ProgramOptions
from rocescope.probes.rings import (
    INBOUND,
    LOSS,
    OUTBOUND,
    Drain,
    Loss,
    PacketBlocks,
    Rings,
    Wakeups,
    scan,
    total,
)

# Counts of frames at the probes.

# Counts of frames at the probes.


def test_the_layout_is_that_of_the_c_struct():
    source = (Path(module.__file__).parent / "program" / "ring.bpf.h").read_text()
    members = re.search(r"struct loss \{(.*?)\};", source, re.DOTALL)[1]
    assert tuple(re.findall(r"rs_u64 (\w+);", members)) == LOSS.names
    assert LOSS.itemsize == 8 * len(LOSS.names)


def test_sums_and_differences():
    counters = np.zeros((2, 3), LOSS)
    for number, name in enumerate(LOSS.names, 1):
        counters[name] = number
    found = total(counters)
    assert astuple(found) == tuple(6 * number for number in range(1, len(fields(Loss)) + 1))
    assert found - found == Loss() and found + Loss() == found
    assert total(counters[0]) + total(counters[1]) == found


def test_every_matched_packet_has_one_fate():
    assert Loss(exported=1, ring_full=10, filtered=100, sampled_out=1000, merged=7).matched == 1111


# Rings between the probes and their reader, on the real kernel by BPF_PROG_TEST_RUN.

RECORD = 16 + 128
FRAME = roce(1, payload_bytes=200)


class Loaded:
    """A probe with rings, run on one CPU."""

    def __init__(self, ring_bytes: int, cpus: list[int]) -> None:
        self.rings = Rings(cpus, ring_bytes, 3)
        compiled = Compiled(ProgramOptions(), self.rings.maps)
        self.programs = [compiled.load_xdp(2), compiled.load_tc(2)]

    def run(self, repeat: int = 1, frame: bytes = FRAME, program: int = 0) -> None:
        run_program(self.programs[program], frame, repeat=repeat)

    def counted(self, cpu: int) -> tuple[int, int]:
        """(exported, lost) of the tap on a CPU."""
        loss = self.rings.loss()[2, cpu]
        return int(loss["exported"]), int(loss["ring_full"])


@pytest.fixture(params=[True, False], ids=["ordered", "weakly ordered"])
def order(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both forms of the atomic instructions, whatever processor this is."""
    monkeypatch.setattr(program, "strongly_ordered", lambda: request.param)


@pytest.fixture
def on_cpu_0(live_capture: None) -> Iterator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {0})
    yield
    os.sched_setaffinity(0, before)


@contextmanager
def loaded(ring_bytes: int, cpus: list[int]) -> Iterator[Loaded]:
    probe = Loaded(ring_bytes, cpus)
    yield probe
    for fd in probe.programs:
        os.close(fd)
    probe.rings.close()


@pytest.mark.thorough
def test_every_byte_over_chunks_and_laps(on_cpu_0, order):
    frames = [roce(psn, payload_bytes=psn) for psn in (40, 100, 101, 200)]
    frames.append(b"".join((frames[0][:12], b"\x81\0\0\7", frames[0][12:])))
    with loaded(2 << 20, [0]) as probe:
        drain = Drain(probe.rings.rings)
        for lap in range(5):
            for number, frame in enumerate(frames):
                probe.run(2000 + lap, frame, number % 2)
            seen: list[bytes] = []
            times: list[int] = []
            while batches := drain.gather(everything=True):
                (batch,) = batches
                assert set(batch.tap.tolist()) == {2}
                for at, length in zip(batch.offset.tolist(), batch.captured.tolist(), strict=True):
                    seen.append(batch.data[at : at + length].tobytes())
                times += batch.time_ns.tolist()
                drain.release()
            assert seen == [frame[:128] for frame in frames for _ in range(2000 + lap)]
            assert times == sorted(times)
        assert probe.counted(0) == (drain.frames, 0)
        assert probe.rings.rings[0].tail > 2 * (2 << 20)


def test_a_full_ring_takes_no_record_until_it_is_read(on_cpu_0):
    with loaded(4096, [0]) as probe:
        room = (4096 - (16 + 256)) // RECORD + 1  # behind these the largest has none
        drain = Drain(probe.rings.rings)
        for number in range(1, 6):
            probe.run(1000)
            assert probe.counted(0) == (room * number, (1000 - room) * number)
            assert sum(len(batch) for batch in drain.gather(everything=True)) == room
            drain.release()


def test_a_cpu_without_a_ring_loses_everything_and_says_so(on_cpu_0):
    others = [cpu for cpu in bpf.online_cpus() if cpu != 0]
    if not others:
        pytest.skip("takes two CPUs")
    with loaded(4096, others[:1]) as probe:
        probe.run(50)
        assert probe.counted(0) == (0, 50)
        os.sched_setaffinity(0, set(others[:1]))
        probe.run(5)
        assert probe.counted(others[0]) == (5, 0)


def test_a_probe_that_interrupts_another_finds_no_room(on_cpu_0, order):
    """The mark is set by hand, as it is in the midst of a record."""
    with loaded(4096, [0]) as probe:
        probe.run(3)
        drain = Drain(probe.rings.rings)
        head = probe.rings._control["head"]
        head[0] += np.uint64(1)
        probe.run(4)
        assert probe.counted(0) == (3, 4)
        assert [len(batch) for batch in drain.gather(everything=True)] == [3]
        assert drain.more  # what is being written may be earlier than what others have
        assert drain.gather() == []
        head[0] -= np.uint64(1)
        probe.run(2)
        assert probe.counted(0) == (5, 4)
        assert [len(batch) for batch in drain.gather(everything=True)] == [2]


def test_the_bell_rings_once_for_every_quarter(on_cpu_0):
    with loaded(1 << 14, [0]) as probe:
        wakeups = Wakeups(probe.rings.maps.bell)
        quarter = -(-(1 << 12) // RECORD)

        for more in (quarter - 1, 1):
            probe.run(more)
            assert wakeups.wait(0) == (more == 1)
        assert not wakeups.wait(0.01)  # heard once
        probe.run(2 * quarter)
        assert wakeups.wait(5)
        assert not wakeups.wait(0)
        wakeups.close()


# The scan of a ring against a plain-Python twin, on rings made by hand.

SIZE = 4096
OFFSET_NS = 1_000_000
FOREVER = (1 << 63) - 1


class ScannedRing(HandMadeRing):
    """A ring, the scan of it and the scan's twin."""

    def __init__(self, start: int, size: int = SIZE) -> None:
        super().__init__(start, size)
        self.being_written = 0

    def scan(self, rows: int, horizon: int) -> tuple[list[tuple[int, ...]], int]:
        columns = [
            np.zeros(rows, dtype)
            for dtype in (np.int64, np.uint32, np.uint32, np.int64, np.uint16, np.int64)
        ]
        count, busy = scan(
            self.words(),
            len(self.bytes) - 1,
            self.tail,
            self.head | self.being_written,
            horizon,
            OFFSET_NS,
            *columns,
        )
        return list(zip(*(column[:count].tolist() for column in columns), strict=True)), busy

    def twin(self, rows: int, horizon: int) -> tuple[list[tuple[int, ...]], int]:
        found, position, size = [], self.tail, len(self.bytes)
        chunk = min(size, CHUNK)
        while len(found) < rows:
            if position == self.head:
                return found, self.being_written
            if position % chunk > chunk - LARGEST:
                position = (position // chunk + 1) * chunk
            at = position % size
            time_ns, wire, captured, tap = struct.unpack_from("<QIHH", self.bytes, at)
            if time_ns > horizon:
                break
            position += 16 + -(-captured // 8) * 8
            found.append((at + 16, captured, wire, time_ns + OFFSET_NS, tap, position))
        return found, 0


records = st.lists(
    st.tuples(
        st.integers(0, 1 << 40),
        st.integers(0, 0xFFFFFFFF),
        st.integers(0, 0xFFFF),
        st.sampled_from([b"", b"a" * 54, b"b" * 96, b"c" * 97, b"d" * 256]),
    ),
    max_size=60,
)


@given(
    start=st.integers(0, SIZE * 3).map(lambda n: n * 8),
    contents=records,
    being_written=st.integers(0, 1),
    rows=st.integers(1, 40),
    horizon=st.integers(0, 1 << 40) | st.just(FOREVER),
)
def test_scan_is_its_twin(start, contents, being_written, rows, horizon):
    ring = ScannedRing(start)
    ring.being_written = being_written
    for record in contents:
        if not ring.put(*record):
            break
    assert ring.scan(rows, horizon) == ring.twin(rows, horizon)


def test_a_record_begins_with_a_chunk_where_the_largest_has_no_room():
    for left in (LARGEST - 8, LARGEST):
        ring = ScannedRing(5 * CHUNK - left, 2 * CHUNK)
        assert ring.put(5, 100, 2, bytes(96))
        assert ring.put(6, 100, 2, bytes(96))
        found, busy = ring.scan(10, 10)
        places = [row[0] - 16 for row in found]
        assert places == ([CHUNK, CHUNK + 112] if left < LARGEST else [CHUNK - left, CHUNK])
        assert (found, busy) == ring.twin(10, 10)


def test_no_record_is_longer_than_a_probe_writes():
    ring = ScannedRing(0)
    assert ring.put(5, 100, 2, bytes(256), captured=65535)
    ((offset, captured, *_, end),), _ = ring.scan(10, 10)
    assert (offset, captured, end) == (16, 256, LARGEST)


# Packet blocks written from rings made by hand, against a plain-Python twin.

FIRST_TAP, PACKET_BLOCKS_OFFSET_NS, PACKET_BLOCKS_FOREVER = (
    5,
    1_700_000_000_123_456_789,
    (1 << 63) - 1,
)


def block(frame: bytes, time_ns: int, wire: int, interface: int) -> bytes:
    """An enhanced packet block as the format's draft has it, section 4.3."""
    moment = time_ns + PACKET_BLOCKS_OFFSET_NS
    body = struct.pack("<IIIII", interface, moment >> 32, moment & 0xFFFFFFFF, len(frame), wire)
    body += frame + bytes(-len(frame) % 4)
    body += struct.pack("<HHIHH", 2, 4, (INBOUND, OUTBOUND)[interface], 0, 0)
    return struct.pack("<II", 6, len(body) + 12) + body + struct.pack("<I", len(body) + 12)


records_packet_blocks = st.lists(
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
    rings=st.lists(st.tuples(records_packet_blocks, st.integers(0, 1)), min_size=1, max_size=3),
    start=st.integers(0, 5000).map(lambda n: n * 8),
    horizon=st.integers(0, 60) | st.just(PACKET_BLOCKS_FOREVER),
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
    got, got_more = blocks.lay_out(positions, heads, horizon, PACKET_BLOCKS_OFFSET_NS)
    assert bytes(got.data) == expected
    assert got.frames.tolist() == frames
    assert got_more == more
    assert blocks.left == wanted
    # What was left out is read next.
    blocks.left = None
    later, _ = blocks.lay_out(positions, heads, horizon, PACKET_BLOCKS_OFFSET_NS)
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
    got, more = blocks.lay_out(positions, heads, PACKET_BLOCKS_FOREVER, PACKET_BLOCKS_OFFSET_NS)
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
    got, _ = blocks.lay_out(positions, heads, PACKET_BLOCKS_FOREVER, PACKET_BLOCKS_OFFSET_NS)
    size = min(size, len(got.data))
    whole = got.whole(size)
    lengths = [len(block(bytes(20 + n % 2), 0, 0, 0)) for n in range(3)]
    number = sum(sum(lengths[: n + 1]) <= size for n in range(3))
    assert len(whole.data) == sum(lengths[:number])
    assert whole.frames.tolist() == [(number + 1) // 2, number // 2]
