"""Which files stay: those around findings, within the size, with those of earlier runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from rocescope.agent.evidence import AFTER_S, BEFORE_S, EVERY_S, LEAST_BYTES, Evidence
from rocescope.analyzer.errors import UsageError

MB = 1 << 20


class Ring:
    """A ring that begins a file every EVERY_S, of this size."""

    def __init__(self, keep=LEAST_BYTES, size=1000):
        self.now = 0.0
        self.evidence = Evidence(keep, lambda: self.now)
        self.size, self.sizes, self.number = size, {}, 0
        self.begin()

    def begin(self):
        for name in self.sizes:
            self.sizes[name] = self.size
        self.number += 1
        self.sizes[Path(f"{self.number}")] = 0
        for gone in list(self.evidence.surplus(self.sizes)):
            del self.sizes[gone]

    def run(self, seconds):
        for _ in range(int(seconds / EVERY_S)):
            self.now += EVERY_S
            self.begin()

    def names(self):
        return [int(str(name)) for name in self.sizes]


def test_without_findings_only_the_last_files_stay():
    ring = Ring()
    ring.run(1000)
    assert ring.names() == [97, 98, 99, 100, 101]


def test_files_around_a_finding_stay():
    ring = Ring()
    ring.run(200)  # file 21 begins at 200 s
    ring.now += 5
    files = ring.evidence.want()
    ring.now -= 5
    ring.run(1000)
    first = int((200 + 5 - BEFORE_S) / EVERY_S) + 1
    last = int((200 + 5 + AFTER_S) / EVERY_S) + 1
    assert [int(str(path)) for path in files] == list(range(first, last + 1))
    assert ring.names() == [*range(first, last + 1), 117, 118, 119, 120, 121]


def test_the_oldest_evidence_goes_when_the_folder_is_full():
    ring = Ring(size=LEAST_BYTES // 40)
    wanted = []
    for _ in range(10):
        ring.run(100)
        wanted.append(ring.evidence.want())
        ring.run(100)
        assert sum(ring.sizes.values()) + ring.size <= LEAST_BYTES
    assert not wanted[0] and len(wanted[-1]) == 8


@examples(40)
@given(
    st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=20),
    st.integers(1, LEAST_BYTES // 40),
)
def test_the_size_holds_and_the_newest_stay(steps, size):
    ring = Ring(size=size)
    for files, finds in steps:
        ring.run(files * EVERY_S)
        wanted = ring.evidence.want() if finds else []
        assert sum(ring.sizes.values()) + size <= LEAST_BYTES
        assert set(wanted) <= set(ring.sizes)
        newest = list(range(max(1, ring.number - 3), ring.number + 1))
        assert ring.names()[-len(newest) :] == newest
    assert set(ring.evidence.unwanted(ring.sizes)) <= set(ring.sizes)


def test_files_of_earlier_runs_count(tmp_path):
    for number in range(6):
        path = tmp_path / f"rocescope-agent_{number:05}_20260101000000.pcapng"
        path.write_bytes(bytes(5 * MB))
        os.utime(path, (number, number))
    for other in ("other.pcapng", "rocescope-agent_1_2.pcapng"):
        (tmp_path / other).write_bytes(bytes(MB))
    (tmp_path / "rocescope-agent_00009_20260101000000.pcapng").symlink_to(tmp_path / "other.pcapng")
    evidence = Evidence(LEAST_BYTES)
    evidence.adopt(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert len(names) == 3 + 4
    assert not {name[16:21] for name in names} & {"00000", "00001"}
    assert evidence._left == LEAST_BYTES - 20 * MB


def test_too_small():
    with pytest.raises(UsageError, match="--keep must be 40MiB or more"):
        Evidence(LEAST_BYTES - 1)
