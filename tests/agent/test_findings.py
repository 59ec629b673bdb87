"""Answers as JSON have a schema of their own."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from counted import packet
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from waiting import until

from rocescope.agent import recorder as keeping
from rocescope.agent import recorder as under_test
from rocescope.agent.adapters import Adapter, AdapterState
from rocescope.agent.findings import (
    ADAPTER,
    GONE,
    NEW_AGAIN_NS,
    NOT_ATTACHED,
    UNKNOWN,
    WINDOW_NS,
    AgentDiagnosis,
    AgentFinding,
    Bypass,
    Findings,
    Flows,
    Now,
    Place,
    QueuePairs,
    blind,
    blind_because,
    placed,
)
from rocescope.agent.flows import COUNTED
from rocescope.agent.recorder import AFTER_S, BEFORE_S, EVERY_S, LEAST_BYTES, Evidence, Recorder
from rocescope.analyzer.errors import RocescopeError, UnreadableInput, UsageError
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.probes.live import LiveOptions, LiveSource
from rocescope.probes.owners.queue_pairs import Resource

# Answers as JSON have a schema of their own.

# Answers as JSON have a schema of their own.


@pytest.mark.parametrize("record", [AgentDiagnosis, Flows, QueuePairs])
def test_schemas(record):
    schema = msgspec.json.schema(record)
    fields = schema["$defs"][record.__name__]["properties"]
    assert fields["schema_version"]["default"] == "1.0" and "time_ns" in fields


# Blind or not: a zero is never exported where packets cannot be seen.

HARDWARE, SOFTWARE = Adapter("mlx5_0", is_software=False), Adapter("rxe0", is_software=True)


@pytest.mark.parametrize(
    ("attached", "gone", "adapters", "counted", "bypassed", "reason"),
    [
        (True, False, [], 0, False, None),
        (True, False, [SOFTWARE], 0, False, None),
        (True, False, [SOFTWARE], 0, True, None),
        (True, False, [HARDWARE], 0, False, ADAPTER),
        (True, False, [HARDWARE], 10, False, None),
        (True, False, [HARDWARE], 10, True, ADAPTER),
        (True, False, None, 0, False, UNKNOWN),
        (True, False, None, 10, False, None),
        (True, True, [], 10, False, GONE),
        (False, False, [HARDWARE], 0, False, NOT_ATTACHED),
    ],
)
def test_reasons(attached, gone, adapters, counted, bypassed, reason):
    assert blind_because(attached, gone, adapters, counted, bypassed) == reason
    if reason is not None:
        assert blind("eth2", reason).sentence


def test_bypass_is_found_by_what_has_grown():
    bypass = Bypass()
    looks = [
        (0, 5_000, False),  # before the start
        (1_000, 6_000, False),
        (1_000_000, 1_005_000, False),
        (1_000_010, 1_005_021, True),  # a long past with all packets hides nothing
        (1_000_010, 1_005_021, True),  # idle
        (1_000_020, 1_005_041, False),
        (1_000_020, 7, False),  # reset
        (1_000_020, 8, True),
    ]
    for counted, moved, found in looks:
        bypass.look(counted, {"mlx5_0": moved})
        assert bypass.found == found, (counted, moved)


def test_names_and_namespaces():
    assert placed("eth2", None) == ("eth2", None) and placed("eth2", "blue") == ("eth2", "blue")
    assert placed("red:eth2", "blue") == ("eth2", "red")
    assert placed("pid:7:eth2", None) == ("eth2", "pid:7")


# Findings from counts: thresholds, the last minute, what is new, and no false all-clear.

IN, OUT = Place("eth2", "in"), Place("eth2", "out")
S = 1_000_000_000


def counts(**numbers):
    row = np.zeros((1, len(COUNTED)), np.uint64)
    for name, number in numbers.items():
        row[0, COUNTED.index(name)] = number
    return row


def judge(findings, at_s=0, seen=True, whole=True, state=None, flows=None, **numbers):
    """flows: skipped PSNs and late packets of each; one flow has all without them."""
    now = Now(1000 * S + at_s * S, at_s * S)
    if flows is None:
        flows = [(numbers.get("gap_psns", 0), numbers.get("late", 0))]
    gaps, late = (sum(column) for column in zip(*flows, strict=True))
    row = counts(**{**numbers, "gap_psns": gaps, "late": late})
    disordered = np.array([(i, 0, *flow) for i, flow in enumerate(flows)], np.int64)
    return findings.take(now, row, disordered, [seen], [whole], state or AdapterState())


def test_clean_packets_are_healthy_as_far_as_they_go():
    findings = Findings([IN])
    assert judge(findings, packets=510, ordered=500, acks=10, ecn_capable=510) == []
    assert findings.current == []
    assert findings.healthy == [
        "eth2 in: no loss finding in 500 data packets",
        "eth2 in: no naks finding in 10 ACKs",
        "eth2 in: no receiver-not-ready finding in 10 ACKs",
        "eth2 in: no reordering finding in 500 data packets",
        "eth2 in: no ecn-marking finding in 510 ECN-capable packets",
    ]


def test_nothing_is_healthy_that_was_not_checked():
    findings = Findings([IN])
    judge(findings, packets=10, acks=10)
    assert {line.split()[3] for line in findings.healthy} == {"naks", "receiver-not-ready"}
    judge(findings, whole=False, packets=10, acks=10)
    assert findings.healthy == []
    assert judge(Findings([IN]), seen=False, packets=99, ordered=99, gap_psns=50) == []
    for unjudged in ("jumps", "restarts", "unordered"):
        findings = Findings([IN])
        judge(findings, packets=50, ordered=50, **{unjudged: 1})
        assert findings.healthy == []
    findings = Findings([OUT])
    judge(findings, packets=50, ordered=50)
    assert [line.split()[3] for line in findings.healthy] == ["reordering"]


def test_psns_that_nothing_fills_are_lost():
    (loss,) = judge(Findings([IN]), ordered=1000, gap_psns=20, late=10)
    assert (loss.kind, loss.severity, loss.packets, loss.of_packets) == (
        "loss",
        "critical",
        10,
        1000,
    )
    assert loss.share_percent == 1 and "eth2 in: 10 PSNs at least" in loss.sentence
    assert judge(Findings([IN]), ordered=200_000, gap_psns=19) == []
    assert judge(Findings([OUT]), ordered=1000, gap_psns=20) == []


def test_retransmissions_do_not_hide_loss():
    """Go-back-N: one PSN is skipped, then many packets come again."""
    (loss,) = judge(Findings([IN]), ordered=31_510, gap_psns=125, late=11_155)
    assert (loss.kind, loss.packets) == ("loss", 125) and "retransmitted" in loss.sentence
    refused = judge(Findings([IN]), ordered=1000, gap_psns=20, late=20, naks=20, acks=40_000)
    assert [(one.kind, one.packets) for one in refused] == [("loss", 20)]
    assert "reordered and refused" in refused[0].sentence


def test_each_flow_is_judged_by_itself():
    findings = Findings([IN])
    (loss,) = judge(findings, ordered=10_000, flows=[(12, 900), (500, 500), (30, 0)])
    assert loss.packets == 12 + 30
    assert judge(Findings([IN]), 0, ordered=10_000, flows=[(500, 500), (0, 900)]) == []
    findings = Findings([IN])
    assert judge(findings, 0, ordered=1000, flows=[(20, 0)])
    judge(findings, 1, ordered=1000, flows=[(0, 20)])
    assert "loss" not in {one.kind for one in findings.current}, "filled in the next interval"


def test_skipped_psns_are_never_healthy():
    findings = Findings([IN])
    assert judge(findings, ordered=1000, gap_psns=1, late=1) == []
    assert not [line for line in findings.healthy if "loss" in line]
    (line,) = findings.undecided
    assert line.startswith("eth2 in: 1 PSN was skipped") and "loss from reordering" in line
    judge(findings, 61, ordered=1000)
    assert findings.undecided == [] and "no loss finding" in findings.healthy[0]
    judge(findings, 62, ordered=1000, gap_psns=50)
    assert findings.undecided == []


def test_warnings_are_current_but_not_critical():
    findings = Findings([IN])
    assert judge(findings, ordered=1000, late=100, acks=100, rnr_naks=10, ecn_capable=1000) == []
    assert {f.kind for f in findings.current} == {"reordering", "receiver-not-ready"}
    judge(findings, ecn_capable=1000, ecn_marked=200)
    assert "ecn-marking" in {f.kind for f in findings.current}


def test_new_once_until_it_was_away_for_long():
    findings = Findings([IN])
    assert len(judge(findings, 0, acks=100, naks=50)) == 1
    assert judge(findings, 5, acks=100, naks=50) == []
    assert findings.current[0].since_ns == 1000 * S and findings.current[0].packets == 100
    minute = WINDOW_NS // S
    assert judge(findings, 5 + minute, acks=100) == [] and findings.current == []
    assert judge(findings, 9 + minute, acks=100, naks=50) == []
    away = NEW_AGAIN_NS // S
    judge(findings, 10 + 2 * minute)
    (again,) = judge(findings, 9 + minute + away, acks=100, naks=50)
    assert again.since_ns == (1000 + 9 + minute + away) * S


def in_error(*failed, of=2):
    return AdapterState(
        [
            Resource("mlx5_0", 1, n, 5, "RC", "ERR" if n in failed else "RTS", 0, 0, 7, "x")
            for n in range(of)
        ]
    )


def test_queue_pairs_in_error():
    (finding,) = judge(Findings([IN]), state=in_error(1))
    assert finding.kind == "queue-pairs-in-error" and (finding.packets, finding.of_packets) == (
        1,
        2,
    )
    assert "mlx5_0: 1 of 2 queue pairs" in finding.sentence


def test_a_lingering_queue_pair_hides_no_later_failure():
    findings = Findings([IN])
    assert len(judge(findings, 0, state=in_error(1, of=9))) == 1
    assert judge(findings, 15, state=in_error(1, of=9)) == []
    (later,) = judge(findings, 30, state=in_error(1, 4, of=9))
    assert later.packets == 2 and findings.current[0].since_ns == 1030 * S
    assert judge(findings, 45, state=in_error(4, of=9)) == []
    assert len(judge(findings, 60, state=in_error(4, 5, of=9))) == 1


def test_a_finding_that_grows_much_is_told_again():
    findings = Findings([IN])
    times = range(0, 120, 5)
    told = [len(judge(findings, at, acks=1000, naks=20)) for at in times]
    assert told == [1] + [0] * (len(times) - 1)
    told = [len(judge(findings, at, acks=10_000, naks=2000)) for at in range(120, 180, 5)]
    assert sum(told) == 1 and told[0] == 0


# Which files stay: those around findings, within the size, with those of earlier runs.

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
