"""Kinds of files by their first bytes: those that the programs of each kind write."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import random
import sqlite3
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import lz4.frame
import pytest
import zstandard
from examples import thorough
from factories import START_NS, Frame, Pcapng, pcap_bytes, pcapng_bytes, some_frames, write_pcap

from rocescope.analyzer.capture import bytestream
from rocescope.analyzer.capture.bytestream import MAGIC_BYTES, compression, describe
from rocescope.analyzer.capture.source import open_capture, unpacked
from rocescope.analyzer.errors import UnreadableInput, UsageError
from rocescope.analyzer.wire.taps import MANY_TAPS, Tap, Taps

from .reading import read, rows_of

# Kinds of files by their first bytes: those that the programs of each kind write.

DATA = bytes(range(256)) * 8


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("gzip", gzip.compress(DATA)),
        ("zstd", zstandard.compress(DATA)),
        ("xz", lzma.compress(DATA)),
        ("lz4", lz4.frame.compress(DATA)),
        ("zstd", b"\x53\x2a\x4d\x18\x00\x00\x00\x00" + zstandard.compress(DATA)),
        (None, bz2.compress(DATA)),
        (None, lzma.compress(DATA, lzma.FORMAT_ALONE)),
        (None, DATA),
        (None, b""),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_compressions(name, data):
    assert compression(data[:MAGIC_BYTES]) == name


def tar():
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as written:
        written.addfile(tarfile.TarInfo("capture.pcap"))
    return file.getvalue()


def zipped():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as written:
        written.writestr("capture.pcap", DATA)
    return file.getvalue()


def database(folder):
    connection = sqlite3.connect(folder / "some.db")
    connection.execute("create table t (a)")
    connection.commit()
    connection.close()
    return (folder / "some.db").read_bytes()


def test_files_of_other_programs(tmp_path):
    with open(sys.executable, "rb") as program:
        assert describe(program.read(300)) == "a program (ELF)"
    assert describe(tar()[:300]).startswith("a tar archive")
    assert describe(zipped()[:300]).startswith("a ZIP archive")
    assert describe(bz2.compress(DATA)).startswith("bzip2 compressed")
    assert describe(gzip.compress(DATA)) == "gzip compressed a second time: decompress it once"
    assert describe(database(tmp_path)[:300]) == "a SQLite database"


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (bytes(300), "only zero bytes"),
        (b"", "only zero bytes"),
        (b"\xef\xbb\xbf\n <!DOCTYPE HTML><title>Log in</title>", "an HTML page"),
        (b"<?xml version='1.0'?>", "XML text"),
        (json.dumps({"flows": []}).encode(), "JSON text"),
        (b"No.,Time,Source\n", "text"),
        ("é".encode(), "text"),
        (b"\x00\x01\x02\x03 text", "binary data of an unknown kind"),
    ],
)
def test_text_and_other_data(data, what):
    assert describe(data).startswith(what)


# Opening captures: errors, compression, standard input, growing files, memory.

FRAMES = some_frames(50)
COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "zstd": zstandard.ZstdCompressor(write_checksum=True).compress,
    "xz": lambda data: lzma.compress(data, preset=0),
    "lz4": lambda data: lz4.frame.compress(data, content_checksum=True),
}


def noise_frames(count: int) -> list[Frame]:
    """Frames that do not compress, so that a cut loses a known part."""
    generator = random.Random(7)
    return [Frame(START_NS + i, generator.randbytes(1000)) for i in range(count)]


def refusal(path: Path | str, **options: object) -> str:
    """The one line that says why `path` cannot be read."""
    with pytest.raises(UnreadableInput) as error:
        with open_capture(str(path), Taps(), **options) as capture:  # type: ignore[arg-type]
            rows_of(capture.batches())
    text = str(error.value)
    assert "\n" not in text and error.value.exit_code == 4
    return text


def test_missing_directory_and_empty(tmp_path: Path) -> None:
    missing = tmp_path / "no.pcap"
    assert refusal(missing) == f"{missing}: no such file; check the path"
    assert refusal(tmp_path) == f"{tmp_path} is a directory: name the capture files in it"
    (tmp_path / "e").touch()
    assert refusal(tmp_path / "e") == f"{tmp_path / 'e'} is empty (0 bytes): capture it again"
    assert "null byte" in refusal("a\0b")
    assert "cannot be opened: File name too long" in refusal("x" * 300)


def test_a_file_that_cannot_be_read() -> None:
    # Address 0 of this process is not mapped.
    assert refusal("/proc/self/mem") == (
        "/proc/self/mem: nothing can be read from it (Input/output error): copy or capture it again"
    )


def test_reading_that_fails_later_keeps_what_is_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_pcap(tmp_path / "x", FRAMES)
    end = len(pcap_bytes(FRAMES[:20]))

    class Failing(io.FileIO):
        def readinto(self, view: memoryview) -> int:  # type: ignore[override]
            if self.tell() >= end:
                raise OSError(5, "Input/output error")
            return super().readinto(view[: end - self.tell()])

    monkeypatch.setattr(bytestream.io, "FileIO", Failing)
    rows, capture = read(path)
    assert [r.data for r in rows] == [f.data for f in FRAMES[:20]]
    assert capture.warnings == [
        f"x: reading failed at byte {end} (Input/output error): everything before it is reported"
    ]


def test_empty_inside_its_compression(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(gzip.compress(b""))
    assert refusal(path) == f"{path} is empty inside its gzip compression: capture it again"
    path.write_bytes(gzip.compress(pcap_bytes(FRAMES))[:12])
    assert refusal(path) == (
        f"{path}: nothing can be read from it (cut short inside its gzip data):"
        " copy or capture it again"
    )


def test_no_permission(tmp_path: Path) -> None:
    path = write_pcap(tmp_path / "secret", FRAMES)
    path.chmod(0)
    code = (
        "import os, sys\n"
        "from rocescope.analyzer.capture.bytestream import RawStream\n"
        "from rocescope.analyzer.errors import UnreadableInput\n"
        "if os.getuid() == 0: os.setuid(65534)\n"
        "try: RawStream(sys.argv[1])\n"
        "except UnreadableInput as error: print(error)\n"
    )
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o711)
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True)
    assert done.stdout == (
        f"{path}: permission denied; run as a user who may read it or change its mode\n"
    )


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"\x7fELF\x02\x01\x01", "a program (ELF)"),
        (b'{"packets": []}', "JSON text"),
        (b"  \n[1, 2]", "JSON text"),
        (b"<!DOCTYPE html><html>", "an HTML page"),
        (b"<?xml version='1.0'?>", "XML text"),
        (b"time,src,dst\n1,2,3\n", "it is text"),
        ("caf\u00e9 \u2192\n".encode(), "it is text"),
        (b"snoop\x00\x00\x00\x00\x00\x00\x02", "a snoop capture: convert it with `editcap"),
        (b"GMBU\x01\x02", "a Microsoft Network Monitor 2 capture: convert it"),
        (b"PK\x03\x04", "a ZIP archive"),
        (b"BZh91AY", "decompress it with bunzip2"),
        (b"PAR1", "a Parquet file"),
        (bytes(600), "only zero bytes"),
        (b"\x01\x02\x03\x04\x05", "binary data of an unknown kind"),
        (b"\x0a\x0d\x0d\x0a" + bytes(40), "binary data"),
        (b"\xd4", "text"),
    ],
)
def test_what_is_no_capture_is_named(tmp_path: Path, head: bytes, words: str) -> None:
    path = tmp_path / "x.pcap"
    path.write_bytes(head)
    text = refusal(path)
    assert text.startswith(f"{path} is not a pcap or pcapng capture: it is ")
    assert words in text
    path.write_bytes(gzip.compress(head))
    assert "it is gzip compressed, and inside " in refusal(path)


@pytest.mark.parametrize(
    ("link_type", "words"),
    [
        (105, "link type LINKTYPE_IEEE802_11 (105) is not supported: capture with one of"),
        (147, "link type LINKTYPE_USER0 (147) is not supported"),
        (999, "link type LINKTYPE_unknown (999) is not supported"),
        (247, "LINKTYPE_INFINIBAND (247) is a native InfiniBand capture"),
    ],
)
def test_unsupported_link_types_are_named(tmp_path: Path, link_type: int, words: str) -> None:
    path = write_pcap(tmp_path / "x", FRAMES, link_type=link_type)
    text = refusal(path)
    assert text.startswith(f"{path}: ") and words in text


@pytest.mark.parametrize("data", [pcap_bytes([]), pcapng_bytes([])])
def test_a_cut_inside_the_file_header_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x"
    for cut in range(1, 28 if data[0] == 0x0A else 24):
        path.write_bytes(data[:cut])
        text = refusal(path)
        if cut >= 4:
            assert f"ends after {cut} bytes inside its file header" in text


@pytest.mark.parametrize("data", [pcap_bytes([]), pcapng_bytes([])])
def test_a_capture_without_frames_is_no_error(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x").write_bytes(data)
    rows, capture = read(tmp_path / "x")
    assert (rows, capture.frames, capture.warnings) == ([], 0, [])


@pytest.mark.parametrize("kind", COMPRESSORS)
@pytest.mark.parametrize("make", [pcap_bytes, pcapng_bytes])
def test_compressed(tmp_path: Path, kind: str, make: Callable[[list[Frame]], bytes]) -> None:
    path = tmp_path / "misleading.pcap"
    data = make(FRAMES)
    # Two members, as `cat a.gz b.gz` makes them.
    path.write_bytes(COMPRESSORS[kind](data[:700]) + COMPRESSORS[kind](data[700:]))
    rows, capture = read(path)
    assert [r.data for r in rows] == [f.data for f in FRAMES]
    assert all(data[r.offset : r.offset + r.captured] == r.data for r in rows)
    assert (capture.compression, capture.warnings) == (kind, [])
    assert capture.bytes_read == capture.total_bytes == path.stat().st_size


@pytest.mark.parametrize("kind", COMPRESSORS)
def test_compressed_by_the_usual_tool(
    tmp_path: Path, kind: str, need_tool: Callable[[str], str]
) -> None:
    frames = noise_frames(1000)
    path = write_pcap(tmp_path / "x.pcap", frames)
    with (tmp_path / "packed").open("wb") as out:
        subprocess.run([need_tool(kind), "-c", str(path)], stdout=out, check=True)
    rows, capture = read(tmp_path / "packed")
    assert [r.data for r in rows] == [f.data for f in frames]
    assert (capture.compression, capture.warnings) == (kind, [])


@pytest.mark.parametrize("kind", COMPRESSORS)
def test_cut_compressed_data_delivers_what_is_before(tmp_path: Path, kind: str) -> None:
    data = pcap_bytes(noise_frames(1500))
    packed = COMPRESSORS[kind](data)
    path = tmp_path / "x"
    path.write_bytes(packed[: len(packed) * 2 // 3])
    rows, capture = read(path)
    # lz4 and zstd hand out whole blocks, and xz holds back what its filter may still need.
    assert 700 < len(rows) <= 1000
    assert [r.data for r in rows] == [f.data for f in noise_frames(len(rows))]
    assert f"x: cut short inside its {kind} data: everything before it is reported" in (
        capture.warnings
    )


@pytest.mark.parametrize("kind", COMPRESSORS)
def test_compressed_data_cut_at_every_byte(tmp_path: Path, kind: str) -> None:
    packed = COMPRESSORS[kind](pcap_bytes(FRAMES[:4]))
    path = tmp_path / "x"
    for cut in range(1, len(packed)):
        path.write_bytes(packed[:cut])
        try:
            rows, capture = read(path)
        except UnreadableInput as error:
            assert "\n" not in str(error)
        else:
            assert [r.data for r in rows] == [f.data for f in FRAMES[: len(rows)]]
            assert any("cut short" in line for line in capture.warnings)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", COMPRESSORS)
def test_damaged_compressed_data_delivers_what_is_before(tmp_path: Path, kind: str) -> None:
    data = pcap_bytes(noise_frames(1500))
    packed = bytearray(COMPRESSORS[kind](data))
    at = len(packed) * 2 // 3
    packed[at : at + 64] = bytes(64)
    path = tmp_path / "x"
    path.write_bytes(packed)
    rows, capture = read(path)
    good = [f.data for f in noise_frames(1500)]
    same = sum(r.data == g for r, g in zip(rows, good, strict=False))
    # A checksum at the end of the data tells of the damage when all of it was read.
    assert same > 700
    assert any(kind in line for line in capture.warnings)


def test_bytes_behind_compressed_data_are_told(tmp_path: Path) -> None:
    path = tmp_path / "x"
    packed = gzip.compress(pcap_bytes(FRAMES))
    path.write_bytes(packed + bytes(1000))
    assert read(path)[1].warnings == []
    path.write_bytes(packed + b"signature")
    rows, capture = read(path)
    assert len(rows) == len(FRAMES)
    assert capture.warnings == ["x: bytes after the gzip data are ignored"]


def test_compressed_twice_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(gzip.compress(lzma.compress(pcap_bytes(FRAMES))))
    assert "xz compressed a second time: decompress it once" in refusal(path)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["zstd", "gzip", *thorough(["xz", "lz4"])])
def test_a_decompression_bomb_needs_no_memory(tmp_path: Path, kind: str) -> None:
    warm, bomb = tmp_path / "warm", tmp_path / "bomb"
    frame = pcap_bytes(FRAMES[:1])
    warm.write_bytes(COMPRESSORS[kind](frame))
    bomb.write_bytes(COMPRESSORS[kind](frame + bytes(200 << 20)))
    code = (
        "import resource, sys\n"
        "from rocescope.analyzer.capture.source import open_capture\n"
        "from rocescope.analyzer.wire.taps import Taps\n"
        "used = []\n"
        "for path in sys.argv[1:]:\n"
        "    with open_capture(path, Taps()) as capture:\n"
        "        assert sum(map(len, capture.batches())) == 1\n"
        "    used.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
        "print(used[1] - used[0])\n"
    )
    command = [sys.executable, "-c", code, str(warm), str(bomb)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 130 << 10  # KiB


@pytest.mark.thorough
def test_closing_early_ends_the_thread(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(gzip.compress(pcap_bytes(noise_frames(30_000)), 1))
    with open_capture(str(path), Taps(), batch_frames=10) as capture:
        assert len(next(capture.batches())) == 10
        assert any(t.name == "decompress" for t in threading.enumerate())
    assert not any(t.name == "decompress" for t in threading.enumerate())


@pytest.mark.parametrize("squeeze", [bytes, gzip.compress])
def test_standard_input(tmp_path: Path, squeeze: Callable[[bytes], bytes]) -> None:
    code = (
        "from rocescope.analyzer.capture.source import open_capture\n"
        "from rocescope.analyzer.wire.taps import Taps\n"
        "taps = Taps()\n"
        "with open_capture('-', taps) as c:\n"
        "    print(sum(map(len, c.batches())), c.name, c.total_bytes, c.bytes_read, c.warnings)\n"
        "print(taps[0].name)\n"
    )
    sent = squeeze(pcap_bytes(FRAMES))
    done = subprocess.run([sys.executable, "-c", code], input=sent, capture_output=True)
    assert done.stdout.decode() == f"50 stdin None {len(sent)} []\nstdin\n", done.stderr


def test_a_slow_pipe_hands_on_what_has_arrived(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    data = pcapng_bytes(FRAMES)
    first = len(pcapng_bytes(FRAMES[:20]))
    seen = threading.Event()

    def feed() -> None:
        with pipe.open("wb", buffering=0) as out:
            out.write(data[: first + 5])
            assert seen.wait(300)
            out.write(data[first + 5 :])

    thread = threading.Thread(target=feed)
    thread.start()
    with open_capture(str(pipe), Taps()) as capture:
        batches = capture.batches()
        assert len(next(batches)) == 20
        seen.set()
        assert sum(map(len, batches)) == 30
    thread.join()


def test_following_a_growing_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.touch()
    data = pcap_bytes(FRAMES)
    arrived: list[int] = []
    opened = threading.Event()

    def grow() -> None:
        before = 0
        for frames, extra in ((0, -3), (0, 5), (20, 0), (30, 7), (50, 0)):
            end = len(pcap_bytes(FRAMES[:frames])) + extra
            with path.open("ab") as out:
                out.write(data[before:end])
            before = end
            deadline = time.monotonic() + 20
            while sum(arrived) < frames and time.monotonic() < deadline:
                time.sleep(0.02)
        assert opened.wait(300)
        capture.stop()

    writer = threading.Thread(target=grow)
    writer.start()
    rows = []
    with open_capture(str(path), Taps(), follow=True) as capture:
        opened.set()
        for batch in capture.batches():
            rows += rows_of([batch])
            arrived.append(len(batch))
    writer.join()
    assert [r.data for r in rows] == [f.data for f in FRAMES]
    assert len(arrived) >= 3
    assert capture.warnings == []


@pytest.mark.parametrize(
    ("happens", "why"),
    [
        (lambda path: os.replace(path.with_name("other"), path), "another file has replaced it"),
        (lambda path: path.unlink(), "the file was removed"),
        (lambda path: os.truncate(path, 30), "the file was truncated"),
    ],
)
def test_a_followed_file_that_cannot_grow_any_more_ends(
    tmp_path: Path, happens: Callable[[Path], None], why: str
) -> None:
    path = tmp_path / "x"
    path.write_bytes(pcap_bytes(FRAMES))
    path.with_name("other").write_bytes(pcap_bytes(FRAMES))
    with open_capture(str(path), Taps(), follow=True) as capture:
        batches = capture.batches()
        rows = rows_of([next(batches)])
        happens(path)
        rows += rows_of(batches)
        assert [r.data for r in rows] == [f.data for f in FRAMES]
        (warning,) = capture.warnings
    assert why in warning and warning.endswith("everything before it is reported")


def test_what_was_written_just_before_the_end_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x"
    data = pcap_bytes(FRAMES)
    head = len(pcap_bytes(FRAMES[:10]))
    path.write_bytes(data[:head])
    with open_capture(str(path), Taps(), follow=True) as capture:
        batches = capture.batches()
        rows = rows_of([next(batches)])

        def end() -> None:
            with path.open("ab") as out:
                out.write(data[head:])
            capture.stop()

        threading.Timer(0.05, end).start()  # the reader waits for more by then
        rows += rows_of(batches)
    assert [r.data for r in rows] == [f.data for f in FRAMES]


def test_a_compressed_file_cannot_be_followed(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(gzip.compress(pcap_bytes(FRAMES)))
    with pytest.raises(UsageError, match="gzip compressed: --follow cannot be combined"):
        open_capture(str(path), Taps(), follow=True)


def test_two_files_of_one_name_are_told_apart(tmp_path: Path) -> None:
    taps = Taps()
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        rows, _ = read(write_pcap(tmp_path / folder / "x.pcap", FRAMES), taps)
        assert {r.tap for r in rows} == {len(taps) - 1}
    assert [t.name for t in taps.items] == ["x.pcap", str(tmp_path / "b" / "x.pcap")]


def test_too_many_taps_are_an_error(tmp_path: Path) -> None:
    taps = Taps([Tap("t", 1)] * 65_536)
    for data in (pcap_bytes(FRAMES), Pcapng().section().interface().bytes()):
        path = tmp_path / "x"
        path.write_bytes(data)
        with pytest.raises(UnreadableInput, match="more than 65,536 taps"):
            with open_capture(str(path), taps) as capture:
                rows_of(capture.batches())


def test_the_last_of_many_interfaces_share_a_tap(tmp_path: Path) -> None:
    many = Pcapng().section()
    for _ in range(MANY_TAPS + 3):
        many.interface()
    for interface in (0, MANY_TAPS - 1, MANY_TAPS, MANY_TAPS + 2):
        many.enhanced(START_NS, b"x", interface=interface)
    path, taps = tmp_path / "x", Taps()
    path.write_bytes(many.bytes())
    with open_capture(str(path), taps) as capture:
        rows = rows_of(capture.batches())
        assert [row.tap for row in rows] == [0, MANY_TAPS - 1, MANY_TAPS, MANY_TAPS]
        assert capture.warnings == [
            f"x: more than {MANY_TAPS} interfaces: further interfaces count as one"
        ]
    assert (len(taps), taps[MANY_TAPS].name) == (MANY_TAPS + 1, "x:further interfaces")
    assert taps[MANY_TAPS].frames == 2


@pytest.mark.parametrize(
    ("value", "said", "leaves_out"),
    [
        (b"\0qp == 0x11", "qp == 0x11", True),
        (b"\0udp dst port 4791 or (vlan and udp port 4791)", None, False),
        (b"\0udp port 4791 and src host 10.0.0.1", None, True),
        (b"\1\x28\0\0\0", "a BPF program", True),
        (b"\0" + b"x\x1b" * 500, ("x?" * 256)[:511], True),
        (b"\0", None, False),
        (b"", None, False),
    ],
)
def test_the_capture_filter_of_an_interface(
    tmp_path: Path, value: bytes, said: str | None, leaves_out: bool
) -> None:
    path, taps = tmp_path / "x", Taps()
    path.write_bytes(Pcapng().section().interface(filter=value).enhanced(START_NS, b"x").bytes())
    with open_capture(str(path), taps) as capture:
        rows_of(capture.batches())
    text = value[1:].decode() if said is None and value[1:] else said
    assert (taps[0].filter, taps[0].leaves_out_roce) == (text, leaves_out)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["xz", "zstd"])  # gzip and lz4 expand less
def test_a_decompression_bomb_ends_early_and_says_so(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x"
    frame = pcap_bytes(FRAMES[:1])
    many = (96 << 20) // len(frame[24:])
    path.write_bytes(COMPRESSORS[kind](frame + frame[24:] * many))
    with open_capture(str(path), Taps()) as capture:
        frames = sum(map(len, capture.batches()))
        assert 0 < frames < many
        assert any("expands more than" in warning for warning in capture.warnings)
        assert capture.damaged_places


# The bytes of a capture as its reader sees them.


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress])
def test_bytes_are_those_before_compression(tmp_path, pack):
    plain = bytes(range(256)) * 5_000
    path = tmp_path / "capture"
    path.write_bytes(pack(plain))
    stream, got, buffer = unpacked(str(path)), b"", memoryview(bytearray(70_000))
    while size := stream.read_into(buffer):
        got += buffer[:size]
    stream.close()
    assert got == plain


def test_a_missing_file(tmp_path):
    with pytest.raises(UnreadableInput, match="no such file"):
        unpacked(str(tmp_path / "none"))
