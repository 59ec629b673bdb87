"""Frames recognised by the headers of a frame before, against the twin's walk and our own."""

from __future__ import annotations

import random
import struct
from collections import Counter
from dataclasses import replace
from ipaddress import ip_address

import encapsulated_corpus as corpus
import encapsulations as enc
import numpy as np
import pytest
from batches import batch, decoder
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from unwrap_twin import unwrap

from rocescope.analyzer.decode import outcomes
from rocescope.analyzer.decode import sessions as ses
from rocescope.analyzer.decode import tunnel_patterns as pt
from rocescope.analyzer.decode.counters import DecodeCounters
from rocescope.analyzer.decode.unwrapping import Inner, Unwrapper
from rocescope.analyzer.wire.packets import FrameBatch
from rocescope.analyzer.wire.taps import Tap, Taps

from .test_decoder import frame as roce

# Frames in mirrors and tunnels against the twin, cut anywhere, nested without end.

PORTS = np.zeros(65536, np.uint8)
PORTS[4791] = 1


def unwrapped(frames: FrameBatch) -> tuple[list[Inner], Taps, DecodeCounters]:
    taps = Taps()
    taps.add(Tap("file", 1))
    counters = DecodeCounters()
    data = frames.data.view()
    data.flags.writeable = False
    frames = replace(frames, data=data)
    parts = list(Unwrapper(taps, PORTS).batches(frames, 0, counters))
    return [inner for _, inner, _ in parts], taps, counters


def tap_name(session: tuple[int, int, int, str] | None) -> str:
    if session is None:
        return "file"
    kind, direction, n, source = session
    address = ip_address(source)
    value = int(address) | (0xFFFF << 32 if address.version == 4 else 0)
    return ses.session_name(value >> 64, value & (1 << 64) - 1, kind << 56 | direction << 48 | n)


def compare(samples: list[tuple[bytes, int, int]]) -> Counter[str]:
    """Assert that the product gives what the twin gives; how often each kind occurred."""
    frames = batch([s[0] for s in samples], link_type=1, wire=[s[2] for s in samples])
    parts, taps, counters = unwrapped(frames)
    (inner,) = parts
    got = []
    for i in range(len(inner.offset)):
        begin = int(inner.offset[i] - frames.offset[inner.source[i]])
        outer = int(inner.outer_ipv6[i])
        got.append(
            (
                int(inner.source[i]),
                begin,
                int(inner.captured[i]),
                int(inner.wire[i]),
                int(inner.link_type[i]),
                int(inner.vlan[i]),
                outer - int(frames.offset[inner.source[i]]) if outer >= 0 else -1,
                int(inner.rate[i]),
                taps[int(inner.tap[i])].name,
            )
        )
    expected, ends, seen = [], Counter(), Counter()
    for i, (data, link, wire) in enumerate(samples):
        found = unwrap(data, link, wire)
        for w in found.rows:
            vlan = 0 if w.link == 1 else w.vlan
            row = (w.begin, max(w.end - w.begin, 0), max(w.stop - w.frame, 0), w.link, vlan)
            expected.append((i, *row, w.outer_ipv6, w.rate, tap_name(w.session)))
            seen.update(ses.KIND_NAMES[kind] for kind in w.kinds)
        ends.update((tap_name(session), outcome) for session, outcome in found.outcomes)
    assert got == expected
    names = [tap.name for tap in taps.items]
    outcome = counters.arrays.outcomes
    assert ends == {
        (names[t], int(kind)): int(outcome[t, kind]) for t, kind in np.argwhere(outcome)
    }
    return seen


@pytest.mark.thorough
def test_equals_the_twin_on_a_large_corpus() -> None:
    rng = random.Random(47)
    seen = compare([corpus.frame(rng) for _ in range(4_000)])
    assert set(seen) == set(ses.KIND_NAMES.values())
    assert min(seen.values()) > 15


@pytest.mark.parametrize("name", enc.WRAPPERS)
def test_cut_after_every_byte(name: str) -> None:
    """Nothing is read beyond the cut: the buffer ends there."""
    whole = enc.WRAPPERS[name](roce(7))
    samples = [(whole[:n], 1, len(whole)) for n in range(len(whole) + 1)]
    compare(samples)
    for n in (len(whole) - 1, len(whole) - 40, 60, 30):
        compare([(whole[:n], 1, len(whole))])
    decode = decoder()
    decode.decode(batch([s[0] for s in samples], wire=[len(whole)] * len(samples)))
    counts = decode.counters
    assert counts.frames() == len(samples)
    assert counts.roce_packets() + sum(counts.undecodable().values()) >= len(samples) - 60


