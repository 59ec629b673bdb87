"""A real ring on a veth pair: packets before and after a finding are in its files."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from counted import packet
from waiting import until

from rocescope.agent import evidence as keeping
from rocescope.agent import recorder as under_test
from rocescope.agent.recorder import Recorder
from rocescope.agent.results import AgentFinding
from rocescope.analyzer.errors import RocescopeError, UnreadableInput
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.probes.live import LiveOptions, LiveSource

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
