"""Damaged captures on the command line: the report of what could be read, and exit code 4."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import random
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import lz4.frame
import msgspec
import numpy as np
import pyarrow.ipc
import pytest
import zstandard
from captures import DATA
from examples import first, thorough
from factories import Frame, Pcapng, pcap_bytes

from rocescope import analyze as analyze_capture_ends_early
from rocescope import cli
from rocescope.analyzer.errors import UnreadableInput
from rocescope.analyzer.measures.conformance.options import ConformanceOptions
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.replay.generate.mrc import Format, Settings, Traffic

from ..fuzz.seeds import Record, seeds

# Damaged captures on the command line: the report of what could be read, and exit code 4.

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


# Times at both ends of 64 bits, in any order: results without a numpy warning or error.

EXTREMES = (0, 1, 2**31, 2**62, 2**63 - 2**32, 2**63 - 1)


def mrc() -> list[Record]:
    """MRC with losses, trims and a plane that fails: silences of entropy values end by time."""
    trouble = {"message_bytes": 24_576, "path_mtu": 1024, "evs": 8, "messages": 3, "ce": 0.1}
    traffic = Traffic(Settings(loss=0.05, trim=0.05, failed_plane=1, **trouble), Format(snap=0))
    return [Record(*captured) for captured in traffic.captured()][:400]


def wild(records: list[Record], rng: random.Random) -> bytes:
    """Several taps; some times, or all after one, are far from the others."""
    made = Pcapng().section()
    for offset in (None, -(2**32), 2**32 - 1):
        made.interface(offset_seconds=offset)
    shift, often = 0, rng.choice((0.01, 0.1, 0.5))
    for record in records:
        if rng.random() < often:
            shift = rng.choice(EXTREMES) - rng.choice((0, record.time_ns))
        time = (record.time_ns + shift) & (2**64 - 1) if rng.random() < 0.8 else record.time_ns
        made.enhanced(time, record.data, wire=record.wire, interface=rng.randrange(3))
    return made.bytes()


@pytest.mark.thorough
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("number", range(24))
def test_wild_times_leave_results_whole(tmp_path: Path, data: Path, number: int) -> None:
    rng, path = random.Random(number), tmp_path / "x.pcapng"
    if number % 2:
        records = mrc()
    else:
        records = [r for r in rng.choice(seeds(data)).records if r.link_type == 1]
    path.write_bytes(wild(records, rng))
    conformance = ConformanceOptions() if number % 3 == 0 else None
    with np.errstate(all="raise", under="ignore"), suppress(UnreadableInput):  # none of it RoCE
        result = analyze([str(path)], AnalyzeOptions(conformance=conformance))
        assert b"NaN" not in msgspec.json.encode(result)


# The clock of one of twelve taps is set forward in the middle of its capture: it is the only

SECOND = 10**9
TRUE = {"r03_link_down_reroute": ("link-down", 71), "r09_packet_spray_h1": ("rate-limit", 609)}
TAPS = ["H1-leaf1", "leaf1-spine1", "H3-leaf2", "leaf2-spine3", "H2-leaf1", "leaf1-spine4"]
STRETCHED = 8


def moved(capture, change):
    """The bytes of a pcap with nanoseconds and other times: `change` of (record, records, ns)."""
    at, records = 24, []
    while at < len(capture):
        records.append(at)
        at += 16 + struct.unpack_from("<I", capture, at + 8)[0]
    begin = struct.unpack_from("<I", capture, 24)[0] // 100 * 100 * SECOND  # one for all taps
    result = bytearray(capture)
    for number, at in enumerate(records):
        seconds, rest = struct.unpack_from("<II", capture, at)
        since = seconds * SECOND + rest - begin
        time = begin + change(number, len(records), since)
        struct.pack_into("<II", result, at, *divmod(time, SECOND))
    return bytes(result)


@pytest.fixture(scope="module", params=TRUE)
def stretched(request, tmp_path_factory):
    """(run, folder of its captures)."""
    folder = tmp_path_factory.mktemp(request.param)
    for path in sorted((DATA / "whole_leafspine" / request.param).glob("*.pcap.xz")):
        capture = lzma.decompress(path.read_bytes())
        assert struct.unpack_from("<I", capture)[0] == 0xA1B23C4D
        slow = moved(capture, lambda number, of, since: since * STRETCHED)
        (folder / path.stem).write_bytes(slow)
    return request.param, folder


def found_in(folder, tmp_path, tap=None, change=None):
    """The findings, notes left out."""
    paths = sorted(folder.glob("*.pcap"))
    assert len(paths) == 12
    if tap is not None:
        (tmp_path / f"{tap}.pcap").write_bytes(moved((folder / f"{tap}.pcap").read_bytes(), change))
        paths = [p if p.stem != tap else tmp_path / p.name for p in paths]
    diagnosis = analyze([str(p) for p in paths], AnalyzeOptions()).diagnosis
    return [f for f in diagnosis.findings if f.severity != "note"]


@pytest.mark.thorough
def test_no_clock_is_set(stretched, tmp_path):
    run, folder = stretched
    assert [(f.kind, f.packets) for f in found_in(folder, tmp_path)] == [TRUE[run]]


@pytest.mark.thorough
@pytest.mark.parametrize("tap", first(4, TAPS))
@pytest.mark.parametrize("seconds", first(1, [5, 0.5, 60, 3600]))
def test_a_clock_that_is_set_forward_is_found_beside_the_loss(stretched, tmp_path, tap, seconds):
    run, folder = stretched
    ns = round(seconds * SECOND)
    found = found_in(
        folder, tmp_path, tap, lambda number, of, since: since + (ns if 2 * number > of else 0)
    )
    clocks = [f for f in found if f.kind == "clock"]
    assert [f.place.capture.split(".")[0].split("/")[-1] for f in clocks] == [tap]
    assert "is set forward 1 time by" in clocks[0].sentence
    assert [(f.kind, f.packets) for f in found if f.kind != "clock"] == [TRUE[run]]


# The framing kernels compiled with bounds checks never reach outside their arrays.


@pytest.mark.thorough
def test_random_and_damaged_captures_with_bounds_checks(checkout: Path) -> None:
    """Numba raises IndexError when checks are compiled in; the twins' tests would fail by it."""
    environment = {**os.environ, "ROCESCOPE_BOUNDSCHECK": "1"}
    here = checkout / "tests" / "analyzer" / "capture"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "twin or cut"]
    for file in ("test_pcap.py", "test_pcapng.py"):  # without any such test pytest fails
        done = subprocess.run(
            [*command, str(here / file)],
            cwd=checkout, env=environment, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-4000:]