def test_sflow_cut_after_every_byte_and_with_lengths_that_lie() -> None:
    records = enc.raw_header(roce(1)), enc.raw_header(roce(2))
    datagram = enc.sflow(
        enc.flow_sample(*records), enc.expanded_sample(records[0], rate=5, port=9, way=(1, 9))
    )
    whole = enc.ethernet(0x0800, enc.ipv4(17, enc.udp(6343, datagram)))
    samples = [(whole[:n], 1, len(whole)) for n in range(0, len(whole) + 1, 3)]
    for at in range(42, len(whole) - 4, 4):
        for lie in (0, 3, 0xFFFFFFFF, 0x7FFFFFFC, 100):
            samples.append((whole[:at] + struct.pack(">I", lie) + whole[at + 4 :], 1, len(whole)))
    compare(samples)
    decode = decoder()
    decode.decode(batch([s[0] for s in samples]))
    assert decode.counters.undecodable()["sFlow lengths that contradict each other"] > 50


@pytest.mark.parametrize("depth", [8, 9, 500])
def test_nesting_ends(depth: int) -> None:
    data = roce(7)
    packet = enc.without_ethernet(data)[1]
    for _ in range(depth):
        packet = enc.ipv4(4, packet)
    decode = decoder()
    table = decode.decode(batch([enc.ethernet(0x0800, packet)]))
    if depth <= 8:
        assert len(table) == 1
    else:
        assert decode.counters.undecodable() == {"more than eight encapsulations": 1}


def test_more_samples_than_fit_at_once() -> None:
    """A pass has room for 65,536 frames; these are more, some of them from a second port."""
    records = [enc.raw_header(roce(1), 64)] * 600
    frames = [
        enc.ethernet(0x0800, enc.ipv4(17, enc.udp(6343, enc.sflow(sample))))
        for sample in (enc.flow_sample(*records), enc.flow_sample(*records, port=8, way=(0, 8)))
    ]
    decode = decoder()
    table = decode.decode(batch(frames * 60))
    assert len(table) == 2 * 60 * 600
    assert table.frame_number.tolist() == [n for n in range(1, 121) for _ in range(600)]
    assert np.bincount(table.tap).tolist() == [0, 60 * 600, 60 * 600]


def test_ports_first_met_inside_a_datagram_count_their_samples_once() -> None:
    samples = [enc.flow_sample(enc.raw_header(roce(i), 64), port=i, way=(0, i)) for i in (7, 8, 9)]
    frame = enc.ethernet(0x0800, enc.ipv4(17, enc.udp(6343, enc.sflow(*samples))))
    decode = decoder()
    table = decode.decode(batch([frame, frame]))
    assert table.tap.tolist() == [1, 2, 3, 1, 2, 3]
    counts = decode.counters
    assert (counts.carriers(), counts.inner_frames(), counts.roce_packets()) == (2, 6, 6)
    assert counts.tunnels() == {"sFlow": 6}


def test_frames_before_and_behind_keep_their_order_and_numbers() -> None:
    mirrored = enc.WRAPPERS["field"]
    frames = [roce(0), roce(1), mirrored(roce(2)), roce(3), mirrored(roce(4))]
    decode = decoder()
    for _ in range(2):
        table = decode.decode(batch(frames, first_frame_number=100, base_offset=5000))
        assert table.psn.tolist() == [0, 1, 2, 3, 4]
        assert table.frame_number.tolist() == [100, 101, 102, 103, 104]
        assert table.tap.tolist() == [0, 0, 1, 0, 1]
        assert table.vlan.tolist() == [0, 0, 100, 0, 100]
        data = b"".join(frames)
        for begin, at in zip(table.file_offset - 5000, table.bth_offset, strict=True):
            assert data[begin + at :][:1] == roce(0)[42:43]
    assert decode.counters.frames(0) == 10 and decode.counters.carriers() == 4


def test_what_the_mirror_cut_is_no_contradiction() -> None:
    """With the flag of ERSPAN the length is the packet's own; without it, a mismatch is noted."""
    whole = roce(7, payload=1024)
    for flag in (True, False):
        data = enc.ethernet(0x0800, enc.ipv4(47, enc.erspan3(whole[:80], truncated=flag)))
        decode = decoder()
        table = decode.decode(batch([data]))
        assert table.wire_bytes.tolist() == [len(whole)]
        assert table.payload_bytes.tolist() == [1024]
        assert decode.counters.noted(outcomes.LENGTH_MISMATCHES) == (0 if flag else 1)


def test_other_frames_of_a_mirror_are_counted_at_its_tap() -> None:
    arp = enc.ethernet(0x0806, bytes(28))
    decode = decoder()
    decode.decode(batch([enc.ethernet(0x0800, enc.ipv4(47, enc.erspan2(arp))), roce(1)]))
    assert decode.counters.contents() == [("ARP", 1), ("RoCE", 1)]
    assert decode.counters.frames(1) == 1 and decode.counters.roce_packets(1) == 0


def test_outcomes_have_names() -> None:
    assert len(set(outcomes.UNDECODABLE.values())) == len(outcomes.UNDECODABLE)


# Frames recognised by the headers of a frame before, against the twin's walk and our own.

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
