"""The scan of a ring against a plain-Python twin, on rings made by hand."""

from __future__ import annotations

import struct

import numpy as np
from hand_made import CHUNK, LARGEST, HandMadeRing
from hypothesis import given
from hypothesis import strategies as st

from rocescope.probes.ring import scan

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
