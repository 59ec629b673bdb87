"""Ring files of one tap: what is not there is named, the rest is read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from factories import START_NS, Frame, some_frames, write_pcap, write_pcapng

from rocescope.analyzer.capture.concat import concatenated
from rocescope.analyzer.capture.ring import RingCapture, check_twice, ring
from rocescope.analyzer.errors import UsageError
from rocescope.analyzer.wire.taps import Taps

from .reading import rows_of

FRAMES = some_frames(60)
SECOND = 1_000_000_000


def files(folder: Path, names: list[str], frames: list[Frame] | None = None) -> list[str]:
    """Frames in equal parts, in order of the names."""
    frames = FRAMES if frames is None else frames
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
    assert [row.time_ns for row in rows] == [frame.time_ns for frame in FRAMES]
    assert [(tap.name, tap.frames, tap.gaps) for tap in taps.items] == [("spine1", 60, [])]
    assert capture.name == "spine1 (4 files)"
    assert capture.warnings == []


def test_pcapng_files_have_the_name_of_the_tap(tmp_path: Path) -> None:
    paths = [
        str(write_pcapng(tmp_path / f"{n}.pcapng", FRAMES[n * 30 : n * 30 + 30])) for n in range(2)
    ]
    taps = Taps()
    with ring(paths, "spine1", taps) as capture:
        assert sum(len(batch) for batch in capture.batches()) == 60
    assert [(tap.name, tap.frames) for tap in taps.items] == [("spine1", 60)]


NAMES = [f"r_{n:05d}_202611221000{n:02d}.pcap" for n in range(1, 7)]


def test_a_lost_file_is_a_gap_with_its_reason(tmp_path: Path) -> None:
    paths = files(tmp_path, NAMES)
    times, capture = read(paths[:2] + paths[4:])
    assert times == [f.time_ns for f in FRAMES[:20] + FRAMES[40:]]
    reason = f"2 files are missing between {NAMES[1]} and {NAMES[4]}"
    assert gaps(capture) == [(FRAMES[19].time_ns, FRAMES[40].time_ns, reason)]
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
        (FRAMES[10].time_ns, [first]),
        (FRAMES[20].time_ns, [first]),
        (FRAMES[30].time_ns, [first, cut]),
        (FRAMES[50].time_ns, [first, cut, missing]),
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
        (FRAMES[14].time_ns, FRAMES[30].time_ns, "1 file is missing between cap1 and cap3")
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
    assert times[:20] == [f.time_ns for f in FRAMES[:20]]
    assert times[-20:] == [f.time_ns for f in FRAMES[40:]]
    last = times[-21]
    reason = f"{NAMES[1]} is cut short or damaged"
    assert gaps(capture) == [(last, FRAMES[40].time_ns, reason)]
    assert capture.damaged_places == 1
    # The last file has no frame after it.
    times, capture = read(paths[:2])
    assert gaps(capture) == [(last, None, reason)]
    assert "nothing captured after its last frame" in capture.warnings[-1]


@pytest.mark.parametrize("batch_frames", [3, 100])
def test_a_damaged_place_hides_the_frames_around_it(tmp_path: Path, batch_frames: int) -> None:
    paths = files(tmp_path, NAMES[:2])
    data = bytearray(Path(paths[0]).read_bytes())
    middle = data.index(FRAMES[14].data) - 16
    data[middle : middle + 16] = b"\xff" * 16
    Path(paths[0]).write_bytes(data)
    times, capture = read(paths, batch_frames)
    assert FRAMES[14].time_ns not in times
    assert capture.damaged_places == 1
    assert any(
        from_ns is not None
        and until_ns is not None
        and from_ns < FRAMES[14].time_ns < until_ns
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
    assert times == [f.time_ns for n, f in enumerate(FRAMES) if n // 10 != which]
    begin, end = (None if at is None else FRAMES[at].time_ns for at in bounds)
    assert gaps(capture) == [(begin, end, f"{NAMES[which]} {why}")]
    assert paths[which] in capture.warnings[0]
    assert capture.damaged_places == 1


def test_in_a_ring_that_began_anew_the_place_of_an_unread_file_may_be_both_ends(
    tmp_path: Path,
) -> None:
    paths = files(tmp_path, ["cap2", "cap3", "cap0", "cap1"])
    Path(paths[3]).write_bytes(b"")
    assert gaps(read(paths)[1]) == [
        (None, FRAMES[0].time_ns, "cap1 cannot be read"),
        (FRAMES[44].time_ns, None, "cap1 cannot be read"),
    ]
    paths = files(tmp_path, ["cap2", "cap3", "cap0", "cap1"])
    Path(paths[2]).write_bytes(b"")
    assert gaps(read(paths)[1]) == [(FRAMES[29].time_ns, FRAMES[45].time_ns, "cap0 cannot be read")]


def test_no_file_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "a.pcap").touch()
    times, capture = read([str(tmp_path / "a.pcap"), str(tmp_path / "gone.pcap")])
    assert times == []
    assert len(capture.warnings) == capture.damaged_places == 2


def test_a_long_silence_between_files_is_a_gap(tmp_path: Path) -> None:
    def steady(begin_ns: int) -> list[Frame]:
        return [
            frame._replace(time_ns=begin_ns + n * SECOND // 4) for n, frame in enumerate(FRAMES[:9])
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
