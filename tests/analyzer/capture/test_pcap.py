"""Classic pcap: formats, byte orders, and the compiled walk against its plain-Python twin."""

from __future__ import annotations

import io
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import dpkt
import numpy as np
import pytest
from factories import START_NS, Frame, pcap_bytes, some_frames, write_pcap
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.capture import pcap
from rocescope.analyzer.capture.bytestream import Window
from rocescope.analyzer.capture.framing import Counts
from rocescope.analyzer.wire.taps import Taps

from . import twin
from .reading import Bites, Row, read, rows_of

FRAMES = some_frames(40)


def read_in_bites(
    data: bytes, sizes: list[int], batch_frames: int
) -> tuple[list[Row], Counts, Taps]:
    """A pcap read from a stream that hands out pieces of the given sizes."""
    window = Window(Bites(data, sizes), 0)
    window.ensure(pcap.HEADER_BYTES)
    header = pcap.parse_header(window.data[: pcap.HEADER_BYTES].tobytes())
    window.start = pcap.HEADER_BYTES
    taps = Taps()
    tap = taps.add(pcap.tap_of(header, "bites"))
    framing = pcap.PcapFraming(window, "bites", batch_frames, header, taps, tap)
    return rows_of(framing.batches()), framing.counts, taps


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("nanoseconds", [True, False])
@pytest.mark.parametrize("modified", [True, False])
def test_every_kind_gives_the_frames_that_were_written(
    tmp_path: Path, order: str, nanoseconds: bool, modified: bool
) -> None:
    options = {"order": order, "nanoseconds": nanoseconds, "modified": modified}
    path = write_pcap(tmp_path / "x.pcap", FRAMES, snap_length=96, **options)
    taps = Taps()
    rows, capture = read(path, taps, batch_frames=7)
    tick = 1 if nanoseconds and not modified else 1000
    assert [(r.time_ns, r.wire, r.data) for r in rows] == [
        (f.time_ns // tick * tick, f.wire_bytes, f.data) for f in FRAMES
    ]
    assert [r.number for r in rows] == list(range(1, 41))
    assert {(r.tap, r.link_type) for r in rows} == {(0, 1)}
    whole = path.read_bytes()
    assert all(whole[r.offset : r.offset + r.captured] == r.data for r in rows)
    assert (capture.format, capture.compression, capture.warnings) == ("pcap", None, [])
    assert (capture.frames, capture.truncated_frames) == (40, 13)
    tap = taps[0]
    assert (tap.name, tap.link_type, tap.snap_length, tap.frames) == ("x.pcap", 1, 96, 40)
    assert tap.dropped is None and tap.speed_bits_per_second is None


def test_files_written_by_dpkt(tmp_path: Path) -> None:
    path = tmp_path / "dpkt.pcap"
    with path.open("wb") as out:
        writer = dpkt.pcap.Writer(out, nano=True)
        for i in range(20):
            writer.writepkt(bytes(60 + i), ts=1_700_000_000 + i / 4)
    rows, _ = read(path)
    assert [(r.time_ns, r.captured, r.wire) for r in rows] == [
        (1_700_000_000 * 10**9 + i * 250_000_000, 60 + i, 60 + i) for i in range(20)
    ]


@pytest.mark.parametrize("name", ["c05_rc_atomic_fetchadd.atB.pcap", "c10_rping_ipv4.atB.pcap"])
def test_real_captures_equal_dpkt(data: Path, name: str) -> None:
    rows, _ = read(data / name, batch_frames=1000)
    reader = dpkt.pcap.Reader(io.BytesIO((data / name).read_bytes()))
    expected = [(round(ts * 10**9), frame) for ts, frame in reader]
    # dpkt's time is a Decimal of seconds.
    assert [(r.time_ns, r.data) for r in rows] == expected


def test_real_capture_equals_tshark(data: Path, need_tool: Callable[[str], str]) -> None:
    path = data / "c10_rping_ipv4.atB.pcap"
    fields = ["frame.number", "frame.time_epoch", "frame.len", "frame.cap_len"]
    command = [need_tool("tshark"), "-r", str(path), "-T", "fields"]
    command += [part for name in fields for part in ("-e", name)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")
    rows, _ = read(path)
    ours = [
        f"{r.number}\t{r.time_ns // 10**9}.{r.time_ns % 10**9:09d}\t{r.wire}\t{r.captured}"
        for r in rows
    ]
    assert ours == lines[:-1]


def test_zero_length_records_are_frames(tmp_path: Path) -> None:
    frames = [Frame(START_NS, b""), Frame(START_NS, b"", 64), Frame(START_NS, b"abc")]
    rows, capture = read(write_pcap(tmp_path / "x", frames))
    assert [(r.captured, r.wire) for r in rows] == [(0, 0), (0, 64), (3, 3)]
    assert capture.warnings == []


@pytest.mark.parametrize("order", ["<", ">"])
def test_a_length_of_zero_on_the_wire_is_the_captured_one(tmp_path: Path, order: str) -> None:
    """All records of a writer that does not set the field, or some."""
    path = tmp_path / "x"
    for unsized in (range(40), (3, 4, 20)):
        frames = [
            Frame(f.time_ns, f.data, 0 if i in unsized else f.wire) for i, f in enumerate(FRAMES)
        ]
        write_pcap(path, frames, order=order)
        rows, capture = read(path, batch_frames=9)
        assert [r.data for r in rows] == [f.data for f in FRAMES]
        assert [r.wire for r in rows] == [f.wire_bytes or len(f.data) for f in frames]
        assert capture.damaged_places == 0
        assert capture.warnings == [
            f"x: {len(unsized)} frames have 0 as their length on the wire;"
            " the captured length is used"
        ]


def test_reading_resumes_among_records_without_a_length(tmp_path: Path) -> None:
    data = bytearray(pcap_bytes([Frame(f.time_ns, f.data, 0) for f in FRAMES]))
    bad = 24 + sum(16 + len(f.data) for f in FRAMES[:10])
    data[bad + 8 : bad + 12] = struct.pack("<I", 5_000_000)
    path = tmp_path / "x"
    path.write_bytes(data)
    rows, capture = read(path, batch_frames=8)
    assert [r.data for r in rows] == [f.data for i, f in enumerate(FRAMES) if i != 10]
    assert capture.damaged_places == 1


KINDS = [(order, kind) for order in "<>" for kind in ("micro", "nano", "modified")]


def part(frames: list[Frame], order: str, kind: str) -> bytes:
    return pcap_bytes(frames, order=order, nanoseconds=kind == "nano", modified=kind == "modified")


@pytest.mark.parametrize(("order", "kind"), KINDS)
def test_files_joined_with_cat(tmp_path: Path, order: str, kind: str) -> None:
    """Of any byte order and time unit; several, one of them without a record."""
    path = tmp_path / "x"
    parts = [part(FRAMES[:10], "<", "nano"), part(FRAMES[10:25], order, kind)]
    parts += [part([], ">", "micro"), part(FRAMES[25:], "<", "micro")]
    path.write_bytes(b"".join(parts))
    taps = Taps()
    rows, capture = read(path, taps, batch_frames=7)
    assert [r.data for r in rows] == [f.data for f in FRAMES]
    assert [r.number for r in rows] == list(range(1, 41))
    assert all(0 <= f.time_ns - r.time_ns < 1000 for r, f in zip(rows, FRAMES, strict=True))
    assert [(tap.name, tap.frames) for tap in taps.items] == [("x", 40)]
    begins = [sum(map(len, parts[:n])) for n in (1, 2, 3)]
    assert capture.warnings == [
        f"x: another capture begins at byte {at}: captures were joined; its file header is skipped"
        for at in begins
    ]
    assert (capture.damaged_places, capture.truncated_frames) == (0, 13)


def test_many_joined_files_are_told_once(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(pcap_bytes(FRAMES[:2]) * 20)
    rows, capture = read(path)
    assert len(rows) == 40 and len(capture.warnings) == 9
    assert capture.warnings[-1] == "x: 11 more captures were joined"


@pytest.mark.parametrize(("order", "kind"), KINDS)
def test_a_file_joined_to_one_that_is_cut_short(tmp_path: Path, order: str, kind: str) -> None:
    """The header of the second file is found again behind the half record."""
    path = tmp_path / "x"
    first = pcap_bytes([*FRAMES[:10], Frame(START_NS, bytes(2000))])
    path.write_bytes(first[:-1990] + part(FRAMES[10:], order, kind))
    rows, capture = read(path)
    # The half record takes bytes of the second file; its own frames follow one by one.
    assert [r.data for r in rows[:10]] == [f.data for f in FRAMES[:10]]
    found = {r.data for r in rows}
    path.write_bytes(first[:-2010] + part(FRAMES[10:], order, kind))  # cut in a record header
    rows, capture = read(path)
    assert [r.data for r in rows] == [f.data for f in FRAMES]
    assert capture.damaged_places == 1 and len(found) >= 10


def test_a_magic_number_in_a_frame_begins_no_file(tmp_path: Path) -> None:
    frames = [Frame(START_NS + i, pcap_bytes([]) * 3) for i in range(5)]
    rows, capture = read(write_pcap(tmp_path / "x", frames))
    assert [r.data for r in rows] == [f.data for f in frames] and not capture.warnings
    # Seconds that are a magic number in the other byte order: 23 January 2011.
    frames = [Frame(0x4D3CB2A1 * 10**9 + i, b"ab") for i in range(5)]
    rows, capture = read(write_pcap(tmp_path / "x", frames))
    assert [r.time_ns for r in rows] == [f.time_ns for f in frames] and not capture.warnings


@pytest.mark.parametrize(
    ("snap", "size", "good"),
    [
        (262_144, 262_144, True),
        (65_535, 262_144, True),  # as libpcap reads it
        (262_144, 262_145, False),
        (0, 262_145, False),
        (524_288, 305_933, True),
        (524_288, 524_288, True),
        (524_288, 524_289, False),
        (0x7FFFFFFF, 1_000_000, True),
        (0x7FFFFFFF, (1 << 20) - 64, True),
        (0xFFFFFFFF, (1 << 20) - 63, False),
        (0xFFFFFFFF, 0x7FFFFFFF, False),
    ],
)
def test_the_longest_record_follows_the_snap_length(
    tmp_path: Path, snap: int, size: int, good: bool
) -> None:
    """Never longer than the window: a hostile length ends in a search, not in memory."""
    path = tmp_path / "x"
    data = bytes(i % 251 for i in range(min(size, 1 << 20)))
    head = struct.pack("<IIII", START_NS // 10**9, 0, size, size)
    large = head + data
    path.write_bytes(pcap_bytes(FRAMES[:5], snap_length=snap) + large + pcap_bytes(FRAMES[5:])[24:])
    rows, capture = read(path, batch_frames=16)
    assert capture.damaged_places == (0 if good else 1)
    expected = [f.data for f in FRAMES]
    assert [r.data for r in rows] == (expected[:5] + [data] + expected[5:] if good else expected)


def test_disorder_and_clock_steps_are_counted(tmp_path: Path) -> None:
    times = [0, 5, 3, 4, 10**10, 10**10 - 5, 10**10 - 10**9 - 6, 10**10]
    frames = [Frame(START_NS + t, b"x") for t in times]
    _, capture = read(write_pcap(tmp_path / "x", frames), batch_frames=3)
    assert (capture.out_of_order_frames, capture._framing.counts.clock_steps) == (3, 1)


def test_frame_check_sequence_flag_and_raw_aliases(tmp_path: Path) -> None:
    for stored, link_type in ((0x14000001, 1), (12, 101), (14, 101), (228, 228)):
        rows, _ = read(write_pcap(tmp_path / "x", FRAMES[:1], link_type=stored))
        assert rows[0].link_type == link_type


def test_a_cut_at_every_byte_keeps_what_is_before() -> None:
    data = pcap_bytes(FRAMES[:6])
    ends = [24]
    for frame in FRAMES[:6]:
        ends.append(ends[-1] + 16 + len(frame.data))
    for cut in range(24, len(data) + 1):
        rows, counts, _ = read_in_bites(data[:cut], [1 << 20], 100)
        whole = sum(end <= cut for end in ends) - 1
        assert [r.data for r in rows] == [f.data for f in FRAMES[:whole]]
        if cut in ends:
            assert counts.warnings == []
        else:
            assert counts.warnings == [
                f"bites ends inside the record at byte {ends[whole]} (cut short):"
                " everything before it is reported"
            ]


@pytest.mark.parametrize("order", ["<", ">"])
def test_reading_resumes_behind_an_impossible_length(tmp_path: Path, order: str) -> None:
    data = bytearray(pcap_bytes(FRAMES, order=order))
    bad = 24 + sum(16 + len(f.data) for f in FRAMES[:10])
    data[bad + 8 : bad + 12] = struct.pack(f"{order}I", 5_000_000)
    path = tmp_path / "x"
    path.write_bytes(data)
    rows, capture = read(path, batch_frames=16)
    assert [r.data for r in rows] == [f.data for i, f in enumerate(FRAMES) if i != 10]
    assert [r.number for r in rows] == list(range(1, 40))
    assert capture.damaged_places == 1
    skipped = 16 + len(FRAMES[10].data)
    assert capture.warnings == [
        f"x is damaged: impossible record at byte {bad}; {skipped} bytes skipped"
    ]


def test_a_long_zero_filled_hole_is_stepped_over(tmp_path: Path) -> None:
    path = tmp_path / "x"
    hole = bytes(3 << 20)
    path.write_bytes(pcap_bytes(FRAMES[:5]) + hole + pcap_bytes(FRAMES[5:])[24:])
    rows, capture = read(path, batch_frames=8)  # the window is 1 MiB
    assert [r.data for r in rows] == [f.data for f in FRAMES]
    assert capture.damaged_places == 1
    assert f"{len(hole)} bytes skipped" in capture.warnings[0]


def test_damage_up_to_the_end_is_told_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "x"
    good = pcap_bytes(FRAMES[:5])
    path.write_bytes(good + b"\xff" * 5000)
    rows, capture = read(path)
    assert len(rows) == 5
    assert capture.warnings == [
        f"x is damaged: impossible record at byte {len(good)};"
        " no record found after it, reading ended there"
    ]


def test_only_the_first_damages_are_told_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "x"
    pair = pcap_bytes(FRAMES[:2])[24:]
    path.write_bytes(pcap_bytes([]) + (pair + b"\xff" * 50) * 20 + pair)
    rows, capture = read(path)
    assert len(rows) == 42 and capture.damaged_places == 20
    assert len(capture.warnings) == 9
    assert capture.warnings[-1] == "x is damaged in 12 more places"


records = st.tuples(
    st.integers(0, 2**32 - 1),
    st.one_of(st.integers(0, 999_999), st.integers(0, 2**32 - 1)),
    st.binary(max_size=60),
    st.one_of(st.none(), st.integers(0, 2**32 - 1)),
)
magics = st.sampled_from([0xA1B2C3D4, 0xA1B23C4D, 0xA1B2CD34])
corruptions = st.lists(st.tuples(st.integers(24, 3000), st.binary(min_size=1, max_size=6)))


@given(
    records=st.lists(records, max_size=30),
    steady=st.booleans(),
    order=st.sampled_from("<>"),
    magic=magics,
    corruptions=corruptions,
    cut=st.integers(0, 40),
    sizes=st.lists(st.integers(1, 400), min_size=1, max_size=5),
    batch_frames=st.integers(1, 40),
    joints=st.dictionaries(st.integers(0, 30), st.tuples(st.sampled_from("<>"), magics)),
    unsized=st.booleans(),
)
def test_walk_equals_its_twin(
    records: list[tuple[int, int, bytes, int | None]],
    steady: bool,
    order: str,
    magic: int,
    corruptions: list[tuple[int, bytes]],
    cut: int,
    sizes: list[int],
    batch_frames: int,
    joints: dict[int, tuple[str, int]],
    unsized: bool,
) -> None:
    data = bytearray(struct.pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, 0, 1))
    for i, (seconds, fraction, body, wire) in enumerate(records):
        if i in joints:
            order, magic = joints[i]
            data += struct.pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, 0, 1)
        if steady:  # believable neighbours, so that reading can resume
            seconds, fraction, wire = 1_700_000_000 + i, fraction % 1_000_000, len(body) + 1
            wire = 0 if unsized else wire
        length = len(body) if wire is None else wire
        data += struct.pack(f"{order}IIII", seconds, fraction, len(body), length)
        data += bytes(8 if magic == 0xA1B2CD34 else 0) + body
    for at, junk in corruptions:
        if at + len(junk) <= len(data):
            data[at : at + len(junk)] = junk
    whole = bytes(data[: max(24, len(data) - cut)])
    expected = twin.read_pcap(whole)
    rows, counts, taps = read_in_bites(whole, sizes, batch_frames)
    assert [(r.time_ns, r.captured, r.wire, r.offset) for r in rows] == expected.frames
    assert all(whole[r.offset : r.offset + r.captured] == r.data for r in rows)
    assert counts.damaged_places == len(expected.damaged_at)
    named = [line for line in counts.warnings if "impossible record" in line]
    for line, at in zip(named, expected.damaged_at, strict=False):
        assert f"at byte {at};" in line
    cuts = [line for line in counts.warnings if "cut short" in line]
    assert bool(cuts) == (expected.cut_at is not None)
    assert not cuts or f"at byte {expected.cut_at} " in cuts[0]
    joined = [line for line in counts.warnings if "another capture begins" in line]
    for line, at in zip(joined, expected.joined_at, strict=False):
        assert f"at byte {at}:" in line
    assert len(joined) == min(len(expected.joined_at), 8)
    times = np.array([f[0] for f in expected.frames], dtype=object)
    assert counts.out_of_order_frames == sum(times[1:] < times[:-1])
    assert counts.clock_steps == sum(times[1:] < times[:-1] - 10**9)
    assert counts.truncated_frames == sum(c < w for _, c, w, _ in expected.frames)
    assert taps[0].frames == len(rows) == counts.frames
