"""Queue pairs of many hosts and their peers."""

from __future__ import annotations

import json
import shutil

import pytest
from answers import recorded
from hosts_with_queue_pairs import entry, of_agent
from sshd import LocalSshd, inventory

from rocescope.analyzer.errors import UsageError
from rocescope.analyzer.track.answers import rdma_udp_sport
from rocescope.discovery.dialects.registry import DIALECTS
from rocescope.discovery.discover import discover_folder
from rocescope.discovery.folder import read_folder
from rocescope.discovery.queue_pairs import Entry, joined, read_queue_pairs
from rocescope.discovery.remote.collect import collect
from rocescope.discovery.remote.inventory import read_inventory


def answers(tmp_path, **hosts):
    for name, entries in hosts.items():
        (tmp_path / f"{name}.qp.json").write_text(json.dumps(entries))
    return joined({name: read_queue_pairs(tmp_path, name) for name in hosts}, complete=True)


def test_peers_name_each_other(tmp_path):
    first, second, third = answers(tmp_path, h1=[entry(17, 33)], h2=[entry(33, 17), entry(34, 17)])
    assert (first.inferred_peer, second.inferred_peer, third.inferred_peer) == ("h2", "h1", None)
    assert (first.pid, first.command, first.remote_qp) == (7, "python", 33)
    ports = {pair.inferred_udp_source_port for pair in (first, second)}
    assert ports == {int(rdma_udp_sport(17, 33))}


def test_numbers_that_repeat_have_no_known_peer(tmp_path):
    """h1 and h3 both have 17 towards 33: either may be the peer of h2."""
    found = answers(tmp_path, h1=[entry(17, 33)], h2=[entry(33, 17)], h3=[entry(17, 33)])
    assert [pair.inferred_peer for pair in found] == [None, None, None]


def test_two_hosts_whose_peers_did_not_answer_are_no_peers(tmp_path):
    """Both have peers elsewhere that happen to have these numbers."""
    hosts = {"h1": [Entry(17, "mlx5_0", 33, "RC", "RTS")], "h2": [Entry(33, "", 17, "RC", "RTS")]}
    assert {pair.inferred_peer for pair in joined(hosts, complete=False)} == {None}
    assert {pair.inferred_peer for pair in joined(hosts, complete=True)} == {"h1", "h2"}


@pytest.mark.parametrize(
    ("other", "known"),
    [
        ({}, False),
        ({"type": "XRC_TGT"}, True),
        ({"type": "XRC_INI"}, False),
        ({"type": "XRC_TGT", "state": "ERROR"}, False),
    ],
)
def test_peers_fit_in_type_and_are_connected(other, known, tmp_path):
    first, second = answers(
        tmp_path, h1=[entry(17, 33, type="XRC_INI")], h2=[entry(33, 17, **other)]
    )
    assert (first.inferred_peer, second.inferred_peer) == (("h2", "h1") if known else (None, None))


def test_queue_pairs_without_connection(tmp_path):
    kernel = {"ifname": "mlx5_0", "lqpn": 1, "type": "GSI", "state": "RTS", "comm": "[ib_core]"}
    (pair,) = answers(tmp_path, h1=[kernel])
    assert (pair.remote_qp, pair.inferred_peer, pair.inferred_udp_source_port) == (None, None, None)
    assert (pair.pid, pair.command) == (None, "[ib_core]")


def test_a_queue_pair_with_its_own_number(tmp_path):
    assert [pair.inferred_peer for pair in answers(tmp_path, h1=[entry(17, 17)])] == [None]


@pytest.mark.parametrize("content", [b"{}", b"[", b'[{"lqpn": "x"}]', b'[{"lqpn": 16777216}]'])
def test_other_content_is_named(content, tmp_path):
    (tmp_path / "h1.qp.json").write_bytes(content)
    with pytest.raises(UsageError, match=r"h1.qp.json"):
        read_queue_pairs(tmp_path, "h1")


