"""Addresses of this host, from the kernel's tables and from made ones."""

from __future__ import annotations

import json
import re
import socket

import pytest
from captures import Tracked, data, truth

from rocescope.analyzer.track.state import EVIDENCE_HOST_PROBE
from rocescope.probes.owners.join import local_addresses, owners_of
from rocescope.probes.owners.queue_pairs import QueuePair, QueuePairs, Rank, parse_resources

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
