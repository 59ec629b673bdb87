"""Pause frames: counts and paused time on a fixed clock."""

from __future__ import annotations

import struct
from itertools import pairwise

from batches import batch, decoder
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.decode.decoder import Decoder
from rocescope.analyzer.decode.headers.pause import MOST_SPANS
from rocescope.analyzer.results.captures import Pause, PauseSpan

RATE = 400_000_000_000
BEGIN = 1_000_000
QUANTUM_NS = 1.28  # 512 bit times at 400 Gbit/s
DESTINATION = bytes.fromhex("0180c2000001") + bytes(6) + b"\x88\x08"


def pfc(timers: dict[int, int]) -> bytes:
    vector = sum(1 << priority for priority in timers)
    times = [timers.get(priority, 0) for priority in range(8)]
    return (DESTINATION + struct.pack(">HH8H", 0x0101, vector, *times)).ljust(60, b"\0")


def global_pause(time: int) -> bytes:
    return (DESTINATION + struct.pack(">HH", 1, time)).ljust(60, b"\0")


def pauses(*frames: tuple[int, bytes], speed: int | None = RATE, **options: int) -> Decoder:
    dec = decoder(speed=speed, **options)
    times = [BEGIN + at for at, _ in frames]
    assert len(dec.decode(batch([frame for _, frame in frames], time_ns=times))) == 0
    return dec


def test_time_runs_out() -> None:
    dec = pauses((0, pfc({3: 1000})), (5000, pfc({3: 1000})))
    assert dec.counters.pause(0) == [
        Pause(
            *(3, 2, 0, 2000, 2 * 1280, BEGIN, BEGIN + 5000, 1, 2),
            [PauseSpan(BEGIN, BEGIN + 1280), PauseSpan(BEGIN + 5000, BEGIN + 6280)],
        )
    ]
    assert dec.counters.pause_frames() == 2
    assert dec.counters.contents() == [("pause (PFC, 802.3x)", 2)]


def test_renewed_pauses_are_one() -> None:
    dec = pauses((0, pfc({3: 1000})), (1000, pfc({3: 1000})), (2000, pfc({3: 1000})))
    assert dec.counters.pause(0)[0].paused_ns == 2000 + 1280


def test_xon_ends_a_pause_early() -> None:
    dec = pauses((0, pfc({3: 0xFFFF})), (700, pfc({3: 0})), (900, pfc({3: 0})))
    assert dec.counters.pause(0) == [
        Pause(3, 3, 2, 0xFFFF, 700, BEGIN, BEGIN, 1, 1, [PauseSpan(BEGIN, BEGIN + 700)])
    ]


def test_a_pause_still_open_at_the_end_counts_its_whole_time() -> None:
    dec = pauses((0, pfc({3: 0xFFFF})))
    assert dec.counters.pause(0)[0].paused_ns == round(0xFFFF * QUANTUM_NS)


def test_priorities_and_global_pause_are_apart() -> None:
    dec = pauses((0, pfc({0: 100, 7: 0})), (0, global_pause(50)))
    assert dec.counters.pause(0) == [
        Pause(0, 1, 0, 100, 128, BEGIN, BEGIN, 1, 1, [PauseSpan(BEGIN, BEGIN + 128)]),
        Pause(7, 1, 1, 0, 0, None, None, None, None, []),
        Pause(None, 1, 0, 50, 64, BEGIN, BEGIN, 2, 2, [PauseSpan(BEGIN, BEGIN + 64)]),
    ]


def test_no_time_without_a_link_rate() -> None:
    (unknown,) = pauses((0, pfc({3: 9})), speed=None).counters.pause(0)
    assert unknown.paused_ns is None and unknown.spans == []
    given = pauses((0, pfc({3: 100})), speed=None, link_bits_per_second=RATE)
    assert given.counters.pause(0)[0].paused_ns == 128


@examples(20)
@given(st.lists(st.tuples(st.integers(0, 100_000), st.sampled_from([0, 100, 1000])), max_size=100))
def test_spans_hold_every_pause(steps):
    """However many there are: pauses close to each other become one."""
    at, frames, whole = 0, [], []
    for gap, quanta in steps:
        at += gap
        frames.append((at, pfc({3: quanta})))
        if whole and at < whole[-1][1]:
            whole[-1][1] = at + round(quanta * QUANTUM_NS)
        elif quanta:
            whole.append([at, at + round(quanta * QUANTUM_NS)])
    (found,) = pauses(*frames).counters.pause(0) if frames else [None]
    if found is None:
        return
    assert len(found.spans) <= MOST_SPANS
    spans = [(span.from_ns, span.until_ns) for span in found.spans]
    assert all(a <= b for a, b in spans)
    assert all(b < c for (_, b), (c, _) in pairwise(spans))
    for begin, end in whole:
        assert any(a <= BEGIN + begin and BEGIN + end <= b for a, b in spans)
    if len(whole) <= MOST_SPANS:
        assert sum(b - a for a, b in spans) == found.paused_ns


def test_frames_out_of_time_order_keep_the_sum_sane() -> None:
    dec = pauses((5000, pfc({3: 1000})), (0, pfc({3: 1000})))
    (found,) = dec.counters.pause(0)
    assert (found.paused_ns, found.first_time_ns, found.last_time_ns) == (1280, BEGIN, BEGIN + 5000)


def test_cut_and_other_mac_control() -> None:
    dec = pauses((0, pfc({3: 9})[:33]), (0, DESTINATION + b"\x00\x02" + bytes(44)))
    assert dec.counters.undecodable() == {"truncated in a pause frame": 1}
    assert dec.counters.contents()[0] == ("MAC control", 1)
    assert dec.counters.pause(0) == []
