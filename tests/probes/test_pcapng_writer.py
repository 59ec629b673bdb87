"""pcapng blocks read back by tshark, dpkt and our own reader."""

from __future__ import annotations

import struct
import subprocess

import dpkt
import numpy as np
from hand_made import HandMadeRing
from hypothesis import given
from hypothesis import strategies as st
from network import roce

from rocescope.analyzer.capture.pcapng_writer import (
    Blocks,
    InterfaceStatistics,
    interface_description,
    interface_statistics,
    section_header,
)
from rocescope.analyzer.capture.source import open_capture
from rocescope.analyzer.wire.packets import LINKTYPE_ETHERNET
from rocescope.analyzer.wire.taps import Tap, Taps
from rocescope.probes.rings import INBOUND, OUTBOUND, PacketBlocks

# pcapng blocks read back by tshark, dpkt and our own reader.

START_NS = 1_700_000_000_123_456_789


HEAD = section_header("rocescope", "Linux", ["a comment", "another"]) + b"".join(
    interface_description(Tap(name, LINKTYPE_ETHERNET, 256, speed, text))
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
    rings = [HandMadeRing(0), HandMadeRing(0)]
    for i, frame in enumerate(frames):
        length = len(frame)
        rings[i % 2].put(10 * i, length + 1000, 5 + i % 2, frame)
    blocks = PacketBlocks([r.words() for r in rings], 5, [INBOUND, OUTBOUND])
    heads = np.array([ring.head for ring in rings], np.uint64)
    laid_out, _ = blocks.lay_out(np.zeros(2, np.uint64), heads, 1 << 40, START_NS)
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


# Packet blocks cut at a size.

BLOCKS = st.lists(st.tuples(st.integers(3, 12), st.integers(0, 2)), max_size=8)


def laid(sizes):
    """Blocks of these numbers of words and interfaces."""
    data = b"".join(
        struct.pack("<III", 6, 4 * words, interface) + bytes(4 * words - 12)
        for words, interface in sizes
    )
    frames = np.bincount([interface for _, interface in sizes], minlength=3).astype(np.int64)
    return Blocks(memoryview(data), frames)


def ends(sizes):
    return np.cumsum([0, *(4 * words for words, _ in sizes)]).tolist()


@given(BLOCKS, st.integers(1, 400))
def test_split_is_where_a_block_begins(sizes, size):
    blocks = laid(sizes)
    first, rest = blocks.split(size)
    kept = sum(begin < size for begin in ends(sizes)[:-1])
    assert bytes(first.data) + bytes(rest.data) == bytes(blocks.data)
    assert len(first.data) == ends(sizes)[kept]
    assert first.frames.tolist() == laid(sizes[:kept]).frames.tolist()
    assert (first.frames + rest.frames).tolist() == blocks.frames.tolist()


@given(BLOCKS, st.integers(-20, 400))
def test_whole_blocks_only(sizes, size):
    blocks = laid(sizes)
    size = min(size, len(blocks.data))
    whole = blocks.whole(size)
    kept = sum(end <= size for end in ends(sizes)[1:])
    assert len(whole.data) == ends(sizes)[kept]
    assert whole.frames.tolist() == laid(sizes[:kept]).frames.tolist()
