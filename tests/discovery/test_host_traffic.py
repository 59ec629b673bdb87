"""Queue pairs of hosts as flows, and their paths against what real routers answered."""

from __future__ import annotations

import json
from dataclasses import replace
from ipaddress import ip_address

import pytest
from answers import recorded, truth
from hosts_with_queue_pairs import entry
from job_logs import encoded, nccl

from rocescope.analyzer.errors import UsageError
from rocescope.analyzer.logs.job import Job
from rocescope.analyzer.track.answers import rdma_udp_sport
from rocescope.discovery.discover import discover_folder
from rocescope.discovery.host_traffic import host_traffic
from rocescope.discovery.tracing.trace import trace
from rocescope.replay.strategies.registry import parse_strategy

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
