"""pcapng: sections, interfaces, block types, and the compiled walk against its twin."""

from __future__ import annotations

import io
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import dpkt
import pytest
from factories import START_NS, Frame, Pcapng, pcapng_bytes, some_frames, write_pcap, write_pcapng
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.capture import pcapng
from rocescope.analyzer.capture.bytestream import Window
from rocescope.analyzer.capture.framing import Counts
from rocescope.analyzer.capture.source import open_capture
from rocescope.analyzer.errors import UnreadableInput
from rocescope.analyzer.wire.packets import FrameBatch
from rocescope.analyzer.wire.taps import Taps

from . import twin
from .reading import Bites, Row, read, rows_of

FRAMES = some_frames(30)


def read_in_bites(
    data: bytes, sizes: list[int], batch_frames: int
) -> tuple[list[Row], Counts, Taps]:
    """A pcapng read from a stream that hands out pieces of the given sizes."""
    window = Window(Bites(data, sizes), 0)
    taps = Taps()
    framing = pcapng.PcapngFraming(window, "bites", "bites", batch_frames, taps, {})
    return rows_of(until_unreadable(framing.batches())), framing.counts, taps


def until_unreadable(batches: Iterator[FrameBatch]) -> Iterator[FrameBatch]:
    """The batches before the error that no frame was of a supported link type."""
    try:
        yield from batches
    except UnreadableInput as error:
        assert "is not supported" in str(error)


