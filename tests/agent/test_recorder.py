"""Which files stay: those around findings, within the size, with those of earlier runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from counted import packet
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from waiting import until

from rocescope.agent import recorder as keeping
from rocescope.agent import recorder as under_test
from rocescope.agent.findings import AgentFinding
from rocescope.agent.recorder import AFTER_S, BEFORE_S, EVERY_S, LEAST_BYTES, Evidence, Recorder
from rocescope.analyzer.errors import RocescopeError, UnreadableInput, UsageError
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.probes.live import LiveOptions, LiveSource

# Which files stay: those around findings, within the size, with those of earlier runs.

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


# A real ring on a veth pair: packets before and after a finding are in its files.

FINDING = AgentFinding(
    kind="naks",
    severity="critical",
    interface="left",
    direction="in",
    since_ns=1,
    packets=1,
    of_packets=1,
    share_percent=100.0,
    sentence="left in: \x9b NAKs",
    next_step="",
)


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(under_test, "EVERY_S", 0.2)
    for module in (keeping, under_test):
        monkeypatch.setattr(module, "AFTER_S", 0.4)
    monkeypatch.setattr(keeping, "BEFORE_S", 0.5)
    monkeypatch.setattr(under_test, "_POLL_S", 0.02)


def source(net):
    return LiveSource([net.interface("left")], LiveOptions(ring_bytes=1 << 16), to_blocks=True)


def packets_by_queue_pair(paths):
    try:
        flows = analyze([str(path) for path in paths], AnalyzeOptions(concat=True)).flows
    except UnreadableInput:  # no frame yet
        return {}
    return {flow.dest_qp: flow.packets for flow in flows}


@pytest.mark.thorough
@pytest.mark.usefixtures("quick")
def test_packets_around_a_finding_stay(network, tmp_path, monkeypatch):
    """Its time stands still while packets are sent, however long that takes."""
    net, now = network(), [100.0]
    recorder = Recorder(source(net), tmp_path, keeping.LEAST_BYTES)
    recorder._evidence._clock = lambda: now[0]
    monkeypatch.setattr(under_test, "time", SimpleNamespace(monotonic=lambda: now[0]))
    recorder._evidence._began = dict.fromkeys(recorder._evidence._began, now[0])
    recorder.start()

    def files():
        return sorted(tmp_path.glob("*.pcapng"))

    def left(old):
        now[0] += 0.02
        return not set(files()) & set(old)

    net.send([packet(psn, qp=0x11) for psn in range(50)])
    until(lambda: packets_by_queue_pair(files()) == {0x11: 50})
    first = files()
    until(lambda: left(first))
    net.send([packet(psn, qp=0x22) for psn in range(50)])
    recorder.record(FINDING)
    net.send([packet(psn, qp=0x33) for psn in range(50)])
    until(lambda: packets_by_queue_pair(files()) == {0x22: 50, 0x33: 50})
    log = tmp_path / keeping.LOG
    now[0] += 1
    until(log.read_text)
    assert recorder.count == 1
    names = recorder.files_of(FINDING)
    recorder.close()
    assert recorder.error == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([keeping.LOG, *names])
    (line,) = log.read_text().splitlines()
    assert json.loads(line)["recordings"] == names and "\x9b" not in line
    assert packets_by_queue_pair(tmp_path / name for name in names) == {0x22: 50, 0x33: 50}


@pytest.mark.usefixtures("quick")
def test_without_findings_nothing_stays(network, tmp_path):
    net = network()
    recorder = Recorder(source(net), tmp_path, keeping.LEAST_BYTES)
    recorder.start()
    net.send([packet(1)])
    recorder.close()
    assert [path.name for path in tmp_path.iterdir()] == [keeping.LOG]
    assert recorder.files_of(FINDING) == []


def test_folders_that_cannot_be_used(tmp_path):
    with pytest.raises(RocescopeError, match="cannot record to .*: no such file or directory"):
        Recorder(LiveSource(["lo"]), tmp_path / "missing", keeping.LEAST_BYTES)
    (tmp_path / keeping.LOG).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RocescopeError, match="cannot record to"):
        Recorder(LiveSource(["lo"]), tmp_path, keeping.LEAST_BYTES)


@pytest.mark.usefixtures("quick")
def test_a_full_disk_ends_the_recording_only(network, tmp_path, monkeypatch):
    net = network()
    recorder = Recorder(source(net), tmp_path, keeping.LEAST_BYTES)

    def full(_blocks):
        raise RocescopeError("no space left")

    monkeypatch.setattr(recorder._files, "write", full)
    recorder.start()
    net.send([packet(1)])
    until(lambda: recorder.error == "no space left")
    recorder.record(FINDING)
    assert recorder.count == 0
    recorder.close()


@pytest.mark.usefixtures("quick")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_recording_that_ends_by_itself_says_so(network, tmp_path, monkeypatch):
    net = network()
    recorder = Recorder(source(net), tmp_path, keeping.LEAST_BYTES)

    def broken(_blocks):
        raise ValueError("a fault of the program")

    monkeypatch.setattr(recorder._files, "write", broken)
    recorder.start()
    net.send([packet(1)])
    until(lambda: recorder.error == "the capture has ended")
    recorder.close()
