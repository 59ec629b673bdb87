"""The compiled pass against its plain-Python twin, and inside its bounds."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from batches import T0, batch, decoder, read_pcap
from corpus import frame
from decode_twin import Twin
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.decode import control as pause
from rocescope.analyzer.wire.packets import COLUMNS

Frames = list[tuple[bytes, int, int]]


def nonzero(array: np.ndarray) -> Counter[int]:
    return Counter({int(i): int(array[i]) for i in np.flatnonzero(array)})


def compare(frames: Frames, check_icrc: bool = True) -> None:
    """Every column and every counter of the decoder equals the twin's."""
    dec = decoder(check_icrc=check_icrc)
    table = dec.decode(
        batch(
            [f for f, _, _ in frames],
            link_type=[link for _, link, _ in frames],
            wire=[wire for _, _, wire in frames],
            base_offset=24,
        )
    )
    twin = Twin(check_icrc=check_icrc)
    at, expected = 24, []
    for i, (data, link_type, wire) in enumerate(frames):
        before = len(twin.seen.rows)
        twin.frame(data, link_type, wire)
        for row in twin.seen.rows[before:]:
            expected.append(row | {"time_ns": T0 + i, "frame_number": i + 1, "file_offset": at})
        at += len(data)
    texts = dec.registry.endpoints.texts()
    for c in COLUMNS:
        got = getattr(table, c.name).tolist()
        if c.name in ("src", "dst"):
            got = [texts[index] for index in got]
        assert got == [row.get(c.name, 0) for row in expected], c.name
    order = list(dict.fromkeys(text for row in expected for text in (row["src"], row["dst"])))
    assert texts == order
    arrays, seen = dec.counters.arrays, twin.seen
    assert nonzero(arrays.outcomes[0]) == +seen.outcomes
    assert nonzero(arrays.notes[0]) == +seen.notes
    assert nonzero(arrays.ethertypes) == seen.ethertypes
    assert nonzero(arrays.protocols) == seen.protocols
    assert nonzero(arrays.udp_ports) == seen.udp_ports
    for priority in range(9):
        got = arrays.pause[0, priority]
        assert got[pause.FRAMES] == seen.pause[priority, "frames"]
        assert got[pause.XON] == seen.pause[priority, "xon"]
        assert got[pause.QUANTA] == seen.pause[priority, "quanta"]
    assert dec.counters.frames() == len(frames)
    assert sum(n for _, n in dec.counters.contents()) == len(frames)


@pytest.mark.thorough
@given(st.lists(st.randoms(use_true_random=False).map(frame), min_size=1, max_size=8))
@examples(150)
def test_equals_the_twin_on_any_frames(frames: Frames) -> None:
    compare(frames)


def without_encapsulation(frames: Frames) -> Frames:
    """Damage may make a mirror or tunnel of a frame: the twin does not look into those."""
    kept = []
    for one in frames:
        twin = Twin()
        twin.frame(*one)
        inside = {4, 41, 47, 137, 143} & set(twin.seen.protocols)
        if not inside and not {0x8847, 0x8848, 0xD28B} & set(twin.seen.ethertypes):
            kept.append(one)
    return kept


def test_equals_the_twin_on_a_large_corpus() -> None:
    rng = random.Random(1)
    frames = without_encapsulation([frame(rng) for _ in range(20_000)])
    assert len(frames) > 19_000
    compare(frames)


def mutated_capture(path: Path, seed: int, limit: int) -> Frames:
    """Frames of a real capture, each cut or with one byte changed."""
    rng = random.Random(seed)
    real = read_pcap(path)
    frames = []
    for i in range(min(limit, len(real))):
        begin, size = int(real.offset[i]), int(real.captured[i])
        data = bytearray(real.data[begin : begin + size])
        if rng.random() < 0.5:
            del data[rng.randrange(min(len(data), 90)) :]
        else:
            data[rng.randrange(min(len(data), 90))] = rng.randrange(256)
        frames.append((bytes(data), 1, int(real.wire[i])))
    return frames


def test_equals_the_twin_on_damaged_real_frames(data: Path) -> None:
    for name in ("c40_rc_oddities_ipv4.atB.pcap", "c23_rc_write_vlan100.atB.pcap.gz"):
        compare(mutated_capture(data / name, seed=2, limit=2000))


BOUNDS_CHECKED = """
import sys
import numpy as np
from rocescope.analyzer.decode.headers import be32
from rocescope.analyzer.decode.decoder import Decoder
from rocescope.analyzer.wire.registry import Endpoints
from rocescope.analyzer.wire.frames import FrameBatch
from rocescope.analyzer.wire.taps import Tap, Taps
from rocescope.analyzer.wire.registry import Registry

def past_end(data):
    return be32(data, 3)

import numba
checked = numba.njit(boundscheck=True)(past_end)
for size in (0, 6):
    try:
        checked(np.zeros(size, np.uint8))
    except IndexError:
        continue
    sys.exit("bounds are not checked")

corpus = np.load(sys.argv[1])
taps = Taps()
taps.add(Tap("x", 1))
decoder = Decoder(Registry(taps=taps), check_icrc=True)
rows = 0
buffer, offset = corpus["buffer"], corpus["offset"]
for i in range(len(offset) - 1):
    # The buffer is the frame: one byte beyond it is an IndexError.
    alone = buffer[offset[i] : offset[i + 1]].copy()
    rows += len(decoder.decode(FrameBatch(
        alone, np.zeros(1, np.int64), np.array([len(alone)], np.uint32),
        corpus["wire"][i : i + 1], np.zeros(1, np.int64), np.zeros(1, np.uint16),
        corpus["link_type"][i : i + 1], 1, 0)))
print(rows)
"""


@pytest.mark.thorough
def test_never_reads_outside_a_frame(tmp_path: Path, data: Path) -> None:
    rng = random.Random(3)
    frames = [frame(rng) for _ in range(15_000)]
    frames += mutated_capture(data / "c40_rc_oddities_ipv4.atB.pcap", seed=4, limit=700)
    lengths = [len(f) for f, _, _ in frames]
    np.savez(
        tmp_path / "corpus.npz",
        buffer=np.frombuffer(b"".join(f for f, _, _ in frames), np.uint8),
        offset=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        wire=np.array([wire for _, _, wire in frames], np.uint32),
        link_type=np.array([link for _, link, _ in frames], np.uint16),
    )
    environment = os.environ | {"ROCESCOPE_BOUNDSCHECK": "1"}
    done = subprocess.run(
        [sys.executable, "-c", BOUNDS_CHECKED, str(tmp_path / "corpus.npz")],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    twin = Twin()
    for one in frames:
        twin.frame(*one)
    assert int(done.stdout) == len(twin.seen.rows) > 2000