def tshark(need_tool: Callable[[str], str], path: Path, *fields: str) -> list[str]:
    command = [need_tool("tshark"), "-r", str(path), "-T", "fields"]
    command += [part for name in fields for part in ("-e", name)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def epoch(time_ns: int) -> str:
    return f"{time_ns // 10**9}.{time_ns % 10**9:09d}"


@pytest.mark.thorough
@pytest.mark.parametrize("order", ["<", ">"])
def test_gives_the_frames_that_were_written(
    tmp_path: Path, order: str, need_tool: Callable[[str], str]
) -> None:
    path = write_pcapng(tmp_path / "x", FRAMES, order=order, name="eth0", speed=400 * 10**9)
    taps = Taps()
    rows, capture = read(path, taps, batch_frames=7)
    assert [(r.time_ns, r.wire, r.data) for r in rows] == [
        (f.time_ns, f.wire_bytes, f.data) for f in FRAMES
    ]
    assert [r.number for r in rows] == list(range(1, 31))
    assert (capture.format, capture.truncated_frames, capture.warnings) == ("pcapng", 10, [])
    tap = taps[0]
    assert (tap.name, tap.frames, tap.snap_length) == ("x:eth0", 30, None)
    assert tap.speed_bits_per_second == 400 * 10**9
    lines = tshark(need_tool, path, "frame.time_epoch", "frame.len", "frame.cap_len")
    assert lines == [f"{epoch(r.time_ns)}\t{r.wire}\t{r.captured}" for r in rows]


def test_each_interface_begins_with_its_own_first_frame(tmp_path: Path) -> None:
    """Merged files: that one interface was captured says nothing about another."""
    file = Pcapng().section().interface(name="early").interface(name="late").interface(name="none")
    for number, (after, interface) in enumerate(((0, 0), (5, 0), (2_000, 1), (2_001, 0))):
        file.enhanced(START_NS + after, FRAMES[number].data, interface=interface)
    path = tmp_path / "x"
    path.write_bytes(file.bytes())
    taps = Taps()
    read(path, taps)
    assert [tap.first_time_ns for tap in taps.items] == [START_NS, START_NS + 2_000, None]


def test_a_clock_that_is_set_back_is_that_of_its_interface(tmp_path: Path) -> None:
    """Those of other interfaces may be behind; a new section continues its interfaces."""
    hour, file = 3_600_000_000_000, Pcapng().section()
    for name in ("a", "b"):
        file.interface(name=name)
    for i, back in enumerate([0, 0, hour, hour]):
        file.enhanced(START_NS + i - back, b"x", interface=0)
        file.enhanced(START_NS + i - 2 * hour, b"x", interface=1)
    file.section().interface(name="b").interface(name="a")
    file.enhanced(START_NS - 3 * hour, b"x", interface=0)
    file.enhanced(START_NS, b"x", interface=1)
    path = tmp_path / "x.pcapng"
    path.write_bytes(file.bytes())
    taps = Taps()
    read(path, taps)
    assert {tap.name[-1]: tap.clock_steps for tap in taps.items} == {"a": 1, "b": 1}


def test_a_rate_no_link_has_is_unknown(tmp_path: Path) -> None:
    """if_speed has 64 bits; what a damaged file claims must not overflow the decoder's int64."""
    for speed in (1 << 63, (1 << 64) - 1):
        taps = Taps()
        read(write_pcapng(tmp_path / "x", FRAMES, speed=speed), taps)
        assert taps[0].speed_bits_per_second is None


def test_sections_interfaces_and_block_types(
    tmp_path: Path, need_tool: Callable[[str], str]
) -> None:
    file = Pcapng().section().interface(name="eth0", resolution=None)  # microseconds
    file.enhanced(1_700_000_000_000_001, b"a" * 61)
    file.block(4, bytes(4)).block(0x80000001, bytes(40_000))
    file.interface(101, name="tun0", resolution=0x80 | 20, offset_seconds=1_700_000_000)
    file.enhanced(5 << 19, b"E" * 40, wire=90, interface=1)
    file.obsolete(1_700_000_000_000_002, b"b" * 30, wire=31)
    file.statistics(0, {4: 99, 5: 3, 7: 4}).statistics(1, {4: 7})
    file.section(">").interface(name="eth0", resolution=6).interface(name="eth1")
    file.enhanced(1_700_000_003_000_000, b"c" * 33)
    file.enhanced(START_NS, b"d" * 34, interface=1)
    file.simple(b"e" * 35, wire=35)
    file.obsolete(START_NS, b"f" * 36, interface=1)
    file.statistics(0, {5: 10}).statistics(0, {5: 11})
    path = tmp_path / "x.pcapng"
    path.write_bytes(file.bytes())
    taps = Taps()
    rows, capture = read(path, taps)
    second = 10**9
    assert [(r.time_ns, r.tap, r.link_type, r.wire, r.data[:1]) for r in rows] == [
        (1_700_000_000 * second + 1000, 0, 1, 61, b"a"),
        (1_700_000_002 * second + second // 2, 1, 101, 90, b"E"),
        (1_700_000_000 * second + 2000, 0, 1, 31, b"b"),
        (1_700_000_003 * second, 0, 1, 33, b"c"),
        (START_NS, 2, 1, 34, b"d"),
        (START_NS, 0, 1, 35, b"e"),
        (START_NS, 2, 1, 36, b"f"),
    ]
    assert [(t.name, t.frames, t.dropped) for t in taps.items] == [
        ("x.pcapng:eth0", 4, 18),
        ("x.pcapng:tun0", 1, None),
        ("x.pcapng:eth1", 2, None),
    ]
    assert capture.warnings == [
        "x.pcapng: 1 simple packet blocks carry no time; they get the time of the previous frame"
    ]
    lines = tshark(need_tool, path, "frame.time_epoch", "frame.len", "frame.cap_len")
    ours = [f"{epoch(r.time_ns)}\t{r.wire}\t{r.captured}" for r in rows]
    assert [a for i, a in enumerate(ours) if i != 5] == [a for i, a in enumerate(lines) if i != 5]


@pytest.mark.thorough
@pytest.mark.parametrize("resolution", [0, 3, 6, 9, 12, 18, 0x80, 0x8A, 0xA0, 0xA1, 0xBE])
def test_time_units(tmp_path: Path, resolution: int, need_tool: Callable[[str], str]) -> None:
    base = 2 if resolution & 0x80 else 10
    units = base ** (resolution & 0x7F)
    most = min(1_700_000_000 * units + units // 3, 2**64 - 1)
    ticks = [0, 1, units - 1, units, most // 7, most]
    file = Pcapng().section().interface(resolution=resolution)
    for value in ticks:
        file.enhanced(value, b"x")
    path = tmp_path / "x"
    path.write_bytes(file.bytes())
    rows, _ = read(path)
    assert [r.time_ns for r in rows] == [value * 10**9 // units for value in ticks]
    if resolution <= 9:  # tshark rounds finer units
        assert [epoch(r.time_ns) for r in rows] == tshark(need_tool, path, "frame.time_epoch")


def test_times_beyond_64_bits_do_not_wrap(tmp_path: Path) -> None:
    for resolution in (0, 6, 0x80, 0x81):
        file = Pcapng().section().interface(resolution=resolution, offset_seconds=1 << 32)
        path = tmp_path / "x"
        path.write_bytes(file.enhanced(2**64 - 1, b"x").bytes())
        assert read(path)[0][0].time_ns == 2**63 - 1


def test_nonsense_time_offset_is_ignored_and_told(tmp_path: Path) -> None:
    path = tmp_path / "x"
    file = Pcapng().section().interface(name="e", offset_seconds=-(1 << 40))
    path.write_bytes(file.enhanced(START_NS, b"x").bytes())
    rows, capture = read(path)
    assert rows[0].time_ns == START_NS
    assert capture.warnings == [f"x:e states a time offset of {-(1 << 40)} s, which is ignored"]


def test_namesakes_in_one_section_are_different_taps(tmp_path: Path) -> None:
    file = Pcapng()
    for _ in range(2):
        file.section().interface(name="e").interface(name="e").interface()
        for interface in (0, 1, 2):
            file.enhanced(START_NS, b"x", interface=interface)
    path = tmp_path / "x"
    path.write_bytes(file.bytes())
    taps = Taps()
    rows, _ = read(path, taps)
    assert [r.tap for r in rows] == [0, 1, 2, 0, 1, 2]
    assert [t.name for t in taps.items] == ["x:e", "x:e", "x:2"]


def test_frames_of_an_unsupported_interface_are_skipped(tmp_path: Path) -> None:
    file = Pcapng().section().interface(name="wlan0", link_type=105).interface(name="eth0")
    for i in range(9):
        file.enhanced(START_NS + i, b"x" * 50, interface=i % 3 > 0)
    path = tmp_path / "x"
    path.write_bytes(file.bytes())
    taps = Taps()
    rows, capture = read(path, taps)
    assert [(r.number, r.captured, r.wire) for r in rows] == [
        (i + 1, 50 if i % 3 else 0, 50) for i in range(9)
    ]
    assert (capture.frames, capture._framing.counts.skipped_frames) == (9, 3)
    assert [(t.name, t.frames) for t in taps.items] == [("x:wlan0", 3), ("x:eth0", 6)]
    assert len(capture.warnings) == 1
    assert capture.warnings[0].startswith(
        "x: 3 frames skipped: link type LINKTYPE_IEEE802_11 (105) is not supported"
    )


def test_stopping_early_still_tells_what_was_skipped(tmp_path: Path) -> None:
    file = Pcapng().section().interface(link_type=105).interface()
    for interface in (0, 1, 1, 1):
        file.enhanced(START_NS, b"x", interface=interface)
    path = tmp_path / "x"
    path.write_bytes(file.bytes())
    with open_capture(str(path), Taps(), batch_frames=2) as capture:
        batches = capture.batches()
        next(batches)
        batches.close()  # type: ignore[attr-defined]
    assert [line[:19] for line in capture.warnings] == ["x: 1 frames skipped"]


@pytest.mark.parametrize(
    ("link_type", "words"),
    [
        (247, "LINKTYPE_INFINIBAND (247) is a native InfiniBand capture, not RoCE"),
        (105, "LINKTYPE_IEEE802_11 (105) is not supported"),
    ],
)
def test_no_supported_interface_is_an_error(tmp_path: Path, link_type: int, words: str) -> None:
    path = write_pcapng(tmp_path / "x", FRAMES, link_type=link_type)
    with pytest.raises(UnreadableInput, match="x: link type") as error:
        read(path)
    assert words in str(error.value) and "\n" not in str(error.value)


def test_files_written_by_dpkt(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with path.open("wb") as out:
        writer = dpkt.pcapng.Writer(out)
        for i in range(10):
            writer.writepkt(bytes(60 + i), ts=1_700_000_000 + i / 4)
    rows, _ = read(path)
    assert [(r.time_ns, r.captured) for r in rows] == [
        ((1_700_000_000 * 4 + i) * 250_000_000, 60 + i) for i in range(10)
    ]


def test_editcap_and_mergecap_files(
    tmp_path: Path, data: Path, need_tool: Callable[[str], str]
) -> None:
    source = data / "c10_rping_ipv4.atB.pcap"
    plain, _ = read(source)
    copy = tmp_path / "copy.pcapng"
    subprocess.run([need_tool("editcap"), "-F", "pcapng", str(source), str(copy)], check=True)
    rows, _ = read(copy, batch_frames=100)
    assert [(r.time_ns, r.wire, r.data) for r in rows] == [
        (r.time_ns, r.wire, r.data) for r in plain
    ]
    other = write_pcap(tmp_path / "o.pcap", FRAMES)
    both = tmp_path / "both.pcapng"
    subprocess.run(
        [
            need_tool("mergecap"),
            "-I",
            "none",
            "-F",
            "pcapng",
            "-w",
            str(both),
            str(source),
            str(other),
        ],
        check=True,
    )
    taps = Taps()
    rows, capture = read(both, taps)
    assert [t.frames for t in taps.items] == [len(plain), len(FRAMES)]
    assert capture.out_of_order_frames == 0
    reader = dpkt.pcapng.Reader(io.BytesIO(both.read_bytes()))
    assert [r.data for r in rows] == [frame for _, frame in reader]


def test_capinfos_agrees_on_a_rotten_tail(tmp_path: Path, need_tool: Callable[[str], str]) -> None:
    path = tmp_path / "x.pcapng"
    path.write_bytes(pcapng_bytes(FRAMES)[:-3])
    rows, _ = read(path)
    said = subprocess.run(
        [need_tool("capinfos"), "-c", "-M", str(path)], capture_output=True, text=True
    )
    count = next(line for line in said.stdout.splitlines() if "packets" in line)
    assert len(rows) == int(count.split(":")[1]) == 29


def test_a_cut_at_every_byte_keeps_what_is_before() -> None:
    file = Pcapng().section().interface()
    ends = [len(file.bytes())]
    for frame in FRAMES[:5]:
        ends.append(len(file.enhanced(frame.time_ns, frame.data).bytes()))
    data = file.bytes()
    for cut in range(28, len(data) + 1):
        rows, counts, _ = read_in_bites(data[:cut], [1 << 20], 100)
        whole = max(0, sum(end <= cut for end in ends) - 1)
        assert [r.data for r in rows] == [f.data for f in FRAMES[:whole]]
        assert bool(counts.warnings) == (cut not in (28, *ends))
        assert all("cut short" in line for line in counts.warnings)


def test_reading_resumes_behind_damage(tmp_path: Path) -> None:
    data = bytearray(pcapng_bytes(FRAMES))
    bad = len(pcapng_bytes(FRAMES[:10]))
    data[bad + 4 : bad + 8] = struct.pack("<I", 1 << 30)
    path = tmp_path / "x"
    path.write_bytes(data)
    rows, capture = read(path)
    assert [r.data for r in rows] == [f.data for i, f in enumerate(FRAMES) if i != 10]
    size = len(pcapng_bytes(FRAMES[:11])) - bad
    assert capture.warnings == [
        f"x is damaged: impossible block at byte {bad}; {size} bytes skipped"
    ]


def test_blocks_longer_than_the_window_are_skipped(tmp_path: Path) -> None:
    file = Pcapng().section().interface().enhanced(START_NS, b"a")
    file.block(0xBAD, bytes(5 << 20)).enhanced(START_NS, b"b")
    path = tmp_path / "x"
    path.write_bytes(file.bytes())
    rows, capture = read(path, batch_frames=10)  # the window is 1 MiB
    assert [r.data for r in rows] == [b"a", b"b"]
    assert capture.warnings == []
    path.write_bytes(file.bytes()[: 3 << 20])
    rows, capture = read(path, batch_frames=10)
    assert [r.data for r in rows] == [b"a"]
    assert "cut short" in capture.warnings[0]


packets = st.tuples(
    st.sampled_from(["enhanced", "simple", "obsolete", "interface", "section", "other", "stats"]),
    st.one_of(st.integers(0, 2**62), st.integers(0, 2**64 - 1)),
    st.binary(max_size=40),
    st.integers(0, 2),
)


def drops_of(file: Pcapng, path: Path) -> list[tuple[str, int | None]]:
    path.write_bytes(file.bytes())
    taps = Taps()
    _, capture = read(path, taps, batch_frames=2)
    assert not capture.damaged_places
    return [(tap.name, tap.dropped) for tap in taps.items]


@pytest.mark.parametrize("order", ["<", ">"])
def test_drop_counts_of_packets_add_up(tmp_path: Path, order: str) -> None:
    """Between this packet and the one before: of its interface, other options before and after."""
    path = tmp_path / "x"
    file = Pcapng(order).section().interface(name="a").interface(name="b").interface(name="c")
    for i, dropped in enumerate((2, 0, None, 3, 1 << 33)):
        file.enhanced(START_NS + i, b"x" * (60 + i), dropped=dropped)
        file.enhanced(START_NS + i, b"y" * 60, interface=1, dropped=0 if i == 3 else None)
        file.enhanced(START_NS + i, b"z" * 60, interface=2)
    assert drops_of(file, path) == [("x:a", 5 + (1 << 33)), ("x:b", 0), ("x:c", None)]


@pytest.mark.parametrize("order", ["<", ">"])
def test_statistics_and_drop_counts_do_not_count_twice(tmp_path: Path, order: str) -> None:
    """The larger of the two: each may cover frames that the other does not."""
    path = tmp_path / "x"
    for by_packets, by_statistics, total in (
        ((2, 3), ({5: 5},), 5),
        ((2, 3), ({5: 1}, {5: 2, 7: 5}), 7),
        ((2, 9), ({5: 2},), 11),
        ((), ({5: 4}, {5: 4}), 4),
    ):
        file = Pcapng(order)
        for _ in range(2):  # the counters of a section begin anew
            file.section().interface(name="a")
            file.enhanced(START_NS, b"x" * 60)
            for dropped in by_packets:
                file.enhanced(START_NS, b"x" * 60, dropped=dropped)
            for drops in by_statistics:
                file.statistics(0, drops)
            file.enhanced(START_NS, b"x" * 60)
        assert drops_of(file, path) == [("x:a", 2 * total)]


def test_drop_counts_that_no_interface_has_are_unknown(tmp_path: Path) -> None:
    path = tmp_path / "x"
    for unknown in ((1 << 64) - 1, 1 << 40, 1 << 63):
        file = Pcapng().section().interface(name="a")
        file.enhanced(START_NS, b"x" * 60, dropped=unknown)
        assert drops_of(file, path) == [("x:a", None)]
        file.statistics(0, {5: unknown, 7: unknown})
        assert drops_of(file, path) == [("x:a", None)]
        file.statistics(0, {5: 2, 7: unknown})
        assert drops_of(file, path) == [("x:a", 2)]


def test_drop_counts_of_obsolete_packet_blocks(tmp_path: Path) -> None:
    """65,535 is unknown; 0 may be that the program does not count."""
    path = tmp_path / "x"
    for order in "<>":
        file = Pcapng(order).section().interface(name="a").interface(name="b")
        for dropped in (0, 3, 0xFFFF, 4):
            file.obsolete(START_NS, b"x", dropped=dropped)
        file.obsolete(START_NS, b"x", interface=1)
        assert drops_of(file, path) == [("x:a", 7), ("x:b", None)]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([None], ["x"]),
        ([""], ["x"]),
        (["eth0"], ["x:eth0"]),
        ([None, None], ["x:0", "x:1"]),
        ([None, "eth0"], ["x:0", "x:eth0"]),
        (["eth0", None], ["x:eth0", "x:1"]),
    ],
)
def test_an_only_interface_without_a_name_has_that_of_the_file(
    tmp_path: Path, names: list[str | None], expected: list[str]
) -> None:
    file = Pcapng()
    for _ in range(2):
        file.section()
        for number, name in enumerate(names):
            file.interface(name=name)
            file.enhanced(START_NS, b"x", interface=number)
    path = tmp_path / "x"
    path.write_bytes(file.bytes())
    taps = Taps()
    read(path, taps)
    assert [tap.name for tap in taps.items] == expected


@pytest.mark.parametrize(
    ("snap", "size", "good"),
    [
        (262_144, 262_145, False),
        (524_288, 305_933, True),
        (0, 305_933, True),  # unlimited
        (0xFFFFFFFF, 1_000_000, True),
        (0, 1 << 20, False),
    ],
)
def test_the_longest_block_follows_the_snap_length(
    tmp_path: Path, snap: int, size: int, good: bool
) -> None:
    file = Pcapng().section().interface(snap_length=snap).enhanced(START_NS, b"a")
    path = tmp_path / "x"
    path.write_bytes(file.enhanced(START_NS, bytes(size)).enhanced(START_NS, b"b").bytes())
    rows, capture = read(path, batch_frames=10)
    assert [r.captured for r in rows] == ([1, size, 1] if good else [1, 1])
    assert capture.damaged_places == (0 if good else 1)


def test_a_length_of_zero_on_the_wire_is_the_captured_one(tmp_path: Path) -> None:
    frames = [Frame(f.time_ns, f.data, 0) for f in FRAMES]
    rows, capture = read(write_pcapng(tmp_path / "x", frames))
    assert [r.wire for r in rows] == [len(f.data) for f in FRAMES]
    assert capture.warnings == [
        "x: 30 frames have 0 as their length on the wire; the captured length is used"
    ]


def build(order: str, packets: list[tuple[str, int, bytes, int]]) -> bytes:
    """A pcapng of the blocks drawn."""
    file = Pcapng(order).section().interface(name="a")
    for kind, number, body, choice in packets:
        if kind == "enhanced":
            file.enhanced(number, body, wire=len(body) + choice, interface=choice // 2)
        elif kind == "simple":
            file.simple(body, wire=len(body) + 5 * choice)
        elif kind == "obsolete":
            file.obsolete(number, body, interface=choice // 2)
        elif kind == "interface":
            link_type = (1, 1, 105)[choice]
            resolution = number % 256
            file.interface(link_type, resolution=resolution, snap_length=choice * 8)
        elif kind == "section":
            file.section("<>"[choice % 2]).interface(name="a", resolution=(9, 6, 0x9E)[choice])
        elif kind == "other":
            file.block((4, 0xBAD, 77)[choice], body)
        else:
            file.statistics(0, {5: choice})
    return file.bytes()


@given(
    packets=st.lists(packets, max_size=25),
    order=st.sampled_from("<>"),
    corruptions=st.lists(st.tuples(st.integers(28, 1500), st.binary(min_size=1, max_size=6))),
    cut=st.integers(0, 40),
    sizes=st.lists(st.integers(1, 400), min_size=1, max_size=5),
    batch_frames=st.integers(1, 40),
)
def test_walk_equals_its_twin(
    packets: list[tuple[str, int, bytes, int]],
    order: str,
    corruptions: list[tuple[int, bytes]],
    cut: int,
    sizes: list[int],
    batch_frames: int,
) -> None:
    data = bytearray(build(order, packets))
    for at, junk in corruptions:
        if at + len(junk) <= len(data):
            data[at : at + len(junk)] = junk
    whole = bytes(data[: max(28, len(data) - cut)])
    expected = twin.read_pcapng(whole)
    rows, counts, taps = read_in_bites(whole, sizes, batch_frames)
    assert [(r.time_ns, r.captured, r.wire, r.offset) for r in rows] == expected.frames
    assert all(whole[r.offset : r.offset + r.captured] == r.data for r in rows)
    assert counts.damaged_places == len(expected.damaged_at)
    cuts = [line for line in counts.warnings if "cut short" in line]
    assert bool(cuts) == (expected.cut_at is not None)
    assert not cuts or f"at byte {expected.cut_at} " in cuts[0]
    assert sum(tap.frames for tap in taps.items) == len(rows) == counts.frames


def test_a_shared_name_gets_the_path(tmp_path: Path) -> None:
    taps = Taps()
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        read(write_pcapng(tmp_path / folder / "x", FRAMES[:1], name="e"), taps)
    shutil.rmtree(tmp_path / "a")
    assert [t.name for t in taps.items] == ["x:e", f"{tmp_path / 'b' / 'x'}:e"]


@pytest.mark.parametrize(
    ("interfaces", "names"), [(["e"], ["up1"]), (["e", "f", "g"], ["up1:e", "up1:f", "up1:g"])]
)
def test_a_given_name_is_that_of_an_only_interface(
    tmp_path: Path, interfaces: list[str], names: list[str]
) -> None:
    file = Pcapng()
    for _ in range(2):
        file.section()
        for number, name in enumerate(interfaces):
            file.interface(name=name)
            file.enhanced(START_NS, b"x", interface=number)
    path = tmp_path / "x"
    path.write_bytes(file.bytes())
    taps = Taps()
    with open_capture(str(path), taps, tap_name="up1") as capture:
        assert sum(len(batch) for batch in capture.batches()) == 2 * len(interfaces)
    assert [tap.name for tap in taps.items] == names


def test_zero_length_frames(tmp_path: Path) -> None:
    rows, _ = read(write_pcapng(tmp_path / "x", [Frame(START_NS, b"", 64), Frame(START_NS, b"")]))
    assert [(r.captured, r.wire) for r in rows] == [(0, 64), (0, 0)]
