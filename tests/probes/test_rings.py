"""Counts of frames at the probes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, fields
from pathlib import Path

import numpy as np
import pytest
from bpf_runs import run_program
from network import roce

from rocescope.probes import bpf
from rocescope.probes import rings as module
from rocescope.probes.program import program
from rocescope.probes.program.program import Compiled, ProgramOptions
from rocescope.probes.rings import LOSS, Drain, Loss, Rings, Wakeups, total

# Counts of frames at the probes.


def test_the_layout_is_that_of_the_c_struct():
    source = (Path(module.__file__).parent / "program" / "ring.bpf.h").read_text()
    members = re.search(r"struct loss \{(.*?)\};", source, re.DOTALL)[1]
    assert tuple(re.findall(r"rs_u64 (\w+);", members)) == LOSS.names
    assert LOSS.itemsize == 8 * len(LOSS.names)


def test_sums_and_differences():
    counters = np.zeros((2, 3), LOSS)
    for number, name in enumerate(LOSS.names, 1):
        counters[name] = number
    found = total(counters)
    assert astuple(found) == tuple(6 * number for number in range(1, len(fields(Loss)) + 1))
    assert found - found == Loss() and found + Loss() == found
    assert total(counters[0]) + total(counters[1]) == found


def test_every_matched_packet_has_one_fate():
    assert Loss(exported=1, ring_full=10, filtered=100, sampled_out=1000, merged=7).matched == 1111


# Rings between the probes and their reader, on the real kernel by BPF_PROG_TEST_RUN.

RECORD = 16 + 96
FRAME = roce(1, payload_bytes=200)


class Loaded:
    """A probe with rings, run on one CPU."""

    def __init__(self, ring_bytes: int, cpus: list[int]) -> None:
        self.rings = Rings(cpus, ring_bytes, 3)
        compiled = Compiled(ProgramOptions(), self.rings.maps)
        self.programs = [compiled.load_xdp(2), compiled.load_tc(2)]

    def run(self, repeat: int = 1, frame: bytes = FRAME, program: int = 0) -> None:
        run_program(self.programs[program], frame, repeat=repeat)

    def counted(self, cpu: int) -> tuple[int, int]:
        """(exported, lost) of the tap on a CPU."""
        loss = self.rings.loss()[2, cpu]
        return int(loss["exported"]), int(loss["ring_full"])


@pytest.fixture(params=[True, False], ids=["ordered", "weakly ordered"])
def order(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both forms of the atomic instructions, whatever processor this is."""
    monkeypatch.setattr(program, "strongly_ordered", lambda: request.param)


@pytest.fixture
def on_cpu_0(live_capture: None) -> Iterator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {0})
    yield
    os.sched_setaffinity(0, before)


@contextmanager
def loaded(ring_bytes: int, cpus: list[int]) -> Iterator[Loaded]:
    probe = Loaded(ring_bytes, cpus)
    yield probe
    for fd in probe.programs:
        os.close(fd)
    probe.rings.close()


@pytest.mark.thorough
def test_every_byte_over_chunks_and_laps(on_cpu_0, order):
    frames = [roce(psn, payload_bytes=psn) for psn in (40, 100, 101, 200)]
    frames.append(b"".join((frames[0][:12], b"\x81\0\0\7", frames[0][12:])))
    with loaded(2 << 20, [0]) as probe:
        drain = Drain(probe.rings.rings)
        for lap in range(5):
            for number, frame in enumerate(frames):
                probe.run(2000 + lap, frame, number % 2)
            seen: list[bytes] = []
            times: list[int] = []
            while batches := drain.gather(everything=True):
                (batch,) = batches
                assert set(batch.tap.tolist()) == {2}
                for at, length in zip(batch.offset.tolist(), batch.captured.tolist(), strict=True):
                    seen.append(batch.data[at : at + length].tobytes())
                times += batch.time_ns.tolist()
                drain.release()
            assert seen == [frame[:96] for frame in frames for _ in range(2000 + lap)]
            assert times == sorted(times)
        assert probe.counted(0) == (drain.frames, 0)
        assert probe.rings.rings[0].tail > 2 * (2 << 20)


def test_a_full_ring_takes_no_record_until_it_is_read(on_cpu_0):
    with loaded(4096, [0]) as probe:
        room = (4096 - (16 + 256)) // RECORD + 1  # behind these the largest has none
        drain = Drain(probe.rings.rings)
        for number in range(1, 6):
            probe.run(1000)
            assert probe.counted(0) == (room * number, (1000 - room) * number)
            assert sum(len(batch) for batch in drain.gather(everything=True)) == room
            drain.release()


def test_a_cpu_without_a_ring_loses_everything_and_says_so(on_cpu_0):
    others = [cpu for cpu in bpf.online_cpus() if cpu != 0]
    if not others:
        pytest.skip("takes two CPUs")
    with loaded(4096, others[:1]) as probe:
        probe.run(50)
        assert probe.counted(0) == (0, 50)
        os.sched_setaffinity(0, set(others[:1]))
        probe.run(5)
        assert probe.counted(others[0]) == (5, 0)


def test_a_probe_that_interrupts_another_finds_no_room(on_cpu_0, order):
    """The mark is set by hand, as it is in the midst of a record."""
    with loaded(4096, [0]) as probe:
        probe.run(3)
        drain = Drain(probe.rings.rings)
        head = probe.rings._control["head"]
        head[0] += np.uint64(1)
        probe.run(4)
        assert probe.counted(0) == (3, 4)
        assert [len(batch) for batch in drain.gather(everything=True)] == [3]
        assert drain.more  # what is being written may be earlier than what others have
        assert drain.gather() == []
        head[0] -= np.uint64(1)
        probe.run(2)
        assert probe.counted(0) == (5, 4)
        assert [len(batch) for batch in drain.gather(everything=True)] == [2]


def test_the_bell_rings_once_for_every_quarter(on_cpu_0):
    with loaded(1 << 14, [0]) as probe:
        wakeups = Wakeups(probe.rings.maps.bell)
        quarter = -(-(1 << 12) // RECORD)

        for more in (quarter - 1, 1):
            probe.run(more)
            assert wakeups.wait(0) == (more == 1)
        assert not wakeups.wait(0.01)  # heard once
        probe.run(2 * quarter)
        assert wakeups.wait(5)
        assert not wakeups.wait(0)
        wakeups.close()
