"""Queue pairs of many hosts and their peers."""

from __future__ import annotations

import json
import shutil
import threading
import time
from dataclasses import replace
from ipaddress import ip_address

import pytest
from answers import recorded, truth
from hosts_with_queue_pairs import entry, of_agent
from job_logs import encoded, nccl
from network import roce_frames
from sshd import LocalSshd, inventory
from waiting import until

from rocescope.analyzer.errors import RocescopeError, UnreadableInput, UsageError
from rocescope.analyzer.jobs.job import Job
from rocescope.analyzer.track.answers import rdma_udp_sport
from rocescope.discovery.collect import collect
from rocescope.discovery.dialects.registry import DIALECTS
from rocescope.discovery.discover import discover_folder
from rocescope.discovery.folder import read_folder
from rocescope.discovery.inventory import read_inventory
from rocescope.discovery.tracing.trace import trace
from rocescope.discovery.traffic import Entry, LiveTraffic, host_traffic, joined, read_queue_pairs
from rocescope.probes.live import LiveOptions, LiveSource
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.strategies.registry import parse_strategy
from rocescope.replay.traffic import observed

# Queue pairs of many hosts and their peers.


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


# Queue pairs of hosts as flows, and their paths against what real routers answered.

ADDRESS = {"h1": "10.1.1.10", "h2": "10.1.2.10", "h3": "10.2.3.10", "h4": "10.2.4.10"}


@pytest.fixture
def folder(tmp_path):
    return recorded(tmp_path) / "healthy"


@pytest.fixture
def fabric(folder):
    return discover_folder(folder, 10**10, 500).fabric


def save(folder, **hosts):
    """The queue pairs of hosts; the others have none."""
    for name in ADDRESS:
        (folder / f"{name}.qp.json").write_text(json.dumps(hosts.get(name, [])))


