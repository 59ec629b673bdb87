"""ERF records in pcap and pcapng, against tshark and a reader in plain Python."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from factories import START_NS, Frame, write_pcap, write_pcapng
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.errors import UnreadableInput
from rocescope.analyzer.wire.taps import Taps

from ..decode.test_decoder import frame as roce
from .reading import Row, read

ERF = 197
ETHERNET_TYPES = (2, 11, 16, 20)


def record(
    kind: int,
    content: bytes,
    *,
    extensions: int = 0,
    on_wire: int | None = None,
    lost: int = 0,
    length: int | None = None,
) -> bytes:
    """A record; `on_wire` counts the frame check sequence of Ethernet."""
    ethernet = kind in ETHERNET_TYPES
    body = b"".join(
        bytes([0x80 * (n < extensions) | 3]) + bytes(7) for n in range(1, extensions + 1)
    )
    body += bytes(2 if ethernet else 0) + content
    if on_wire is None:
        on_wire = len(content) + (4 if ethernet else 0)
    head = struct.pack("<Q", 0x655300F100000000) + bytes((kind | 0x80 * (extensions > 0), 4))
    total = 16 + len(body) if length is None else length
    return head + struct.pack(">HHH", total, lost, on_wire) + body


def erf(path: Path, records: list[bytes], write: Callable[..., Path] = write_pcap) -> Path:
    frames = [Frame(START_NS + i, data) for i, data in enumerate(records)]
    return write(path, frames, link_type=ERF)


@pytest.mark.parametrize("write", [write_pcap, write_pcapng])
@pytest.mark.parametrize("kind", ETHERNET_TYPES)
def test_ethernet_frames(
    tmp_path: Path, kind: int, write: Callable[..., Path], need_tool: Callable[[str], str]
) -> None:
    """With any number of extension headers, snapped, with the frame check sequence or without."""
    frames = [roce(i, payload=100 + i) for i in range(6)]
    records = [record(kind, frames[i], extensions=i) for i in range(4)]
    records.append(record(kind, frames[4][:80], on_wire=len(frames[4]) + 4))
    records.append(record(kind, frames[5] + b"FCS!", on_wire=len(frames[5]) + 4))
    path = erf(tmp_path / "x", records, write)
    taps = Taps()
    rows, capture = read(path, taps)
    assert [r.data for r in rows] == [*frames[:4], frames[4][:80], frames[5] + b"FCS!"]
    assert [r.wire for r in rows] == [*map(len, frames[:5]), len(frames[5]) + 4]
    assert {r.link_type for r in rows} == {1} and taps[0].link_type == 1
    assert capture.warnings == [] and taps[0].dropped is None
    assert all(path.read_bytes()[r.offset :][: r.captured] == r.data for r in rows)
    command = [need_tool("tshark"), "-r", str(path), "-T", "fields", "-e", "infiniband.bth.psn"]
    seen = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert seen == [str(i) for i in range(6)]


def test_ip_packets(tmp_path: Path) -> None:
    packet = roce(7)[14:]
    rows, _ = read(erf(tmp_path / "x", [record(22, packet), record(23, packet, extensions=2)]))
    assert [(r.data, r.wire, r.link_type) for r in rows] == [(packet, len(packet), 101)] * 2


@pytest.mark.parametrize("kind", [21, 25])
@pytest.mark.parametrize("write", [write_pcap, write_pcapng])
def test_native_infiniband_is_refused(
    tmp_path: Path, kind: int, write: Callable[..., Path]
) -> None:
    path = erf(tmp_path / "x", [record(kind, bytes(100))] * 3, write)
    with pytest.raises(UnreadableInput) as error:
        read(path)
    assert str(error.value) == (
        "x: link type LINKTYPE_ERF (197) is a native InfiniBand capture, not RoCE over Ethernet:"
        " capture on the Ethernet port of the NIC or switch instead"
    )


def test_records_without_a_frame(tmp_path: Path) -> None:
    """Provenance records and padding are no frames; HDLC is, but no Ethernet."""
    path = erf(tmp_path / "x", [record(kind, bytes(40)) for kind in (27, 48, 1)])
    with pytest.raises(UnreadableInput, match="hold no Ethernet frame and no IP packet"):
        read(path)
    with_frames = [record(27, bytes(40)), record(2, roce(1)), record(21, bytes(50)), b"short"]
    rows, capture = read(erf(tmp_path / "x", with_frames))
    assert [len(r.data) for r in rows] == [0, len(roce(1)), 0, 0]
    assert [r.number for r in rows] == [1, 2, 3, 4]
    assert capture.warnings == [
        "x: 1 ERF records of native InfiniBand skipped",
        "x: 2 ERF records without an Ethernet frame or IP packet skipped",
    ]


def test_the_loss_counter(tmp_path: Path) -> None:
    """That of plain Ethernet; in other types it is a colour. 0 may be that nobody counts."""
    frames = [record(2, roce(1), lost=lost) for lost in (0, 5, 0, 2)]
    for records, dropped in (
        (frames, 7),
        (frames[:1], None),
        ([record(16, roce(1), lost=9)], None),
    ):
        taps = Taps()
        read(erf(tmp_path / "x", records), taps)
        assert taps[0].dropped == dropped


def opened(data: bytes) -> tuple[bytes, int] | None:
    """(captured bytes, length on the wire) of the frame in a record, None without one."""
    if len(data) < 16:
        return None
    kind, (length, _, on_wire) = data[8], struct.unpack_from(">HHH", data, 10)
    ethernet = kind & 0x7F in ETHERNET_TYPES
    if not ethernet and kind & 0x7F not in (22, 23):
        return None
    rest, more = data[16:length], kind & 0x80
    while more and len(rest) >= 8:
        more, rest = rest[0] & 0x80, rest[8:]
    rest = rest[2 if ethernet else 0 :][:on_wire]
    return rest, max(on_wire - 4 if ethernet else on_wire, len(rest))


@given(
    st.lists(
        st.tuples(
            st.sampled_from((2, 11, 16, 20, 21, 22, 27)),
            st.integers(0, 4),
            st.binary(max_size=60),
            st.none() | st.integers(0, 65535),
            st.none() | st.integers(0, 65535),
            st.none() | st.integers(0, 90),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_lengths_that_lie_and_records_that_are_cut(
    tmp_path_factory: pytest.TempPathFactory,
    drawn: list[tuple[int, int, bytes, int | None, int | None, int | None]],
) -> None:
    records = [record(2, b"frame")]
    for kind, extensions, content, on_wire, length, cut in drawn:
        made = record(kind, content, extensions=extensions, on_wire=on_wire, length=length)
        records.append(made[:cut] if cut else made)
    folder = tmp_path_factory.mktemp("erf")
    for write in (write_pcap, write_pcapng):
        rows: list[Row] = read(erf(folder / "x", records, write))[0]
        assert len(rows) == len(records)
        for row, made in zip(rows, records, strict=True):
            expected = opened(made)
            assert row.data == (b"" if expected is None else expected[0])
            assert expected is None or row.wire == expected[1]
