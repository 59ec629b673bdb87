"""Ranks from real processes, and from /proc trees that changed under the reader's hands."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from captures import Tracked, data, truth
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.track.state import EVIDENCE_HOST_PROBE
from rocescope.probes.owners import queue_pairs as ranks
from rocescope.probes.owners import queue_pairs as resources_queue_pairs
from rocescope.probes.owners.join import local_addresses, owners_of
from rocescope.probes.owners.queue_pairs import (
    QueuePair,
    QueuePairs,
    Rank,
    Resource,
    command_of,
    parse_resources,
    rank_of,
    rdma_tool,
    read_resources,
    start_ticks,
)
from rocescope.probes.owners.uprobes import CREATED, DESTROYED, MODIFIED, QpEvent

# Ranks from real processes, and from /proc trees that changed under the reader's hands.

# Ranks from real processes, and from /proc trees that changed under the reader's hands.


def sleeper(**environment):
    """A process that runs with this environment until its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PATH": "", **environment},
    )
    process.stdout.readline()
    return process


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"RANK": "12", "LOCAL_RANK": "4"}, Rank(12, 4, "RANK")),
        (
            {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_LOCAL_RANK": "1"},
            Rank(3, 1, "OMPI_COMM_WORLD_RANK"),
        ),
        ({"SLURM_PROCID": "7", "SLURM_LOCALID": "0"}, Rank(7, 0, "SLURM_PROCID")),
        ({"SLURM_PROCID": "7", "RANK": "56"}, Rank(56, None, "RANK")),
        ({"PMI_RANK": "2"}, Rank(2, None, "PMI_RANK")),
        ({"MV2_COMM_WORLD_RANK": "5"}, Rank(5, None, "MV2_COMM_WORLD_RANK")),
        ({"RANK": "", "PMI_RANK": "9"}, Rank(9, None, "PMI_RANK")),
        ({"RANK": "-1"}, Rank(reason="no launcher has set a rank")),
        ({"RANK": "1" * 5000}, Rank(reason="no launcher has set a rank")),
        ({"XRANK": "1"}, Rank(reason="no launcher has set a rank")),
    ],
)
def test_rank_of_a_process(environment, expected):
    process = sleeper(**environment)
    try:
        assert rank_of(process.pid) == expected
        assert rank_of(process.pid, time.time_ns()) == expected
    finally:
        process.communicate(b"")


def test_process_that_is_gone():
    process = sleeper(RANK="1")
    process.communicate(b"")
    assert rank_of(process.pid) == Rank(reason="the process has ended")
    assert start_ticks(process.pid) is None


def test_a_younger_process_with_the_number():
    before = time.time_ns() - 10_000_000_000
    process = sleeper(RANK="1")
    try:
        assert rank_of(process.pid, before).reason.endswith("another one has its number")
        assert rank_of(process.pid, before).rank is None
    finally:
        process.communicate(b"")


def test_the_number_changes_hands_while_reading(monkeypatch):
    starts = iter([100, 200])
    monkeypatch.setattr(ranks, "start_ticks", lambda *_: next(starts))
    assert rank_of(os.getpid()).reason == "the process has ended, another one has its number"


def test_another_users_process(need_tool, root):
    setpriv = need_tool("setpriv")
    process = sleeper(RANK="1")
    code = f"print(open('/proc/{process.pid}/environ').read())"
    python = shutil.which("python3", path="/usr/bin") or sys.executable
    try:
        refused = subprocess.run(
            [setpriv, "--reuid=65534", "--clear-groups", python, "-c", code],
            capture_output=True,
            text=True,
        )
        assert "PermissionError" in refused.stderr  # so it is what rank_of meets
    finally:
        process.communicate(b"")


def test_unreadable_environment(tmp_path, monkeypatch):
    def refuse(path, *_):
        if path.endswith("environ"):
            raise PermissionError(13, "Permission denied")
        return open(path, "rb")

    monkeypatch.setattr(ranks, "open", refuse, raising=False)
    assert "CAP_SYS_PTRACE" in rank_of(os.getpid()).reason


def test_odd_process_names(tmp_path):
    """The name of a process may hold blanks and brackets."""
    folder = tmp_path / "7"
    folder.mkdir()
    fields = " ".join(str(n) for n in range(4, 52))
    (folder / "stat").write_text(f"7 (a) R 1 (b) S {fields}\n")
    assert start_ticks(7, str(tmp_path)) == 22


