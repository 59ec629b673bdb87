"""Objects of a real S3 server: their bytes, in bounded memory, and one line for what goes wrong."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from captures import data
from stores import KEY_ID, SECRET, Store, settings, store

from rocescope.analyzer.capture import stored
from rocescope.analyzer.capture.bytestream import RawStream
from rocescope.analyzer.capture.source import open_capture
from rocescope.analyzer.capture.stored import StoredObject, objects_at
from rocescope.analyzer.errors import RocescopeError, StoreError, UnreadableInput, UsageError
from rocescope.analyzer.wire.taps import Taps

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
