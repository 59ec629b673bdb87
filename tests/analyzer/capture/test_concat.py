"""A rotated series read as one capture."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from factories import (
    START_NS,
    Frame,
    Pcapng,
    pcap_bytes,
    some_frames,
    write_pcap,
    write_pcapng,
)

from rocescope.analyzer.capture.concat import Part, concatenated
from rocescope.analyzer.errors import UnreadableInput, UsageError
from rocescope.analyzer.wire.taps import Taps

from .reading import rows_of

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