@given(st.binary(max_size=200))
def test_any_environment(tmp_path_factory, content):
    folder = tmp_path_factory.mktemp("proc")
    (folder / "7").mkdir()
    (folder / "7" / "stat").write_text("7 (x) S " + " ".join(["1"] * 40))
    (folder / "7" / "environ").write_bytes(b"RANK=3\0" + content)
    found = rank_of(7, proc=str(folder))
    assert found.variable == "RANK" or b"RANK=" in content


# The output of `rdma -j resource show qp`, whatever it holds.

ROW = {
    "ifindex": 0, "ifname": "mlx5_0", "port": 1, "lqpn": 17, "rqpn": 18, "type": "RC",
    "state": "RTS", "rq-psn": 5, "sq-psn": 9, "pid": 4711, "comm": "python",
}  # fmt: skip


def test_rows():
    kernel = {"ifname": "mlx5_0", "lqpn": 1, "type": "GSI", "state": "RTS", "comm": "[ib_core]"}
    rows, reason = parse_resources(json.dumps([ROW, kernel]))
    assert reason is None
    assert rows[0] == Resource("mlx5_0", 1, 17, 18, "RC", "RTS", 5, 9, 4711, "python")
    assert (rows[1].pid, rows[1].command, rows[1].remote_qp) == (None, "ib_core", None)
    assert parse_resources("") == ([], None)


@pytest.mark.parametrize("odd", [7, {"lqpn": 1}, {"ifname": "a"}, {**ROW, "lqpn": "17"}, None])
def test_odd_rows_are_counted(odd):
    rows, reason = parse_resources(json.dumps([ROW, odd]))
    assert len(rows) == 1 and reason == "rdma resource show: 1 rows could not be parsed"


def test_odd_numbers_are_unknown():
    rows, _ = parse_resources(json.dumps([{**ROW, "rqpn": True, "pid": "4711"}]))
    assert (rows[0].remote_qp, rows[0].pid) == (None, None)


@given(st.text(max_size=40))
def test_any_text(text):
    rows, reason = parse_resources(text)
    assert rows == [] or reason is None


def test_the_name_of_a_process(tmp_path):
    with open("/proc/self/comm") as file:
        assert command_of(os.getpid()) == file.read().rstrip("\n")
    assert command_of(7, str(tmp_path)) == ""


def test_the_tool_is_looked_for_on_the_path_and_then_in_the_folders_of_root(tmp_path, monkeypatch):
    on_path, of_root = tmp_path / "path", tmp_path / "sbin"
    for folder in (on_path, of_root):
        folder.mkdir()
    monkeypatch.setenv("PATH", str(on_path))
    monkeypatch.setattr(resources_queue_pairs, "_TOOL_FOLDERS", str(of_root))
    assert rdma_tool() is None
    for folder in (of_root, on_path):
        (folder / "rdma").touch(mode=0o755)
        assert rdma_tool() == str(folder / "rdma")


# From calls of libibverbs and the kernel's table to queue pairs.

STATE, AV, PATH_MTU, RQ_PSN, SQ_PSN, DEST_QPN = 1, 1 << 7, 1 << 8, 1 << 12, 1 << 16, 1 << 20
PEER = bytes(10) + b"\xff\xff\x0a\x00\x00\x02"

# As iproute2 6.1 prints it: the kernel's own queue pair, then one of a process.
TABLE = """[ {
        "ifindex": 0,
        "ifname": "rxe0",
        "port": 1,
        "lqpn": 1,
        "type": "GSI",
        "state": "RTS",
        "sq-psn": 0,
        "comm": "ib_core"
    },{
        "ifindex": 0,
        "ifname": "rxe0",
        "port": 1,
        "lqpn": 17,
        "rqpn": 18,
        "type": "RC",
        "state": "RTS",
        "rq-psn": 16382837,
        "sq-psn": 6155308,
        "path-mig-state": "MIGRATED",
        "pdn": 1,
        "pid": %d,
        "comm": "ib_write_bw"
    } ]"""


def event(kind, local_qp=17, time_ns=100, **changes):
    values = dict(
        kind=kind, time_ns=time_ns, pid=os.getpid(), command="ib_write_bw", qp=1,
        local_qp=local_qp, device="rxe0", type=2, mask=0, state=0, path_mtu=0, rq_psn=0, sq_psn=0,
        remote_qp=0, remote_gid=None, port=0, gid_index=0,
    )  # fmt: skip
    return QpEvent(**(values | changes))