# One of two captures ends before the other: nothing after its end is a fault.

RUN = "i01_write_loss0.5_AtoB"
LOST = 180
"""Packets that netem dropped between the taps, see the facts beside the captures."""


def cut(source: Path, into: Path, share: float) -> Path:
    """The first frames of a capture."""
    data = gzip.decompress(source.read_bytes())
    at, starts = 24, []
    while at < len(data):
        starts.append(at)
        at += 16 + struct.unpack_from("<I", data, at + 8)[0]
    into.write_bytes(data[: starts[int(share * len(starts))]])
    return into


@pytest.mark.thorough
@pytest.mark.parametrize("share", [0.5, 0.9])
@pytest.mark.parametrize("early", [0, 1])
def test_losses_are_those_before_the_end(
    data: Path, tmp_path: Path, early: int, share: float
) -> None:
    files = [data / f"{RUN}.at{side}.pcap.gz" for side in "AB"]
    files[early] = cut(files[early], tmp_path / f"early-{'AB'[early]}.pcap", share)
    found = analyze_capture_ends_early(files).record
    between = [hop.lost_packets for hop in found.hops]
    assert max(between) <= LOST and sum(between) == max(between) > 0
    assert {one.kind for one in found.diagnosis.findings} == {"loss"}
    assert sum(one.packets for one in found.diagnosis.findings) <= LOST
    assert any("had ended" in limit for limit in found.diagnosis.limits)
