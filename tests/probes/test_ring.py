"""The scan of a ring against a plain-Python twin, on rings made by hand; real rings."""

from __future__ import annotations

import struct

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rocescope.probes.ring import RECORD_HEADER, scan

from .hand_made import BUSY, DISCARDED, HandMadeRing

SIZE = 4096
OFFSET_NS = 1_000_000


class ScannedRing(HandMadeRing):
    """A ring, the scan of it and the scan's twin."""

    def __init__(self, start: int) -> None:
        super().__init__(start, SIZE)

    def scan(self, rows: int, horizon: int) -> tuple[list[tuple[int, ...]], int]:
        data = self.mapped()
        columns = [
            np.zeros(rows, dtype)
            for dtype in (np.int64, np.uint32, np.uint32, np.int64, np.uint16, np.int64)
        ]
        count, busy = scan(
            data,
            data.view(np.uint32),
            SIZE - 1,
            self.consumer,
            self.producer,
            horizon,
            OFFSET_NS,
            *columns,
        )
        return list(zip(*(column[:count].tolist() for column in columns), strict=True)), busy

    def twin(self, rows: int, horizon: int) -> tuple[list[tuple[int, ...]], int]:
        found, position = [], self.consumer
        double = bytes(self.bytes) * 2
        while position < self.producer and len(found) < rows:
            at = position % SIZE
            (header,) = struct.unpack_from("<I", double, at)
            if header & BUSY:
                return found, 1
            length = header & 0x3FFFFFFF
            position += (8 + length + 7) // 8 * 8
            if header & DISCARDED:
                continue
            time_ns, wire, captured, tap = struct.unpack_from("<QIHH", double, at + 8)
            if time_ns > horizon:
                break
            found.append((at + 24, captured, wire, time_ns + OFFSET_NS, tap, position))
        return found, 0


records = st.lists(
    st.tuples(
        st.sampled_from([16, 64, 112, 113, 272]),
        st.sampled_from([0, 0, 0, 0, DISCARDED, BUSY]),
        st.integers(0, 1 << 40),
        st.integers(0, 0xFFFFFFFF),
        st.integers(0, 0xFFFF),
        st.integers(0, 0xFFFF),
    ),
    max_size=60,
)


@given(
    start=st.integers(0, SIZE * 3).map(lambda n: n * 8),
    contents=records,
    rows=st.integers(1, 40),
    horizon=st.integers(0, 1 << 40) | st.just((1 << 63) - 1),
)
def test_scan_is_its_twin(start, contents, rows, horizon):
    ring = ScannedRing(start)
    for record in contents:
        if not ring.put(*record):
            break
    assert ring.scan(rows, horizon) == ring.twin(rows, horizon)


def test_a_record_over_the_end_is_whole():
    ring = ScannedRing(SIZE * 7 - 40)
    assert ring.put(112, 0, 5, 100, 96, 2)
    ((offset, captured, wire, time_ns, tap, end),), busy = ring.scan(10, 10)
    assert (offset, captured, wire, tap, busy) == (SIZE - 40 + 24, 96, 100, 2, 0)
    assert time_ns == 5 + OFFSET_NS
    assert end == SIZE * 7 - 40 + 120


def test_header_dtype():
    assert RECORD_HEADER.itemsize == 16