def connected(local_qp=17, **changes):
    values = dict(
        mask=STATE | AV | PATH_MTU | RQ_PSN | DEST_QPN, state=2, path_mtu=3, rq_psn=7,
        remote_qp=18, remote_gid=PEER, port=1, gid_index=1,
    )  # fmt: skip
    return event(MODIFIED, local_qp, **(values | changes))


@pytest.fixture
def sysfs(tmp_path):
    folder = tmp_path / "rxe0" / "ports" / "1" / "gids"
    folder.mkdir(parents=True)
    (folder / "1").write_text("0000:0000:0000:0000:0000:ffff:0a00:0001\n")
    return tmp_path


def test_a_life(sysfs):
    pairs = QueuePairs(sysfs, proc=str(sysfs))
    pairs.note([event(CREATED)])
    (pair,) = pairs
    assert (pair.local_qp, pair.type, pair.device, pair.created_ns) == (17, "RC", "rxe0", 100)
    assert (pair.remote_qp, pair.remote_gid, pair.path_mtu, pair.state) == (None,) * 4
    pairs.note([connected()])
    pairs.note([event(MODIFIED, mask=STATE | SQ_PSN, state=3, sq_psn=9, rq_psn=99, remote_qp=99)])
    (pair,) = pairs
    assert (pair.remote_qp, pair.rq_psn, pair.sq_psn) == (18, 7, 9)
    assert (pair.local_gid, pair.remote_gid) == ("10.0.0.1", "10.0.0.2")
    assert (pair.path_mtu, pair.state, pair.port) == (1024, "RTS", 1)
    pairs.note([event(DESTROYED, time_ns=200)])
    (pair,) = pairs
    assert (pair.created_ns, pair.destroyed_ns, pair.remote_qp) == (100, 200, 18)


def test_a_number_used_again(sysfs):
    pairs = QueuePairs(sysfs, proc=str(sysfs))
    pairs.note([event(CREATED), event(DESTROYED, time_ns=200), event(CREATED, time_ns=300)])
    pairs.note([event(CREATED, time_ns=400)])  # the end of the one before was not seen
    lives = sorted((p.created_ns, p.destroyed_ns) for p in pairs if p.destroyed_ns)
    assert lives == [(100, 200), (300, 400)]
    assert [p.created_ns for p in pairs if p.destroyed_ns is None] == [400]


def test_seen_first_while_it_connects(sysfs):
    pairs = QueuePairs(sysfs, proc=str(sysfs))
    pairs.note([connected()])
    (pair,) = pairs
    assert pair.created_ns is None and pair.remote_qp == 18


def test_two_devices_with_one_number(sysfs):
    pairs = QueuePairs(sysfs, proc=str(sysfs))
    pairs.note([event(CREATED), event(CREATED, device="rxe1"), event(DESTROYED, device="rxe1")])
    assert [p.device for p in pairs if p.destroyed_ns is None] == ["rxe0"]


def test_the_kernels_table(sysfs):
    rows, reason = parse_resources(TABLE % os.getpid())
    assert reason is None
    kernels, own = rows
    assert (kernels.type, kernels.pid, kernels.remote_qp, kernels.command) == (
        "GSI", None, None, "ib_core"
    )  # fmt: skip
    assert (own.local_qp, own.remote_qp, own.rq_psn, own.sq_psn) == (17, 18, 16382837, 6155308)
    pairs = QueuePairs(sysfs, proc=str(sysfs))
    pairs.merge(rows, 1000)
    (pair,) = pairs
    assert (pair.pid, pair.command, pair.remote_qp) == (os.getpid(), "ib_write_bw", 18)
    assert pair.created_ns is None and pair.remote_gid is None
    pairs.note([connected(remote_qp=20)])
    pairs.merge(rows, 2000)  # an older table does not undo what the call said
    (pair,) = pairs
    assert (pair.remote_qp, pair.remote_gid, pair.state) == (20, "10.0.0.2", "RTS")


@pytest.mark.parametrize(
    ("text", "rows", "reason"),
    [
        ("", 0, None),
        ("[]", 0, None),
        ("not JSON", 0, "unknown output"),
        ("{}", 0, "1 rows"),
        (
            '[{"ifname": "a", "lqpn": 3}, {"lqpn": 4}, 7, {"ifname": "a", "lqpn": true}]',
            1,
            "3 rows",
        ),
    ],
)
def test_odd_tables(text, rows, reason):
    found, why = parse_resources(text)
    assert len(found) == rows
    assert why is None if reason is None else reason in why


def test_the_tool_itself():
    rows, reason = read_resources()
    assert isinstance(rows, list) and (rows or reason is None or "rdma" in reason.lower())


