"""Times from the stamps of mirrors: units, wraps, seconds from elsewhere, taps without."""

from __future__ import annotations

import random
from pathlib import Path

import encapsulations as enc
import numpy as np
import pytest
from batches import batch
from factories import START_NS, Frame, write_pcap

from rocescope.analyzer.decode.mirrors.restore import MirrorOptions, Mirrors
from rocescope.analyzer.errors import RocescopeError
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.wire.registry import Registry
from rocescope.analyzer.wire.taps import Tap, Taps

from ..test_decoder import frame as roce

SECOND = 10**9


def times(frames: list[bytes], capture_ns: list[int], size: int = 1 << 16) -> list[int]:
    """The times after decoding with the hardware clock, in batches of `size`."""
    from rocescope.analyzer.decode.decoder import Decoder

    taps = Taps()
    taps.add(Tap("file", 1))
    decoder = Decoder(Registry(taps=taps), mirrors=Mirrors(MirrorOptions(clock="hardware"), taps))
    found: list[int] = []
    for i in range(0, len(frames), size):
        part = batch(frames[i : i + size], time_ns=capture_ns[i : i + size])
        found += decoder.decode(part).time_ns.tolist()
    return found


def erspan(stamp: int, granularity: int, platform: tuple[int, int] | None = None) -> bytes:
    mirrored = enc.erspan3(
        roce(1), stamp=stamp & 0xFFFFFFFF, granularity=granularity, platform=platform
    )
    return enc.ethernet(0x0800, enc.ipv4(47, mirrored))


@pytest.mark.parametrize(("granularity", "tick_ns"), [(0, 100_000), (1, 100)])
def test_a_counter_is_unwrapped_from_the_capture_time_of_its_first_frame(
    granularity: int, tick_ns: int
) -> None:
    """Over several wraps, with gaps of many periods and frames that overtook each other."""
    rng = random.Random(granularity)
    period = tick_ns << 32
    true, ticks = [], (1 << 32) - 40
    for step in (0, 1, 50, -3, 7, 1000, 3 * (1 << 32) + 5, -2, 1 << 31, 1):
        ticks += step
        true.append(ticks)
    capture = [
        START_NS + (t - true[0]) * tick_ns + rng.randrange(min(period // 4, SECOND)) * (i > 0)
        for i, t in enumerate(true)
    ]
    expected = [START_NS + (t - true[0]) * tick_ns for t in true]
    frames = [erspan(t, granularity) for t in true]
    assert times(frames, capture) == expected
    assert times(frames, capture, size=3) == expected


def test_nanoseconds_of_a_second_take_the_second_of_the_capture() -> None:
    true = [START_NS + i * 100_000_007 for i in range(40)]
    rng = random.Random(1)
    capture = [t + rng.randrange(-400_000_000, 400_000_000) for t in true]
    assert times([erspan(t % SECOND, 2) for t in true], capture) == true


def test_seconds_and_upper_bits_of_the_sub_header() -> None:
    true = [START_NS, START_NS + 1, START_NS + 5 * SECOND]
    late = [t + 3600 * SECOND for t in true]
    with_seconds = [erspan(t % SECOND, 2, (5, t // SECOND)) for t in true]
    assert times(with_seconds, late) == true
    wide = [erspan(t, 2, (3, t >> 32)) for t in true]
    assert times(wide, late) == true
    ticks = [t // 100 for t in true]
    upper = [erspan(t, 1, (7, t >> 32)) for t in ticks]
    assert times(upper, late) == [late[0] + (t - ticks[0]) * 100 for t in ticks]


def test_a_nanosecond_counter_without_seconds_wraps_after_four() -> None:
    true = [3 * SECOND + 5 * i * 10**8 for i in range(30)]
    found = times([erspan(t, 2) for t in true], [START_NS + t for t in true])
    assert np.diff(found).tolist() == [5 * 10**8] * 29


def test_arista_seconds_whole_or_in_part() -> None:
    true = [START_NS + i * SECOND for i in (0, 1, 100)]
    whole = [enc.arista(roce(1), t // SECOND, t % SECOND) for t in true]
    assert times(whole, [t + 10**6 for t in true]) == true
    short = [enc.arista(roce(1), t // SECOND, t % SECOND, wide=False) for t in true]
    assert times(short, [t + 10**6 for t in true]) == true


def test_a_clock_that_was_never_set_counts_from_the_first_frame() -> None:
    frames = [enc.arista(roce(1), 100 + i, 7) for i in range(3)]
    capture = [START_NS + i * SECOND + i * 1000 for i in range(3)]
    assert times(frames, capture) == [START_NS + i * SECOND for i in range(3)]


def test_units_of_the_switch_alone_and_plain_frames_keep_capture_time() -> None:
    frames = [erspan(5, 3), roce(1), erspan(77, 1)]
    assert times(frames, [START_NS, START_NS + 1, START_NS + 2]) == [
        START_NS,
        START_NS + 1,
        START_NS + 2,
    ]


def stamped_file(path: Path, order: list[int]) -> Path:
    """Packets 0, 1, 2, ... of one flow, 1 us apart, captured in `order`."""
    frames = []
    for position, n in enumerate(order):
        mirrored = enc.erspan3(roce(n, payload=8), stamp=n * 10, granularity=1)
        data = enc.ethernet(0x0800, enc.ipv4(47, mirrored))
        frames.append(Frame(START_NS + position * 1000, data))
    return write_pcap(path, frames)


def test_what_the_mirror_reordered_is_put_right(tmp_path: Path) -> None:
    order = [n ^ 1 for n in range(200)]
    path = stamped_file(tmp_path / "mirror.pcap", order)
    as_captured = analyze([str(path)], AnalyzeOptions()).flows[0]
    by_switch = analyze([str(path)], AnalyzeOptions(mirror=MirrorOptions(clock="hardware"))).flows[
        0
    ]
    assert as_captured.reordered_packets
    assert by_switch.reordered_packets == 0 and by_switch.packets == 200


def test_without_any_stamp_it_says_so_in_one_line(tmp_path: Path) -> None:
    path = write_pcap(tmp_path / "plain.pcap", [Frame(START_NS, roce(1))])
    with pytest.raises(RocescopeError, match=r"plain\.pcap: no packet has a hardware timestamp"):
        analyze([str(path)], AnalyzeOptions(mirror=MirrorOptions(clock="hardware")))


def test_taps_without_stamps_are_named(tmp_path: Path) -> None:
    frames = [Frame(START_NS, roce(1)), Frame(START_NS + 1000, erspan(5, 0))]
    path = write_pcap(tmp_path / "mixed.pcap", frames)
    found = analyze([str(path)], AnalyzeOptions(mirror=MirrorOptions(clock="hardware")))
    text = "\n".join(found.warnings)
    assert "mixed.pcap: 1 packets have no hardware timestamp and keep capture time" in text
    assert "its hardware timestamps have a resolution of 100 us" in text
