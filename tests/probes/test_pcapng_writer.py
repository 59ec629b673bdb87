"""pcapng blocks read back by tshark, dpkt and our own reader."""

from __future__ import annotations

import subprocess

import dpkt
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocescope.analyzer.capture.source import open_capture
from rocescope.analyzer.frames import LINKTYPE_ETHERNET, FrameBatch, Tap, Taps
from rocescope.probes.pcapng_writer import (
    INBOUND,
    OUTBOUND,
    InterfaceStatistics,
    PacketBlocks,
    interface_description,
    interface_statistics,
    section_header,
)

from .network import roce

START_NS = 1_700_000_000_123_456_789


def ring_batch(frames: list[bytes], times: list[int], taps: list[int]) -> FrameBatch:
    """Frames at multiples of 8 bytes with something else between them, as in a ring."""
    data, offsets = bytearray(), []
    for frame in frames:
        data += b"\xee" * (24 + -len(data) % 8)
        offsets.append(len(data))
        data += frame
    data += b"\xee" * (8 + -len(data) % 8)
    captured = np.array([len(frame) for frame in frames], np.uint32)
    return FrameBatch(
        np.frombuffer(bytes(data), np.uint8),
        np.array(offsets, np.int64),
        captured,
        captured + np.uint32(1000),
        np.array(times, np.int64),
        np.array(taps, np.uint16),
        np.full(len(frames), LINKTYPE_ETHERNET, np.uint16),
        1,
        0,
    )


HEAD = section_header("rocescope", "Linux", ["a comment", "another"]) + b"".join(
    interface_description(Tap(name, LINKTYPE_ETHERNET, 256, speed), text)
    for name, speed, text in (("left in", None, None), ("left out", 25 * 10**9, "qp == 1"))
)
STATISTICS = InterfaceStatistics(START_NS, START_NS + 10**9, 100, 90, 7, 83)


def read_back(path):
    taps = Taps()
    with open_capture(str(path), taps) as capture:
        frames, times, names = [], [], []
        for batch in capture.batches():
            for i in range(len(batch)):
                at, length = int(batch.offset[i]), int(batch.captured[i])
                frames.append((batch.data[at : at + length].tobytes(), int(batch.wire[i])))
                times.append(int(batch.time_ns[i]))
                names.append(taps[int(batch.tap[i])].name.rpartition(":")[2])
        assert capture.damaged_places == 0
    return frames, times, names, taps


def test_readers_agree(tmp_path, need_tool):
    frames = [roce(psn, payload_bytes=psn) for psn in range(40)]
    times = [START_NS + 10 * i for i in range(40)]
    blocks = PacketBlocks(5, [INBOUND, OUTBOUND])
    even = ring_batch(frames[::2], times[::2], [5] * 20)
    odd = ring_batch(frames[1::2], times[1::2], [6] * 20)
    laid_out = blocks.lay_out([odd, even])
    path = tmp_path / "x.pcapng"
    path.write_bytes(HEAD + bytes(laid_out.data) + interface_statistics(1, STATISTICS))

    got, got_times, names, taps = read_back(path)
    assert got == [(frame, len(frame) + 1000) for frame in frames]
    assert got_times == times
    assert names == ["left in", "left out"] * 20
    assert taps[1].dropped == 7
    assert taps[1].speed_bits_per_second == 25 * 10**9

    fields = (
        "frame.time_epoch frame.len frame.cap_len frame.interface_name infiniband.bth.psn"
        " frame.packet_flags_direction"
    )
    command = [need_tool("tshark"), "-n", "-r", str(path), "-T", "fields"]
    for name in fields.split():
        command += ["-e", name]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert [line.split("\t") for line in lines] == [
        [
            f"{times[i] // 10**9}.{times[i] % 10**9:09}",
            str(len(frames[i]) + 1000),
            str(len(frames[i])),
            ("left in", "left out")[i % 2],
            str(i),
            ("0x00000001", "0x00000002")[i % 2],
        ]
        for i in range(40)
    ]
    with path.open("rb") as file:
        assert [data for _, data in dpkt.pcapng.Reader(file)] == frames
    info = subprocess.run(
        [need_tool("capinfos"), "-M", str(path)], check=True, capture_output=True, text=True
    ).stdout
    assert "a comment" in info and "another" in info


@settings(max_examples=50)
@given(
    lengths=st.lists(st.lists(st.integers(0, 260), max_size=20), min_size=1, max_size=3),
    seed=st.integers(0, 1000),
    limit=st.none() | st.integers(0, 30),
)
def test_blocks_of_several_rings(tmp_path_factory, lengths, seed, limit):
    random = np.random.default_rng(seed)
    batches, expected = [], []
    for ring in lengths:
        frames = [random.bytes(length) for length in ring]
        times = sorted(random.integers(START_NS, START_NS + 20, len(ring)).tolist())
        taps = random.integers(0, 2, len(ring)).tolist()
        batches.append(ring_batch(frames, times, taps))
        expected += list(zip(times, frames, taps, strict=True))
    expected.sort(key=lambda row: row[0])
    laid_out = PacketBlocks(0, [INBOUND, OUTBOUND]).lay_out(batches, limit)
    expected = expected[:limit]
    assert laid_out.taps.tolist() == [tap for _, _, tap in expected]
    assert len(laid_out) == len(expected)
    if expected:
        assert laid_out.ends[-1] == len(laid_out.data)
        path = tmp_path_factory.mktemp("blocks") / "x.pcapng"
        path.write_bytes(HEAD + bytes(laid_out.data))
        frames, times, names, _ = read_back(path)
        assert times == [time for time, _, _ in expected]
        assert [data for data, _ in frames] == [data for _, data, _ in expected]
        assert names == [("left in", "left out")[tap] for _, _, tap in expected]


@pytest.mark.parametrize("length", range(1, 9))
def test_padding_is_zero(length):
    frame = b"\xff" * length
    laid_out = PacketBlocks(0, [INBOUND]).lay_out([ring_batch([frame], [START_NS], [0])])
    padded = bytes(laid_out.data)[28 : 28 + -(-length // 4) * 4]
    assert padded == frame + bytes(-length % 4)


def test_nothing():
    assert len(PacketBlocks(0, [INBOUND]).lay_out([])) == 0