def test_the_tool_is_missing(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    assert read_resources() == ([], "the rdma tool is not installed (package iproute2)")


def test_processes_that_were_killed(sysfs):
    pairs = QueuePairs(sysfs)
    gone = 2**22 + 1  # above any pid_max
    pairs.note([event(CREATED, time_ns=time.time_ns()), event(CREATED, 18, pid=gone)])
    pairs.bury(500)
    assert {(p.local_qp, p.destroyed_ns) for p in pairs} == {(17, None), (18, 500)}
    assert {p.pid: p.rank.reason for p in pairs}[gone] == "the process has ended"


def test_the_name_is_that_of_the_process_not_of_its_thread(sysfs):
    pairs = QueuePairs(sysfs)
    pairs.note([event(CREATED, command="NCCL Service", time_ns=time.time_ns())])
    (pair,) = pairs
    assert pair.command == Path("/proc/self/comm").read_text().strip()


def test_a_process_number_used_again(tmp_path):
    """Two processes, one after the other, with the number 7 and different ranks."""
    folder = tmp_path / "7"
    folder.mkdir()
    pairs = QueuePairs(tmp_path, proc=str(tmp_path))
    for start, rank in ((100, 3), (200, 4)):
        (folder / "stat").write_text("7 (job) S " + "0 " * 18 + str(start))
        (folder / "environ").write_bytes(b"RANK=%d\0" % rank)
        (folder / "comm").write_text(f"job{rank}\n")
        pairs.note([event(CREATED, local_qp=rank, pid=7, time_ns=time.time_ns())])
    assert {(p.local_qp, p.rank.rank, p.command) for p in pairs} == {(3, 3, "job3"), (4, 4, "job4")}
    assert [p.local_qp for p in pairs if p.destroyed_ns is None] == [4]


# Addresses of this host, from the kernel's tables and from made ones.

# Addresses of this host, from the kernel's tables and from made ones.

FIB = """\
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 10.0.0.0
        /24 link UNICAST
     |-- 10.0.0.7
        /32 host LOCAL
     |-- 10.0.0.255
        /32 link BROADCAST
Local:
     |-- 127.0.0.1
        /32 host LOCAL
"""


def test_made_tables(tmp_path):
    folder = tmp_path / "thread-self" / "net"
    folder.mkdir(parents=True)
    (folder / "fib_trie").write_text(FIB)
    (folder / "if_inet6").write_text(
        "fd000000000000000000000000000001 02 40 00 80     eth0\nodd\n\n"
    )
    assert local_addresses(str(tmp_path)) == {"10.0.0.7", "127.0.0.1", "fd00::1"}


def test_no_tables(tmp_path):
    assert local_addresses(str(tmp_path)) == set()


def test_addresses_of_this_host_can_be_bound():
    found = local_addresses()
    assert "127.0.0.1" in found
    for address in found:
        if ":" not in address:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as bound:
                bound.bind((address, 0))


# Owners on real captures, with the queue pairs the kernel listed while they were made.

HOSTS = {"A": "10.0.0.1", "B": "10.0.0.2"}


def resources(text):
    """The rows of `rdma resource show qp` as its JSON has them."""

    rows = []
    for line in text.splitlines():
        found = re.match(r"link (\S+)/(\d+) (.*?)comm (.*\S)", line)
        if found is None:
            continue
        device, port, words, command = found.groups()
        words = words.split()
        values = dict(zip(words[::2], words[1::2], strict=True))
        row = {"ifindex": 0, "ifname": device, "port": int(port), "comm": command.strip("[]")}
        rows.append(row | {k: int(v) if v.isdigit() else v for k, v in values.items()})
    return parse_resources(json.dumps(rows))


def host_pairs(name, host, tmp_path):
    run, _ = truth(name)
    rows, reason = resources(run["rdma_res_during"][host])
    assert reason is None
    pairs = QueuePairs(sysfs=tmp_path, proc=str(tmp_path))
    pairs.merge(rows, 0)
    return list(pairs)


def joined(name, pairs, addresses, tmp_path):
    """(owners by flow key, the tracker) of a capture."""
    capture = Tracked([data(f"{name}.atB")])
    found = owners_of(pairs, addresses, capture.tracker, capture.endpoints, sysfs=tmp_path)
    keys = capture.keys()
    return {keys[flow]: owner for flow, owner in found.items()}, capture


@pytest.mark.parametrize("host", ["A", "B"])
@pytest.mark.parametrize(
    ("name", "qps", "command"),
    [
        ("n05_rc_write_lat_timeouts", [169], "ib_write_lat"),
        ("i01_write_loss0.5_AtoB", [34, 35, 36, 37], "ib_write_bw"),
    ],
)
def test_owners_of_real_captures(name, qps, command, host, tmp_path):
    here, there = HOSTS[host], HOSTS["B" if host == "A" else "A"]
    run, _ = truth(name)
    pids = {int(pid) for pid in re.findall(r"pid (\d+)", run["rdma_res_during"][host])}
    owners, capture = joined(name, host_pairs(name, host, tmp_path), {here}, tmp_path)
    expected = {(there, here, qp): "destination" for qp in qps}
    expected |= {(here, there, qp): "source" for qp in qps}
    assert {key: owner.end for key, owner in owners.items()} == expected
    assert {owner.command for owner in owners.values()} == {command}
    assert {owner.pid for owner in owners.values()} == pids
    index = {key: flow for flow, key in enumerate(capture.keys())}
    for qp in qps:
        out, back = index[here, there, qp], index[there, here, qp]
        flows = capture.tracker.flows
        assert flows[out]["peer"] == back and flows[back]["peer"] == out
        assert flows[out]["evidence"] & flows[back]["evidence"] & EVIDENCE_HOST_PROBE


def test_different_numbers_at_both_ends(tmp_path):
    """Host A's queue pair 416 talks to 412; the flow to 416 comes back."""
    name = "c40_rc_oddities_ipv4"
    owners, capture = joined(name, host_pairs(name, "A", tmp_path), {HOSTS["A"]}, tmp_path)
    ends = {key: (owner.pid, owner.end) for key, owner in owners.items()}
    assert ends == {
        ("10.0.0.1", "10.0.0.2", 412): (3246, "source"),
        ("10.0.0.2", "10.0.0.1", 416): (3246, "destination"),
    }


def qp(local, pid, **known):
    return QueuePair(local, pid, f"p{pid}", Rank(rank=pid), "d", **known)


@pytest.fixture
def lat():
    return Tracked([data("n05")])


def owned(capture, pairs, addresses, tmp_path):
    found = owners_of(pairs, addresses, capture.tracker, capture.endpoints, sysfs=tmp_path)
    keys = capture.keys()
    return {keys[flow]: (owner.pid, owner.end, owner.rank) for flow, owner in found.items()}


TO_A, TO_B = ("10.0.0.2", "10.0.0.1", 169), ("10.0.0.1", "10.0.0.2", 169)


def test_exact_addresses(lat, tmp_path):
    exact = qp(169, 1, local_gid="10.0.0.1", remote_gid="10.0.0.2", remote_qp=169)
    elsewhere = qp(169, 2, local_gid="10.9.9.9", remote_gid="10.0.0.2", remote_qp=169)
    found = owned(lat, [exact, elsewhere], set(), tmp_path)
    assert found == {TO_A: (1, "destination", 1), TO_B: (1, "source", 1)}


def test_another_peer_is_not_it(lat, tmp_path):
    pair = qp(169, 1, local_gid="10.0.0.1", remote_gid="10.0.0.3", remote_qp=169)
    assert owned(lat, [pair], set(), tmp_path) == {}


def test_both_ends_on_this_host(lat, tmp_path):
    pairs = [
        qp(169, 1, local_gid="10.0.0.1", remote_gid="10.0.0.2", remote_qp=169),
        qp(169, 2, local_gid="10.0.0.2", remote_gid="10.0.0.1", remote_qp=169),
    ]
    found = owned(lat, pairs, set(), tmp_path)
    assert found == {TO_A: (1, "destination", 1), TO_B: (2, "destination", 2)}


def test_numbers_are_used_again(lat, tmp_path):
    first, last = (int(lat.tracker.flows[0][f]) for f in ("first_time", "last_time"))
    known = dict(local_gid="10.0.0.1", remote_gid="10.0.0.2", remote_qp=169)
    before = qp(169, 1, destroyed_ns=first - 10**9, **known)
    during = qp(169, 2, created_ns=first - 10, destroyed_ns=last + 10**9, **known)
    after = qp(169, 3, created_ns=last + 10**9, **known)
    found = owned(lat, [after, during, before], set(), tmp_path)
    assert found == {TO_A: (2, "destination", 2), TO_B: (2, "source", 2)}


def test_two_that_could_be_it(lat, tmp_path):
    """Two devices have the same number and nobody told their addresses."""
    assert owned(lat, [qp(169, 1), qp(169, 2)], {"10.0.0.1"}, tmp_path) == {}
