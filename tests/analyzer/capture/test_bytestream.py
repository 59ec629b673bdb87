"""The sliding window: content, reuse of buffers, and flat memory."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import dpkt.pcap
import numpy as np
import pytest
from captures import data
from factories import START_NS, Frame, pcap_bytes
from stores import KEY_ID, SECRET, Store, settings, store

from rocescope.analyzer.capture import stored
from rocescope.analyzer.capture.bytestream import MIN_WINDOW_BYTES, RawStream, Window
from rocescope.analyzer.capture.framing import NAMES, canonical, label, supported, why_unsupported
from rocescope.analyzer.capture.source import open_capture
from rocescope.analyzer.capture.stored import StoredObject, objects_at
from rocescope.analyzer.errors import RocescopeError, StoreError, UnreadableInput, UsageError
from rocescope.analyzer.wire.packets import SUPPORTED_LINK_TYPES, FrameBatch
from rocescope.analyzer.wire.taps import Taps

from .reading import Bites

# The sliding window: content, reuse of buffers, and flat memory.


def test_ensure_and_skip_show_the_stream_byte_by_byte() -> None:
    data = np.random.default_rng(3).bytes(3 * MIN_WINDOW_BYTES + 77)
    window = Window(Bites(data, [100_000, 1, 333_333]), 0)
    assert window.ensure(50)
    assert window.skip(MIN_WINDOW_BYTES + 5)
    assert window.position == MIN_WINDOW_BYTES + 5
    assert window.ensure(MIN_WINDOW_BYTES)
    shown = window.data[window.start : window.end].tobytes()
    assert shown == data[window.position : window.position + len(shown)]
    assert window.skip(2 * MIN_WINDOW_BYTES)
    assert window.ensure(72) and not window.ensure(73)
    assert window.at_end and window.data[window.start : window.end].tobytes() == data[-72:]
    assert not window.skip(73)


def large_pcap(path: Path, megabytes: int) -> Path:
    frame = pcap_bytes([Frame(START_NS, bytes(range(92)), 1000)])
    with path.open("wb") as out:
        out.write(frame[:24])
        piece = frame[24:] * ((1 << 20) // len(frame[24:]))
        for _ in range(megabytes):
            out.write(piece)
    return path


def test_batches_that_are_kept_stay_as_they_were(tmp_path: Path) -> None:
    frames = [Frame(START_NS + i, i.to_bytes(4, "big") * 300) for i in range(6000)]
    path = tmp_path / "x"
    path.write_bytes(pcap_bytes(frames))  # 7 MB through windows of 1 MiB
    kept: list[FrameBatch] = []
    with open_capture(str(path), Taps(), batch_frames=500) as capture:
        for batch in capture.batches():
            if len(kept) < 3 or len(kept) > 8:
                kept.append(batch)
            else:
                kept.append(None)  # type: ignore[arg-type]
    for batch in filter(None, kept):
        for i in range(len(batch)):
            at = int(batch.offset[i])
            number = batch.first_frame_number + i - 1
            assert batch.data[at : at + 1200].tobytes() == frames[number].data


@pytest.mark.parametrize("in_use", [0, 1])
def test_buffers_are_reused_when_batches_are_let_go(in_use: int) -> None:
    window = Window(Bites(bytes(20 * MIN_WINDOW_BYTES), [MIN_WINDOW_BYTES]), 0)
    seen = []  # slices the consumer still holds
    buffers: set[int] = set()
    alive = []  # so that an address stands for one buffer
    while window.ensure(MIN_WINDOW_BYTES):
        seen.append(window.data[5:10])
        buffers.add(window._buffer.memory.ctypes.data)
        alive.append(window._buffer)
        window.start = window.end
        del seen[: len(seen) - in_use]
    assert len(alive) == 20
    assert len(buffers) == in_use + 1


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    code = (
        "import resource, sys\n"
        "from rocescope.analyzer.capture.source import open_capture\n"
        "from rocescope.analyzer.wire.taps import Taps\n"
        "used = []\n"
        "for path in sys.argv[1:]:\n"
        "    with open_capture(path, Taps()) as capture:\n"
        "        assert sum(map(len, capture.batches())) > 0\n"
        "    used.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
        "print(used[1] - used[0])\n"
    )
    small, large = large_pcap(tmp_path / "a", 30), large_pcap(tmp_path / "b", 150)
    command = [sys.executable, "-c", code, str(small), str(large)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 8 << 10  # KiB


# Link types in messages.


def test_numbers_are_those_of_dpkt():
    ours = {name: number for number, name in NAMES.items()}
    assert ours["ETHERNET"] == dpkt.pcap.DLT_EN10MB
    for name in ("LINUX_SLL", "IEEE802_11", "PFLOG", "NULL", "FDDI", "PPP", "SLIP"):
        assert ours[name] == getattr(dpkt.pcap, f"DLT_{name}"), name


@pytest.mark.parametrize("number", [12, 14, 101])
def test_raw_ip_has_three_numbers(number):
    assert canonical(number) == 101 and supported(canonical(number))


def test_other_numbers_stay():
    assert [canonical(n) for n in (1, 113, 999)] == [1, 113, 999]


def test_why_a_link_type_is_not_supported():
    assert label(999) == "LINKTYPE_unknown (999)"
    assert not supported(105)
    message = why_unsupported(105)
    assert message.startswith("link type LINKTYPE_IEEE802_11 (105) is not supported")
    assert all(label(number) in message for number in SUPPORTED_LINK_TYPES)
    for number in (197, 247):
        assert "native InfiniBand capture, not RoCE" in why_unsupported(number)


# Objects of a real S3 server: their bytes, in bounded memory, and one line for what goes wrong.

CAPTURE = data("i03_write_reorder5_AtoB.atB.pcap.gz")


@pytest.fixture
def running() -> Iterator[Store]:
    with store() as one:
        yield one


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "_FIRST_BYTES", 100)
    monkeypatch.setattr(stored, "_PIECE_BYTES", 1000)


@pytest.mark.usefixtures("small_pieces")
def test_an_object_is_read_in_order_and_never_far_ahead(running: Store) -> None:
    content = random.Random(20).randbytes(25_300)
    view = memoryview(bytearray(700))
    with closing(StoredObject(running.put("any", content))) as opened:
        assert opened.size == len(content)
        seen = b""
        while got := opened.readinto(view):
            seen += bytes(view[:got])
            assert opened._asked - len(seen) <= (1 + stored._PIECES_AHEAD) * 1000
        assert seen == content
        assert opened._asked == len(content)


def test_to_look_at_an_object_fetches_only_its_begin(running: Store) -> None:
    address = running.put("any", bytes(1 << 20))
    with closing(RawStream(address)) as raw:
        raw.peek(6)
        assert raw.size == 1 << 20
        assert raw._file._asked == 1 << 16  # type: ignore[attr-defined]


def test_a_capture_is_that_of_the_file(running: Store) -> None:
    address = running.put("ring/a.pcap.gz", CAPTURE)
    counts = []
    for path in (address, str(CAPTURE)):
        with open_capture(path, Taps()) as capture:
            frames = sum(len(batch) for batch in capture.batches())
            counts.append((frames, capture.name.replace(CAPTURE.name, "a.pcap.gz")))
            assert not capture.warnings
    assert counts[0] == counts[1]
    assert counts[0][0] > 20_000


def test_an_object_that_is_cut_is_a_capture_that_ends_early(running: Store) -> None:
    address = running.put("a.pcap.gz", CAPTURE.read_bytes()[:5000])
    with open_capture(address, Taps()) as capture:
        assert sum(len(batch) for batch in capture.batches()) > 0
        assert capture.damaged_places == 1
        assert "a.pcap.gz: cut short inside its gzip data" in capture.warnings[-1]


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("packed", [True, False])
def test_an_object_that_is_replaced_meanwhile_is_no_capture_that_ends_early(
    running: Store, packed: bool
) -> None:
    content = CAPTURE.read_bytes() if packed else b"\xd4\xc3\xb2\xa1" + bytes(30_000)
    address = running.put("a", content)
    with closing(RawStream(address)) as raw:
        raw.peek(6)
        running.put("a", content[:3000])
        with pytest.raises(StoreError, match=r"captures/a: .*run again"):
            while raw.read(5000):
                pass


@pytest.mark.thorough
@pytest.mark.usefixtures("small_pieces")
def test_a_store_that_refuses_while_a_thread_decompresses(running: Store) -> None:
    with open_capture(running.put("a.pcap.gz", CAPTURE), Taps(), batch_frames=1) as capture:
        running.refuse()
        with pytest.raises(StoreError):
            for _ in capture.batches():
                pass


@pytest.mark.parametrize("ask", [StoredObject, objects_at, RawStream])
@pytest.mark.parametrize("address", ["s3://captures/none", "s3://no-bucket/none", "s3://captures/"])
def test_nothing_there(running: Store, ask: Callable[[str], object], address: str) -> None:
    with pytest.raises(UnreadableInput, match=f"{address}: no such bucket, object or prefix") as e:
        ask(address)
    _one_line(e.value)


@pytest.mark.parametrize("ask", [StoredObject, objects_at])
def test_refused(running: Store, ask: Callable[[str], object]) -> None:
    address = running.put("a.pcap", b"x")
    running.refuse()
    with pytest.raises(StoreError, match=f"{address}: the store refuses access") as error:
        ask(address)
    _one_line(error.value)


@pytest.mark.parametrize("ask", [StoredObject, objects_at])
def test_no_answer(monkeypatch: pytest.MonkeyPatch, ask: Callable[[str], object]) -> None:
    monkeypatch.setattr(stored, "_ATTEMPTS", 1)
    with settings("http://127.0.0.1:1"):  # the port of tcpmux, where nobody listens
        with pytest.raises(StoreError, match="s3://captures/a: the store does not answer") as error:
            ask("s3://captures/a")
    _one_line(error.value)


@pytest.mark.parametrize(
    "address",
    [
        f"s3://{KEY_ID}:{SECRET}@captures/ring",
        f"s3://captures/ring?access_key={KEY_ID}&secret_key={SECRET}",
        f"s3://captures/{SECRET}?",
    ],
)
@pytest.mark.parametrize("ask", [StoredObject, objects_at])
def test_credentials_in_an_address_are_refused_and_not_repeated(
    ask: Callable[[str], object], address: str
) -> None:
    with pytest.raises(UsageError, match="AWS_ACCESS_KEY_ID") as error:
        ask(address)
    _one_line(error.value)


@pytest.mark.parametrize(
    "address", ["s3://", "s3:///a", "s3://captures//a", "s3://captures/*.pcap"]
)
def test_no_address(address: str) -> None:
    with pytest.raises(UsageError, match="s3://BUCKET/PREFIX"):
        objects_at(address)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("AWS Error UNKNOWN (HTTP status 301) during HeadObject operation: x", "another region"),
        ("AWS Error UNKNOWN (HTTP status 403) during GetObject operation: x", "refuses access"),
        (
            "AWS Error SLOW_DOWN during GetObject operation: key AKIA",
            "deliver the object (SLOW_DOWN)",
        ),
        ("whatever AKIA", "deliver the object (OSError)"),
    ],
)
def test_other_errors_are_told_without_the_words_of_the_store(text: str, said: str) -> None:
    error = stored._explained("s3://captures/a", OSError(text))
    assert said in str(error)
    assert "AKIA" not in str(error)


def test_objects_below_a_prefix(running: Store) -> None:
    for key in ("ring/b/2.pcap", "ring/a/1.pcap", "ringside/3.pcap", "4.pcap"):
        running.put(key, b"x")
    assert objects_at("s3://captures/ring") == [
        "s3://captures/ring/a/1.pcap",
        "s3://captures/ring/b/2.pcap",
    ]
    assert objects_at("s3://captures/ring/") == objects_at("s3://captures/ring")
    assert objects_at("s3://captures/ring/a/1.pcap") == ["s3://captures/ring/a/1.pcap"]
    assert len(objects_at("s3://captures")) == 4


def _one_line(error: RocescopeError) -> None:
    assert len(str(error).splitlines()) == 1
    assert KEY_ID not in str(error)
    assert SECRET not in str(error)
