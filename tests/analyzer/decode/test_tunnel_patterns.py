"""Frames recognised by the headers of a frame before, against the twin's walk and our own."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from ipaddress import ip_address

import encapsulations as enc
import numpy as np
import pytest
from batches import batch
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.decode import tunnel_patterns as pt
from rocescope.analyzer.decode.counters import DecodeCounters
from rocescope.analyzer.decode.unwrapping import Unwrapper
from rocescope.analyzer.wire.frames import FrameBatch
from rocescope.analyzer.wire.taps import Tap, Taps

from .test_decoder import frame as roce
from .test_unwrapping import PORTS, compare

Sample = tuple[bytes, int, int]
"""Captured bytes, link type, length on the wire."""


def srv6(frame: bytes) -> bytes:
    """Behind a segment routing header of two segments, with one of them left."""
    segments = ip_address("fcbb:bb00:1::").packed + ip_address("fcbb:bb00:2::").packed
    header = struct.pack(">BBBBBBH", 4, 4, 4, 1, 1, 0, 0) + segments
    return enc.ethernet(0x86DD, enc.ipv6(43, header + enc.without_ethernet(frame)[1]))


WRAPPERS = {**enc.WRAPPERS, "srv6": srv6}


def view(samples: list[Sample]) -> FrameBatch:
    frames = batch([s[0] for s in samples], link_type=1, wire=[s[2] for s in samples])
    data = frames.data.view()
    data.flags.writeable = False
    return replace(frames, data=data)


def together_and_alone(samples: list[Sample]) -> None:
    """One batch gives what its frames give one by one, each walked without a pattern."""
    frames = view(samples)
    results = []
    for alone in (False, True):
        taps = Taps()
        taps.add(Tap("file", 1))
        counters = DecodeCounters()
        unwrapper = Unwrapper(taps, PORTS)
        if alone:
            unwrapper.patterns.state[pt.WALKS_LEFT] = 1 << 40  # nothing is ever learned
        parts = [(i, i + 1) for i in range(len(frames))] if alone else [(0, len(frames))]
        rows = []
        for first, stop in parts:
            names = "offset", "captured", "wire", "time_ns", "tap", "link_type"
            part = replace(frames, **{n: getattr(frames, n)[first:stop] for n in names})
            for _, inner, _ in unwrapper.batches(part, 0, counters):
                columns = [column.tolist() for column in inner]
                columns[6] = [first + source for source in columns[6]]
                rows += list(zip(*columns, strict=True))
        arrays = counters.arrays
        counts = [a.tolist() for a in (arrays.outcomes, arrays.notes, arrays.tunnels)]
        results.append((rows, counts, [tap.name for tap in taps.items]))
    assert results[0] == results[1]


def varied(name: str, number: int) -> bytes:
    """A mirrored packet unlike others but for its headers' layout."""
    inner = roce(number, sport=0xC000 + number, source=0x0A000000 + number, payload=4 * number)
    data = bytearray(WRAPPERS[name](inner))
    if name != "arista":
        data[:12] = number.to_bytes(12)
    if data[12:14] == b"\x08\x00":
        data[15], data[22], data[18:20] = number, number, struct.pack(">H", number)
    return bytes(data)


@pytest.mark.parametrize("name", WRAPPERS)
def test_the_next_frame_is_recognised(name: str) -> None:
    taps = Taps()
    taps.add(Tap("file", 1))
    unwrapper = Unwrapper(taps, PORTS)
    frames = view([(d := varied(name, i), 1, len(d)) for i in range(1, 9)])
    rows = list(unwrapper.batches(frames, 0, DecodeCounters()))
    assert [len(inner.offset) for _, inner, _ in rows] == [8]
    assert np.count_nonzero(unwrapper.patterns.rows[:, pt.LIMIT]) == 1
    assert not unwrapper.patterns.state[pt.WALKS_LEFT]  # another kind would be learned at once


@examples(60)
@given(
    st.sampled_from(sorted(WRAPPERS)),
    st.lists(
        st.tuples(
            st.lists(st.tuples(st.integers(0, 150), st.integers(0, 255)), max_size=3),
            st.integers(0, 200) | st.none(),
            st.integers(0, 2000) | st.none(),
        ),
        min_size=1,
        max_size=30,
    ),
    st.booleans(),
)
def test_mutated_frames_are_what_they_are_alone(
    name: str,
    mutations: list[tuple[list[tuple[int, int]], int | None, int | None]],
    tagged: bool,
) -> None:
    samples: list[Sample] = []
    for number, (changes, cut, wire) in enumerate(mutations):
        data = bytearray(varied(name, 1 + number % 20))
        if tagged:
            data[12:12] = b"\x81\x00" + bytes((0, number))
        for at, value in changes:
            data[at % len(data)] = value
        whole = len(data)
        samples.append((bytes(data[:cut]), 1, whole if wire is None else wire))
    together_and_alone(samples)


def test_equals_the_twin_on_mutated_frames() -> None:
    """Bits flipped in the headers, lengths that lie, cuts; the good frame again in between."""
    rng = random.Random(53)
    for name, wrap in WRAPPERS.items():
        good = wrap(roce(7))
        samples = [(good, 1, len(good))]
        for _ in range(120):
            data = bytearray(good)
            for _ in range(rng.choice((0, 1, 1, 2))):
                data[rng.randrange(12, min(len(data), 150))] ^= 1 << rng.randrange(8)
            if rng.randrange(6) == 0:
                del data[rng.randrange(12, len(data)) :]
            samples.append((bytes(data), 1, len(good) + rng.choice((0, 0, 0, -50, 4))))
            samples.append(samples[0])
        seen = compare(samples)
        assert sum(seen.values()) > 120, name


def test_many_kinds_take_turns() -> None:
    """More layouts than patterns, in turn and at random."""
    rng = random.Random(54)
    names = [rng.choice(sorted(WRAPPERS)) for _ in range(400)] + sorted(WRAPPERS) * 8
    samples = [(d := varied(name, 1 + i % 20), 1, len(d)) for i, name in enumerate(names)]
    together_and_alone(samples)
    compare(samples)
