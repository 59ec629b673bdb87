"""A rotated series read as one capture."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from factories import START_NS, Frame, Pcapng, pcap_bytes, some_frames, write_pcap, write_pcapng

from rocescope.analyzer.capture.rings import Part, RingCapture, check_twice, concatenated, ring
from rocescope.analyzer.errors import UnreadableInput, UsageError
from rocescope.analyzer.wire.taps import Taps

from .reading import rows_of

# A rotated series read as one capture.

FRAMES = some_frames(60)


def test_a_rotated_series_is_one_tap_in_order_of_time(tmp_path: Path) -> None:
    # Rotation by number: the oldest file has the highest one.
    parts = {"c.pcap2": FRAMES[:20], "c.pcap1": FRAMES[20:25], "c.pcap": FRAMES[25:]}
    paths = [str(write_pcap(tmp_path / name, frames)) for name, frames in parts.items()]
    taps = Taps()
    with concatenated(sorted(paths), taps, batch_frames=7) as capture:
        rows = rows_of(capture.batches())
    assert [(r.time_ns, r.data) for r in rows] == [(f.time_ns, f.data) for f in FRAMES]
    assert [r.number for r in rows] == list(range(1, 61))
    assert capture.parts == [Part(paths[0], 1), Part(paths[1], 21), Part(paths[2], 26)]
    assert [(t.name, t.frames) for t in taps.items] == [("c.pcap2", 60)]
    assert capture.name == "c.pcap2 to c.pcap"
    assert (capture.frames, capture.truncated_frames, capture.out_of_order_frames) == (60, 20, 0)
    assert (capture.format, capture.compression) == ("pcap", None)
    sizes = [(tmp_path / name).stat().st_size for name in parts]
    assert capture.bytes_read == capture.total_bytes == sum(sizes)


def test_offsets_count_within_each_file(tmp_path: Path) -> None:
    paths = [
        write_pcap(tmp_path / "a", FRAMES[:5]),
        write_pcap(tmp_path / "b", FRAMES[5:9]),
    ]
    with concatenated([str(p) for p in paths], Taps()) as capture:
        rows = rows_of(capture.batches())
    for part, after in zip(capture.parts, [6, 10], strict=True):
        data = Path(part.path).read_bytes()
        for row in rows[part.first_frame_number - 1 : after - 1]:
            assert data[row.offset : row.offset + row.captured] == row.data


def test_interfaces_of_one_name_are_one_tap(tmp_path: Path) -> None:
    for i, names in enumerate((("e0", "e1"), ("e1", "e0"), ("e0", "e2"))):
        file = Pcapng().section()
        for name in names:
            file.interface(name=name)
        for interface in (0, 1):
            file.enhanced(START_NS + i, names[interface].encode(), interface=interface)
        file.statistics(0, {5: 1})
        (tmp_path / f"{i}.pcapng").write_bytes(file.bytes())
    taps = Taps()
    with concatenated([str(tmp_path / f"{i}.pcapng") for i in range(3)], taps) as capture:
        rows = rows_of(capture.batches())
    names = [t.name for t in taps.items]
    assert names == ["0.pcapng:e0", "0.pcapng:e1", "0.pcapng:e2"]
    assert all(names[r.tap].endswith(r.data.decode()) for r in rows)
    assert [t.dropped for t in taps.items] == [2, 1, None]


def test_mixed_formats_overlap_and_empty_files(tmp_path: Path) -> None:
    paths = [
        write_pcap(tmp_path / "b", FRAMES[10:20]),
        tmp_path / "a.gz",
        write_pcapng(tmp_path / "c", FRAMES[15:16]),
        write_pcap(tmp_path / "none", []),
    ]
    paths[1].write_bytes(gzip.compress(pcap_bytes(FRAMES[:10])))
    taps = Taps()
    with concatenated([str(p) for p in paths], taps) as capture:
        rows = rows_of(capture.batches())
    assert [r.data for r in rows] == [f.data for f in [*FRAMES[:20], FRAMES[15]]]
    assert capture.out_of_order_frames == 1
    assert (capture.format, capture.compression) == ("mixed", "mixed")
    assert [Path(p.path).name for p in capture.parts] == ["none", "a.gz", "b", "c"]


def test_files_that_begin_together_keep_their_order(tmp_path: Path) -> None:
    paths = []
    for name in "cab":
        paths.append(str(write_pcap(tmp_path / name, [Frame(START_NS, name.encode())])))
    with concatenated(paths, Taps()) as capture:
        assert [r.data for r in rows_of(capture.batches())] == [b"c", b"a", b"b"]


def test_warnings_of_every_file_are_told(tmp_path: Path) -> None:
    paths = []
    for i in range(2):
        path = tmp_path / f"x{i}"
        path.write_bytes(pcap_bytes(FRAMES[i * 10 : i * 10 + 10])[:-2])
        paths.append(str(path))
    with concatenated(paths, Taps()) as capture:
        assert len(rows_of(capture.batches())) == 18
    assert ["cut short" in line for line in capture.warnings] == [True, True]


def test_what_cannot_be_joined(tmp_path: Path) -> None:
    good = str(write_pcap(tmp_path / "x", FRAMES))
    with pytest.raises(UsageError, match="cannot read standard input"):
        concatenated([good, "-"], Taps())
    with pytest.raises(UsageError):
        concatenated([], Taps())
    with pytest.raises(UnreadableInput, match="no such file"):
        concatenated([good, str(tmp_path / "y")], Taps())


def test_stop_ends_after_the_file_being_read(tmp_path: Path) -> None:
    paths = [str(write_pcap(tmp_path / n, FRAMES[i : i + 3])) for i, n in enumerate("ab")]
    with concatenated(paths, Taps()) as capture:
        batches = capture.batches()
        assert len(next(batches)) == 3
        capture.stop()
        assert list(batches) == []


# Ring files of one tap: what is not there is named, the rest is read.

RING_FRAMES = some_frames(60)
SECOND = 1_000_000_000


def files(folder: Path, names: list[str], frames: list[Frame] | None = None) -> list[str]:
    """Frames in equal parts, in order of the names."""
    frames = RING_FRAMES if frames is None else frames
    size = len(frames) // len(names)
    return [
        str(write_pcap(folder / name, frames[n * size : (n + 1) * size]))
        for n, name in enumerate(names)
    ]


def read(paths: list[str], batch_frames: int = 7) -> tuple[list[int], RingCapture]:
    """The times of all frames, and the ring after it was read."""
    taps = Taps()
    with ring(paths, "spine1", taps, batch_frames=batch_frames) as capture:
        times = [row.time_ns for row in rows_of(capture.batches())]
    assert all(tap.gaps == capture.gaps for tap in taps.items)
    return times, capture


def gaps(capture: RingCapture) -> list[tuple[int | None, int | None, str]]:
    return [(gap.from_ns, gap.until_ns, gap.reason) for gap in capture.gaps]


def test_files_in_odd_order_are_one_tap(tmp_path: Path) -> None:
    paths = files(tmp_path, ["r.pcap2", "r.pcap10", "r.pcap0", "r.pcap1"])
    taps = Taps()
    with ring([paths[n] for n in (2, 0, 3, 1)], "spine1", taps) as capture:
        assert [tap.name for tap in taps.items] == ["spine1"]  # before a frame is read
        rows = rows_of(capture.batches())
    assert [row.time_ns for row in rows] == [frame.time_ns for frame in RING_FRAMES]
    assert [(tap.name, tap.frames, tap.gaps) for tap in taps.items] == [("spine1", 60, [])]
    assert capture.name == "spine1 (4 files)"
    assert capture.warnings == []


def test_pcapng_files_have_the_name_of_the_tap(tmp_path: Path) -> None:
    paths = [
        str(write_pcapng(tmp_path / f"{n}.pcapng", RING_FRAMES[n * 30 : n * 30 + 30]))
        for n in range(2)
    ]
    taps = Taps()
    with ring(paths, "spine1", taps) as capture:
        assert sum(len(batch) for batch in capture.batches()) == 60
    assert [(tap.name, tap.frames) for tap in taps.items] == [("spine1", 60)]


NAMES = [f"r_{n:05d}_202611221000{n:02d}.pcap" for n in range(1, 7)]


def test_a_lost_file_is_a_gap_with_its_reason(tmp_path: Path) -> None:
    paths = files(tmp_path, NAMES)
    times, capture = read(paths[:2] + paths[4:])
    assert times == [f.time_ns for f in RING_FRAMES[:20] + RING_FRAMES[40:]]
    reason = f"2 files are missing between {NAMES[1]} and {NAMES[4]}"
    assert gaps(capture) == [(RING_FRAMES[19].time_ns, RING_FRAMES[40].time_ns, reason)]
    (warning,) = capture.warnings
    assert warning.startswith("spine1: nothing captured for ")
    assert warning.endswith(f"({reason}): losses there are unknown")


def test_a_gap_is_told_before_the_first_frame_after_it(tmp_path: Path) -> None:
    """Losses are judged while other files are still to be read."""
    paths = files(tmp_path, NAMES)
    Path(paths[0]).write_bytes(b"")
    Path(paths[2]).write_bytes(Path(paths[2]).read_bytes()[:-5])
    taps = Taps()
    told = []
    with ring(paths[:4] + paths[5:], "spine1", taps) as capture:
        for batch in capture.batches():
            assert taps[0].gaps == capture.gaps
            told.append((int(batch.time_ns[0]), [gap.reason for gap in capture.gaps]))
            assert len([line for line in capture.warnings if "losses" in line]) == len(told[-1][1])
    first, cut = f"{NAMES[0]} cannot be read", f"{NAMES[2]} is cut short or damaged"
    missing = f"1 file is missing between {NAMES[3]} and {NAMES[5]}"
    assert told == [
        (RING_FRAMES[10].time_ns, [first]),
        (RING_FRAMES[20].time_ns, [first]),
        (RING_FRAMES[30].time_ns, [first, cut]),
        (RING_FRAMES[50].time_ns, [first, cut, missing]),
    ]


def test_missing_numbers_are_counted_without_those_that_cannot_be_read(tmp_path: Path) -> None:
    names = [f"cap{n}" for n in (1, 2, 3, 9, 99_999)]
    paths = files(tmp_path, names)
    for n in (5, 7, 100_001):
        (tmp_path / f"cap{n}").touch()
        paths.append(str(tmp_path / f"cap{n}"))
    reasons = [reason for _, _, reason in gaps(read(paths)[1])]
    assert "3 files are missing between cap3 and cap9" in reasons[0]
    assert "99989 files are missing between cap9 and cap99999" in reasons[1]


def test_two_of_three_numbers_are_enough(tmp_path: Path) -> None:
    paths = files(tmp_path, ["cap1", "cap2", "cap3", "cap4"])
    assert gaps(read([paths[0], paths[2], paths[3]])[1]) == [
        (
            RING_FRAMES[14].time_ns,
            RING_FRAMES[30].time_ns,
            "1 file is missing between cap1 and cap3",
        )
    ]


@pytest.mark.parametrize(
    "names",
    [
        ["r_100001.pcap", "r_100002.pcap", "r_100004.pcap"],  # may be 10:00:01, ... of -G 1
        ["r_1795264780.pcap", "r_1795264781.pcap", "r_1795264783.pcap"],
        ["10_58", "10_59", "11_01"],
        ["a1.pcap", "b2.pcap", "c5.pcap"],
        ["cap7", "cap8", "cap0"],  # tcpdump -C -W began anew
    ],
)
def test_other_numbers_count_no_files(tmp_path: Path, names: list[str]) -> None:
    assert gaps(read(files(tmp_path, names))[1]) == []


def test_a_cut_file(tmp_path: Path) -> None:
    paths = files(tmp_path, NAMES[:3])
    data = Path(paths[1]).read_bytes()
    Path(paths[1]).write_bytes(data[: len(data) // 2])
    times, capture = read(paths)
    assert times[:20] == [f.time_ns for f in RING_FRAMES[:20]]
    assert times[-20:] == [f.time_ns for f in RING_FRAMES[40:]]
    last = times[-21]
    reason = f"{NAMES[1]} is cut short or damaged"
    assert gaps(capture) == [(last, RING_FRAMES[40].time_ns, reason)]
    assert capture.damaged_places == 1
    # The last file has no frame after it.
    times, capture = read(paths[:2])
    assert gaps(capture) == [(last, None, reason)]
    assert "nothing captured after its last frame" in capture.warnings[-1]


@pytest.mark.parametrize("batch_frames", [3, 100])
def test_a_damaged_place_hides_the_frames_around_it(tmp_path: Path, batch_frames: int) -> None:
    paths = files(tmp_path, NAMES[:2])
    data = bytearray(Path(paths[0]).read_bytes())
    middle = data.index(RING_FRAMES[14].data) - 16
    data[middle : middle + 16] = b"\xff" * 16
    Path(paths[0]).write_bytes(data)
    times, capture = read(paths, batch_frames)
    assert RING_FRAMES[14].time_ns not in times
    assert capture.damaged_places == 1
    assert any(
        from_ns is not None
        and until_ns is not None
        and from_ns < RING_FRAMES[14].time_ns < until_ns
        and reason == f"{NAMES[0]} is damaged"
        for from_ns, until_ns, reason in gaps(capture)
    )


@pytest.mark.parametrize(
    ("content", "why"),
    [(b"a list of files\n", "is not a capture"), (b"\xa1\xb2\xc3\xd4", "cannot be read")],
)
@pytest.mark.parametrize(("which", "bounds"), [(0, (None, 10)), (2, (19, 30)), (5, (49, None))])
def test_a_file_that_cannot_be_read_is_left_out(
    tmp_path: Path, which: int, bounds: tuple[int | None, int | None], content: bytes, why: str
) -> None:
    paths = files(tmp_path, NAMES)
    Path(paths[which]).write_bytes(content)
    times, capture = read(paths)
    assert times == [f.time_ns for n, f in enumerate(RING_FRAMES) if n // 10 != which]
    begin, end = (None if at is None else RING_FRAMES[at].time_ns for at in bounds)
    assert gaps(capture) == [(begin, end, f"{NAMES[which]} {why}")]
    assert paths[which] in capture.warnings[0]
    assert capture.damaged_places == 1


def test_in_a_ring_that_began_anew_the_place_of_an_unread_file_may_be_both_ends(
    tmp_path: Path,
) -> None:
    paths = files(tmp_path, ["cap2", "cap3", "cap0", "cap1"])
    Path(paths[3]).write_bytes(b"")
    assert gaps(read(paths)[1]) == [
        (None, RING_FRAMES[0].time_ns, "cap1 cannot be read"),
        (RING_FRAMES[44].time_ns, None, "cap1 cannot be read"),
    ]
    paths = files(tmp_path, ["cap2", "cap3", "cap0", "cap1"])
    Path(paths[2]).write_bytes(b"")
    assert gaps(read(paths)[1]) == [
        (RING_FRAMES[29].time_ns, RING_FRAMES[45].time_ns, "cap0 cannot be read")
    ]


def test_no_file_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "a.pcap").touch()
    times, capture = read([str(tmp_path / "a.pcap"), str(tmp_path / "gone.pcap")])
    assert times == []
    assert len(capture.warnings) == capture.damaged_places == 2


def test_a_long_silence_between_files_is_a_gap(tmp_path: Path) -> None:
    def steady(begin_ns: int) -> list[Frame]:
        return [
            frame._replace(time_ns=begin_ns + n * SECOND // 4)
            for n, frame in enumerate(RING_FRAMES[:9])
        ]

    first, late = steady(START_NS), steady(START_NS + 60 * SECOND)
    paths = files(tmp_path, ["a.pcap", "b.pcap"], first + late)
    assert gaps(read([paths[0], paths[1]])[1]) == [
        (first[-1].time_ns, late[0].time_ns, "no frame between a.pcap and b.pcap")
    ]
    # The same silence inside a file is one of the traffic, and then between files, too.
    whole = files(tmp_path, ["c.pcap", "d.pcap"], first + late + steady(late[-1].time_ns + SECOND))
    assert gaps(read(whole)[1]) == []


def test_a_pipe_would_lose_its_beginning(tmp_path: Path) -> None:
    """Files are opened twice: to see which is the first, and to be read."""
    os.mkfifo(tmp_path / "pipe")
    pipe = str(tmp_path / "pipe")
    for reading in (check_twice, lambda paths: concatenated(paths, Taps())):
        with pytest.raises(UsageError, match="joins files and cannot read the pipe .*/pipe: name"):
            reading([pipe])
        with pytest.raises(UsageError, match="joins files and cannot read standard input: name"):
            reading(["-"])


def test_a_file_twice(tmp_path: Path) -> None:
    paths = files(tmp_path, NAMES[:3])
    check_twice(paths)
    copy = tmp_path / "z.pcap"
    copy.write_bytes(Path(paths[1]).read_bytes())
    with pytest.raises(UsageError, match=r"r_00002.* and .*z\.pcap are the same capture"):
        check_twice([*paths, str(copy), str(tmp_path / "gone")])
    copy.unlink()
    copy.symlink_to(paths[2])
    with pytest.raises(UsageError, match="the same capture: give only one"):
        check_twice([*paths, str(copy)])
