"""Frames in mirrors and tunnels against the twin, cut anywhere, nested without end."""

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
from unwrap_twin import unwrap

from rocescope.analyzer.decode import outcomes
from rocescope.analyzer.decode import sessions as ses
from rocescope.analyzer.decode.counters import DecodeCounters
from rocescope.analyzer.decode.unwrapping import Inner, Unwrapper
from rocescope.analyzer.wire.frames import FrameBatch
from rocescope.analyzer.wire.taps import Tap, Taps

from .test_decoder import frame as roce

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
