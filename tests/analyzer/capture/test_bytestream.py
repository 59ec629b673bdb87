"""The sliding window: content, reuse of buffers, and flat memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from factories import START_NS, Frame, pcap_bytes

from rocescope.analyzer.capture.bytestream import MIN_WINDOW_BYTES, Window
from rocescope.analyzer.capture.source import open_capture
from rocescope.analyzer.wire.frames import FrameBatch
from rocescope.analyzer.wire.taps import Taps

from .reading import Bites


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