def test_the_agent_tells_the_same(tmp_path):
    """It counts only without an answer of `rdma`."""
    entries = [entry(17, 33, comm="train"), entry(18, 0, type="UD")]
    (tmp_path / "h1.qp.json").write_text(json.dumps(entries))
    (tmp_path / "h2.qp.json").touch()
    for name in ("h1", "h2"):
        (tmp_path / f"{name}.agent.json").write_bytes(of_agent(entries))
    assert read_queue_pairs(tmp_path, "h2") == read_queue_pairs(tmp_path, "h1")
    (tmp_path / "h1.qp.json").write_text("[]")
    assert read_queue_pairs(tmp_path, "h1") == []


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (of_agent([entry(17, 33)], known=2), "1 of 2 queue pairs"),
        (of_agent([], why="no\x1b[2J adapter"), r"does not know the queue pairs: no\?\[2J adapter"),
        (of_agent([entry(1 << 24, 33)]), "is not a QPN"),
        (
            of_agent([entry(17, 33)]).replace(b'"1.0"', b'"9.0"'),
            "not the output of rocescope agent",
        ),
        (of_agent([entry(17, 33)])[:-9], "not the output of rocescope agent"),
        (b"[]", "not the output of rocescope agent"),
    ],
)
def test_an_agent_that_does_not_tell_all_is_no_answer(content, told, tmp_path):
    (tmp_path / "h1.agent.json").write_bytes(content)
    with pytest.raises(UsageError, match=f"h1.agent.json: .*{told}"):
        read_queue_pairs(tmp_path, "h1")


@pytest.mark.thorough
def test_sixteen_hosts_with_32_queue_pairs_over_ssh(root, need_tool, tmp_path, monkeypatch):
    """Queue pair i of host a leads to host a xor (1 + i mod 15): known by its numbers alone.

    Hosts with an odd number have no `rdma`: the agent tells their queue pairs.
    """
    need_tool("sshd")
    folder = recorded(tmp_path) / "healthy"
    names = [f"g{i}" for i in range(16)]
    with LocalSshd(tmp_path) as server:
        for a, name in enumerate(names):
            for question in DIALECTS["linux"].questions:
                file = folder / f"h1.{question.suffix}"
                if file.exists():
                    shutil.copy(file, folder / f"{name}.{question.suffix}")
            peers = [a ^ (1 + i % 15) for i in range(32)]
            entries = [entry(256 + 32 * a + i, 256 + 32 * b + i) for i, b in enumerate(peers)]
            if a % 2:
                (folder / f"{name}.agent.json").write_bytes(of_agent(entries))
            else:
                (folder / f"{name}.qp.json").write_text(json.dumps(entries))
            server.add_recorded(name, folder, DIALECTS["linux"])
        monkeypatch.setenv("HOME", str(server.home))
        monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
        targets = read_inventory(inventory(tmp_path / "i.yaml", {}, names), DIALECTS)
        collect(targets, tmp_path / "raw")
    found = joined(
        {name: read_queue_pairs(tmp_path / "raw", name) for name in names}, complete=True
    )
    assert len(found) == 512
    assert not (tmp_path / "raw" / "g0.agent.json").exists()
    told, _ = read_folder(tmp_path / "raw")
    missing = {q.suffix for one in told for q in one.missing}
    assert "rdma.json" in missing and not missing & {"qp.json", "agent.json"}
    for number, pair in enumerate(found):
        a, i = divmod(number, 32)
        assert (pair.host, pair.inferred_peer) == (f"g{a}", f"g{a ^ (1 + i % 15)}")


def test_they_are_in_the_report(tmp_path):
    """With peers once all hosts have answered; an empty file is no answer."""
    folder = recorded(tmp_path) / "healthy"
    for name, lqpn, rqpn in (("h1", 17, 33), ("h3", 33, 17)):
        (folder / f"{name}.qp.json").write_text(json.dumps([entry(lqpn, rqpn)]))
    (folder / "h2.qp.json").write_text("[]")
    (folder / "h4.qp.json").touch()
    found = discover_folder(folder, 10**10, 500).report.queue_pairs
    assert [(pair.host, pair.inferred_peer) for pair in found] == [("h1", None), ("h3", None)]
    (folder / "h4.qp.json").write_text("[]")
    found = discover_folder(folder, 10**10, 500).report.queue_pairs
    assert [(pair.host, pair.inferred_peer) for pair in found] == [("h1", "h3"), ("h3", "h1")]


def test_damaged_answers_of_one_host_are_named(tmp_path):
    folder = recorded(tmp_path) / "healthy"
    (folder / "h1.qp.json").write_text("[")
    (folder / "h3.qp.json").write_text(json.dumps([entry(33, 17)]))
    report = discover_folder(folder, 10**10, 500).report
    assert ("unreadable", "h1") in {(r.kind, r.device) for r in report.remarks}
    assert len(report.queue_pairs) == 1