def test_paths_are_those_that_the_routers_name(folder, fabric):
    """Numbers whose port by Linux's formula is that of a recorded flow: the path of `ip route get`
    follows."""
    flows = [f for f in truth(folder.parent, "healthy") if f["sport"] >= 0xC000]
    names = {address: name for name, address in ADDRESS.items()}
    hosts = {name: [] for name in ADDRESS}
    expected, used = {}, set()
    for flow in flows:
        src, dst, remote = names.get(flow["src"]), names.get(flow["dst"]), flow["sport"] & 0x3FFF
        if src is None or dst is None or remote in used or remote < 2:
            continue
        used.add(remote)
        assert int(rdma_udp_sport(1, remote)) == flow["sport"]
        hosts[src].append(entry(1, remote, pid=3, comm="send"))
        hosts[dst].append(entry(remote, 1, pid=4, comm="receive"))
        expected[flow["src"], flow["dst"], flow["sport"]] = flow["path"]
    assert len(expected) > 20
    save(folder, **hosts)
    found = host_traffic(folder, fabric)
    assert found.queue_pairs == len(found.traffic) == 2 * len(expected)
    result = trace(found.traffic, fabric, [parse_strategy("static")], ["x"], hosts=found)
    assert result.complete_flows == 2 * len(expected)
    assert result.loads is None and result.queue_pairs == 2 * len(expected)
    numbers = {fabric.link_name(i): i for i in range(len(fabric.links.source))}
    seen = 0
    for traced in result.flows:
        assert (traced.packets, traced.wire_bytes) == (None, None)
        path = expected.get((traced.src, traced.dst, traced.src_port))
        if path is None or traced.src_qp != 1:
            continue
        seen += 1
        links = [numbers[name] for name in traced.links[1:]]
        ports = [fabric.origin.ports[link // 2][link % 2] for link in links]
        assert ports == [port for _, port in path]
        assert (traced.src_process, traced.src_pid) == ("send", 3)
        assert (traced.dst_process, traced.dst_pid) == ("receive", 4)
        assert traced.inferred == ["addresses", "peer", "src_port"]
    assert seen == len(expected)
    for loads in result.flow_loads:
        for layer in loads.layers:
            assert layer.flows == sum(
                link.flows for link in loads.links if link.layer == layer.layer
            )
    assert [loads.name for loads in result.flow_loads] == ["traced", "static"]


def test_nothing_is_traced_while_a_host_of_the_fabric_is_silent(folder, fabric):
    save(folder, h1=[entry(17, 33)], h3=[entry(33, 17)])
    (folder / "h4.qp.json").unlink()
    with pytest.raises(UsageError, match=r"2 of 2 .*peers are not known.*did not answer: h4$"):
        host_traffic(folder, fabric)


def test_queue_pairs_without_a_known_peer_are_counted(folder, fabric):
    save(folder, h1=[entry(17, 33), entry(18, 99)], h3=[entry(33, 17), entry(40, 41, state="ERR")])
    found = host_traffic(folder, fabric)
    assert (len(found.traffic), found.queue_pairs) == (2, 3)
    assert "1 of 3 connected queue pairs are left out: their peers" in found.traffic.warnings[-1]


def test_the_port_of_the_rdma_device_has_the_address(folder, fabric):
    """h1 has a second port with an address of the same network."""
    own = {0: (ip_address("10.1.1.10"), ip_address("10.1.1.11"))}
    plan = replace(fabric.addresses, explicit={**fabric.addresses.explicit, **own})
    fabric = replace(fabric, addresses=plan)
    save(folder, h1=[entry(17, 33)], h3=[entry(33, 17)])
    file = folder / "h1.addr.json"
    ports = json.loads(file.read_text())
    (own,) = (p for p in ports if any(a["local"] == "10.1.1.10" for a in p["addr_info"]))
    second = {**own, "ifname": "second", "address": "02:00:00:00:99:99", "ifindex": 77}
    second["addr_info"] = [
        {**a, "local": "10.1.1.11"} for a in own["addr_info"] if a["family"] == "inet"
    ]
    file.write_text(json.dumps([*ports, second]))
    with pytest.raises(UsageError, match=r"2 of 2 .*addresses are not known"):
        host_traffic(folder, fabric)
    links = [{"ifindex": 0, "ifname": "mlx5_0", "port": 1, "state": "ACTIVE", "netdev": "second"}]
    (folder / "h1.rdma.json").write_text(json.dumps(links))
    found = host_traffic(folder, fabric)
    assert set(found.traffic.mapping.hosts) == {"10.1.1.11", "10.2.3.10"}
    (folder / "h1.rdma.json").write_text("[{}]")
    with pytest.raises(UsageError, match=r"did not answer: h1$"):
        host_traffic(folder, fabric)


def test_ranks_of_queue_pairs(folder, fabric):
    """Of both ends if logs name both in one communicator, else of one."""
    save(folder, h1=[entry(17, 18), entry(21, 22)], h2=[entry(18, 17), entry(22, 21)])
    job = Job()
    job.read(encoded(nccl("h1", 7, 0, 1, ADDRESS["h1"], [17, 21])))
    job.read(encoded(nccl("h2", 7, 1, 0, ADDRESS["h2"], [18])))
    found = host_traffic(folder, fabric, job)
    ends = {
        (flow.src_qp, flow.src_rank, flow.dst_rank)
        for flow in trace(found.traffic, fabric, [], ["x"], hosts=found).flows
    }
    assert ends == {(17, 0, 1), (18, 1, 0), (21, 0, None), (22, None, 0)}
    other = Job()
    other.read(encoded(nccl("h9", 7, 0, 1, "10.9.9.9", [17])))
    *_, told = host_traffic(folder, fabric, other).traffic.warnings
    assert told == "logs of the job name none of the queue pairs of the hosts"


# Flows of an interface, of real probes, mapped to the hosts of a fabric.

FABRIC = parse_fabric("leaf-spine:leaves=2,spines=2,hosts=2,rate=10G")


@pytest.fixture
def live(network):
    net = network()
    with LiveSource([net.interface("right")], LiveOptions(ring_bytes=1 << 20)) as source:
        yield net, LiveTraffic(source, FABRIC, "order")


def run(live, told=None):
    """Its thread, and the errors in it."""
    errors = []

    def work():
        try:
            live.run(lambda: None, told)
        except RocescopeError as error:
            errors.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    return thread, errors


@pytest.mark.usefixtures("root")
def test_flows_are_told_when_they_appear(live, monkeypatch):
    monkeypatch.setattr("rocescope.discovery.traffic.TELL_SECONDS", 0.0)
    net, flows = live
    told = []
    thread, errors = run(flows, told.append)
    for number, source in enumerate((b"\x0a\x00\x00\x07", b"\x0a\x00\x00\x08")):
        frames = [frame.replace(b"\x0a\x00\x00\x01", source) for frame in roce_frames(10)]
        net.send(frames)
        until(lambda n=number: len(told) > n)
        net.send(frames)
    flows.source.stop()
    thread.join()
    assert errors == []
    assert [len(traffic) for traffic in told] == [1, 2]
    assert told[1].keys.src[:1].tolist() == told[0].keys.src.tolist()
    assert flows.traffic().packets.tolist() == [20, 20]
    assert flows.traffic().warnings == ()


@pytest.mark.usefixtures("root")
def test_nothing_is_an_error(live):
    _, flows = live
    thread, _ = run(flows)
    time.sleep(0.05)
    flows.source.stop()
    thread.join()
    with pytest.raises(UnreadableInput, match="no RoCE packet on .*right"):
        flows.traffic()


@pytest.mark.usefixtures("root")
@pytest.mark.thorough
@pytest.mark.parametrize("following", [False, True])
def test_more_flows_than_fit(live, monkeypatch, following):
    """While following, those that are known stay."""
    monkeypatch.setattr(observed, "MOST_FLOWS", 1)
    net, flows = live
    told = []
    thread, errors = run(flows, told.append if following else None)
    net.send(roce_frames(1))
    until(lambda: len(flows._counting.counter.units))
    net.send([frame.replace(b"\x0a\x00\x00\x01", b"\x0a\x00\x00\x07") for frame in roce_frames(1)])
    until(lambda: bool(flows._full or errors))
    flows.source.stop()
    thread.join()
    assert bool(errors) != following
    if following:
        assert "further flows are not followed: more than 1 flows" in flows._full
