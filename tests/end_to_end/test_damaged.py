"""Damaged captures on the command line: the report of what could be read, and exit code 4."""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import lz4.frame
import pyarrow.ipc
import pytest
import zstandard
from examples import thorough
from factories import Frame, Pcapng, pcap_bytes

from rocescope import cli

PACKETS = 14


class Done(NamedTuple):
    code: int
    err: str
    packets: int | None
    """RoCE packets of the report; None without a report."""


@pytest.fixture
def analyzed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[bytes], Done]:
    """What `rocescope analyze` makes of a file of these bytes."""

    def analyzed(data: bytes) -> Done:
        path, report = tmp_path / "x.pcap", tmp_path / "report.json"
        report.unlink(missing_ok=True)
        path.write_bytes(data)
        # A first run would also say that it compiles.
        code = cli.run(["analyze", str(path), "-o", str(report), "--progress", "none"])
        err = capsys.readouterr().err
        if not report.exists():
            assert err.startswith("rocescope: ") and err.count("\n") == 1, err
            return Done(code, err, None)
        (capture,) = json.loads(report.read_text())["captures"]
        assert bool(capture["damaged_places"]) == (code == 4)
        assert bool(capture["warnings"]) == (code == 4)
        return Done(code, err, capture["roce_packets"])

    return analyzed


@pytest.fixture(scope="module")
def frames() -> list[Frame]:
    """RoCE frames of different lengths."""
    made = []
    for psn in range(PACKETS):
        payload = bytes(20 + 3 * psn)
        bth = struct.pack(">BBHII", 4, 0, 0xFFFF, 0x12, psn) + payload + bytes(4)
        udp = struct.pack(">HHHH", 50000, 4791, 8 + len(bth), 0) + bth
        ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp), psn, 0x4000, 64, 17, 0)
        hosts = bytes((10, 0, 0, 1, 10, 0, 0, 2))
        data = bytes(12) + b"\x08\x00" + ip + hosts + udp
        made.append(Frame(1_700_000_000_000_000_000 + 1000 * psn, data))
    return made


def as_pcapng(frames: list[Frame]) -> Pcapng:
    file = Pcapng().section().interface()
    for frame in frames:
        file.enhanced(frame.time_ns, frame.data)
    return file


def check_cut(done: Done, ends: list[int], cut: int) -> None:
    """`ends`: where the file header and each record ends."""
    whole = sum(end <= cut for end in ends) - 1
    if whole <= 0:
        assert (done.code, done.packets) == (4, None)
    elif cut in ends:
        assert done == (0, "", whole)
    else:
        assert (done.code, done.packets) == (4, whole)
        assert done.err.count("\n") == 1 and "could not be read completely" in done.err


@pytest.mark.thorough
@pytest.mark.parametrize("step", [41, *thorough([7])])
def test_pcap_cut_anywhere(
    analyzed: Callable[[bytes], Done], frames: list[Frame], step: int
) -> None:
    data = pcap_bytes(frames)
    ends = [24]
    for frame in frames:
        ends.append(ends[-1] + 16 + len(frame.data))
    assert ends[-1] == len(data)
    for cut in [*range(0, len(data), step), *ends]:
        check_cut(analyzed(data[:cut]), ends, cut)


@pytest.mark.parametrize("step", [41, *thorough([7])])
def test_pcapng_cut_anywhere(
    analyzed: Callable[[bytes], Done], frames: list[Frame], step: int
) -> None:
    parts = as_pcapng(frames).parts
    sizes = [len(part) for part in parts]
    ends = [sum(sizes[: i + 1]) for i in range(1, len(sizes))]
    data = b"".join(parts)
    for cut in [*range(0, len(data), step), *ends]:
        check_cut(analyzed(data[:cut]), ends, cut)


def test_gzip_cut_anywhere(analyzed: Callable[[bytes], Done], frames: list[Frame]) -> None:
    """What zlib can still inflate is the report's share."""
    data = pcap_bytes(frames)
    ends = [24]
    for frame in frames:
        ends.append(ends[-1] + 16 + len(frame.data))
    packed = gzip.compress(data, mtime=0)
    for cut in range(0, len(packed), 7):
        inflated = len(zlib.decompressobj(31).decompress(packed[:cut]))
        whole = sum(end <= inflated for end in ends) - 1
        done = analyzed(packed[:cut])
        assert (done.code, done.packets) == (4, whole if whole > 0 else None)
    assert analyzed(packed) == (0, "", PACKETS)


def lz4_compressed(data: bytes) -> bytes:
    compressed: bytes = lz4.frame.compress(data, content_checksum=True)
    return compressed


@pytest.mark.parametrize("pack", [zstandard.compress, lz4_compressed, gzip.compress])
def test_a_cut_end_and_a_changed_byte_of_compressed_data(
    analyzed: Callable[[bytes], Done], frames: list[Frame], pack: Callable[[bytes], bytes]
) -> None:
    many = pcap_bytes(frames * 500)
    packed = pack(many)
    assert analyzed(packed).code == 0
    assert analyzed(packed[:-5]).code == 4
    changed = bytearray(packed)
    changed[len(packed) // 2] ^= 0xFF
    assert analyzed(bytes(changed)).code == 4


def test_the_middle_of_a_series_is_damaged(
    tmp_path: Path, frames: list[Frame], capsys: pytest.CaptureFixture[str]
) -> None:
    paths = []
    for i in range(3):
        shifted = [frame._replace(time_ns=frame.time_ns + i * 10**6) for frame in frames]
        paths.append(tmp_path / f"x{i}.pcap")
        paths[-1].write_bytes(pcap_bytes(shifted)[: -3 if i == 1 else None])
    report = tmp_path / "report.json"
    assert cli.run(["analyze", "--concat", *map(str, paths), "-o", str(report)]) == 4
    (capture,) = json.loads(report.read_text())["captures"]
    assert (capture["roce_packets"], capture["damaged_places"]) == (3 * PACKETS - 1, 1)
    assert "x1.pcap ends inside the record at byte" in capture["warnings"][0]
    capsys.readouterr()


def test_export_writes_the_rest_and_exits_4(
    tmp_path: Path, frames: list[Frame], capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "x.pcap", tmp_path / "packets.arrow"
    path.write_bytes(pcap_bytes(frames)[:-3])
    assert cli.run(["export", str(path), "-o", str(out)]) == 4
    assert "x.pcap ends inside the record at byte" in capsys.readouterr().err
    with pyarrow.ipc.open_file(out) as file:
        assert file.read_all().num_rows == PACKETS - 1
