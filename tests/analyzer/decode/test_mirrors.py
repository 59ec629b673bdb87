"""Repeated packets: against a dictionary in plain Python, over batches."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import encapsulations as enc
import numpy as np
import pytest
from batches import batch
from examples import examples
from factories import START_NS, Frame, write_pcap
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.decode.mirrors import (
    Duplicates,
    MirrorOptions,
    Mirrors,
    SwitchCounters,
    check_switch,
    read_switch_counters,
)
from rocescope.analyzer.errors import RocescopeError, UnreadableInput
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.results.analysis import Analysis
from rocescope.analyzer.wire.packets import PacketTable
from rocescope.analyzer.wire.registry import Registry
from rocescope.analyzer.wire.taps import Tap, Taps

from .test_decoder import frame as roce

# Repeated packets: against a dictionary in plain Python, over batches.

FIELDS = ("src", "dst", "udp_sport", "ip_id", "opcode", "dest_qp", "psn")
PACKETS = st.lists(
    st.tuples(st.integers(0, 300), *(st.integers(0, 1) for _ in FIELDS)), max_size=60
)


@examples(60)
@given(PACKETS, st.integers(1, 100), st.integers(1, 60))
def test_keeps_what_a_dictionary_keeps(
    packets: list[tuple[int, ...]], within: int, size: int
) -> None:
    """Two packets may have one place in the table, by chance; hardly with three salts."""
    seen: dict[tuple[int, ...], int] = {}
    expected = []
    for i, (time, *fields) in enumerate(packets):
        key = tuple(fields)
        if key not in seen or abs(time - seen[key]) > within:
            seen[key] = time
            expected.append(i)
    kept: list[list[int]] = []
    while expected not in kept and len(kept) < 3:
        duplicates = Duplicates(within)
        kept.append([])
        for start in range(0, len(packets), size):
            part = packets[start : start + size]
            table = PacketTable.zeros(len(part))
            table.frame_number[:] = np.arange(start, start + len(part))
            for row, (time, *fields) in enumerate(part):
                table.time_ns[row] = time
                for name, value in zip(FIELDS, fields, strict=True):
                    getattr(table, name)[row] = value
            kept[-1] += duplicates.without(table).frame_number.tolist()
        assert duplicates.dropped == len(packets) - len(kept[-1])
    assert kept[-1] == expected


# Times from the stamps of mirrors: units, wraps, seconds from elsewhere, taps without.

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


# Lumina's mirrors, as the switch sends them and as its dumper writes them.

RAW_PORT = 9741


def mirrored(number: int, time_ns: int, psn: int, event: int = 0, raw: bool = False) -> bytes:
    """One mirrored packet: number and time in the addresses, the event in the TTL."""
    data = bytearray(roce(psn, sport=0xC123))
    data[:12] = time_ns.to_bytes(6, "big") + number.to_bytes(6, "big")
    data[22] = event
    data[15] = 2  # ECT(0)
    if raw:
        struct.pack_into(">HHHH", data, 34, number * 7 & 0xFFFF, RAW_PORT, len(data) - 34, 0xC123)
    elif event == 2:
        data[15] = 3
    return bytes(data)


def lumina(tmp_path: Path, *files: list[bytes]) -> Analysis:
    paths = []
    for n, frames in enumerate(files):
        records = [Frame(START_NS + i, data) for i, data in enumerate(frames)]
        paths.append(str(write_pcap(tmp_path / f"dumper{n}.pcap", records)))
    options = AnalyzeOptions(udp_ports=(4791, RAW_PORT), mirror=MirrorOptions(format="lumina"))
    return analyze(paths, options)


@pytest.mark.parametrize("raw", [True, False])
def test_fields_are_restored(tmp_path: Path, raw: bool) -> None:
    events = [0, 1, 0, 2, 3, 0]
    frames = [mirrored(5 + i, 10**9 + 80 * i, i, e, raw) for i, e in enumerate(events)]
    found = lumina(tmp_path, frames)
    (flow,) = found.flows
    assert flow.packets == 6 and flow.ecn_marked_packets == 1
    assert [path.path for path in flow.paths] == ["49443"]  # 0xC123
    assert (flow.first_time_ns, flow.last_time_ns) == (10**9, 10**9 + 400)
    checks = found.mirror_checks
    assert checks.injected == {"drop": 1, "ecn_mark": 1, "bit_error": 1}
    assert (checks.packets, checks.lost_packets, checks.gaps) == (6, 0, 0)
    assert (checks.out_of_order_packets, checks.times_backwards) == (0, 0)
    assert found.warnings == []


def test_gaps_in_the_numbers_are_told_first(tmp_path: Path) -> None:
    numbers = [1, 2, 5, 6, 9, 8, 10]
    times = [100, 200, 300, 249, 400, 500, 600]
    frames = [mirrored(n, t, i) for i, (n, t) in enumerate(zip(numbers, times, strict=True))]
    found = lumina(tmp_path, frames)
    checks = found.mirror_checks
    assert (checks.lost_packets, checks.gaps) == (3, 3)
    assert (checks.out_of_order_packets, checks.times_backwards) == (1, 1)
    # By number the times are 100, 200, 300, 249, 500, 400, 600, all of one sender.
    assert checks.direction_times_backwards == 2
    assert found.warnings[0].startswith("the mirror lost 3 of 10 packets")


def test_numbers_wrap_to_one(tmp_path: Path) -> None:
    numbers = [0x7FFFFFFE, 0x7FFFFFFF, 1, 2, 4]
    found = lumina(tmp_path, [mirrored(n, 100 * i, i) for i, n in enumerate(numbers)])
    assert (found.mirror_checks.lost_packets, found.mirror_checks.gaps) == (1, 1)


def test_two_dumpers_share_the_numbers(tmp_path: Path) -> None:
    frames = [mirrored(1 + i, 10**6 + 100 * i, i) for i in range(40)]
    found = lumina(tmp_path, frames[::2], frames[1::2])
    assert found.mirror_checks.lost_packets == 0
    assert found.flows[0].packets == 40 and found.flows[0].reordered_packets == 0
    less = lumina(tmp_path, frames[::2], frames[1:20:2] + frames[25::2])
    assert less.mirror_checks.lost_packets == 2


def test_a_capture_of_something_else_is_found_out(tmp_path: Path) -> None:
    found = lumina(tmp_path, [mirrored(1 + i, 100 * i, i, 64) for i in range(5)])
    assert "is this a Lumina mirror?" in " ".join(found.warnings)


# Counters of Lumina's switch.

TEXT = "counter: {ingress: {132: 100, 148: 50}, egress: {132: 50, 148: 100, 60: 90, 61: 60}}"


@pytest.fixture
def read(tmp_path):
    def reading(text):
        file = tmp_path / "switch_state_snapshot.yml"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_switch_counters(file)

    return reading


def test_ports_that_only_send_are_mirror_ports(read):
    counters = read(TEXT)
    assert counters.ingress == {"132": 100, "148": 50}
    check = check_switch(counters, captured=150)
    assert check.mirror_ports == ["60", "61"] and check.agrees
    assert (check.received_packets, check.mirrored_packets) == (150, 150)
    assert not check_switch(counters, captured=149).agrees


def test_a_mirror_that_lost_packets():
    counters = SwitchCounters({"1": 100}, {"2": 100, "9": 99})
    check = check_switch(SwitchCounters({"1": 100, "2": 1}, counters.egress), captured=99)
    assert (check.mirror_ports, check.mirrored_packets, check.agrees) == (["9"], 99, False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("counter: [", "is not YAML"),
        ("a: &a [*a]\n- b", "is not YAML"),
        (b"\xff\xfe\x00", "is not YAML"),
        ("", "expected counter with ingress and egress"),
        ("- 1", "expected counter with ingress and egress"),
        ("counter: 7", "expected counter with ingress and egress"),
        ("counter: {ingress: {1: 5}}", "no egress"),
        ("counter: {ingress: {}, egress: {1: 5}}", "no ingress"),
        ("counter: {ingress: {1: -5}, egress: {1: 5}}", "port 1 is not a number of packets"),
        ("counter: {ingress: {1: yes}, egress: {1: 5}}", "port 1 is not a number of packets"),
        ("counter: {ingress: {1: 5}, egress: {x: 1.5}}", "port x is not a number of packets"),
    ],
)
def test_other_files(text, message, read):
    with pytest.raises(UnreadableInput, match=message):
        read(text)


def test_a_missing_file(tmp_path):
    with pytest.raises(UnreadableInput, match="no such file"):
        read_switch_counters(tmp_path / "none.yml")
