"""Loops and missing routes: by hand, and of real routers in network namespaces."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest
from answers import recorded, traffic_of, truth
from eos_answers import eos_answers
from switch_lab import LAB, check_fabric, save

from rocescope.discovery.discover import discover_folder
from rocescope.discovery.failing_routes import failing_routes
from rocescope.discovery.folder import read_folder
from rocescope.discovery.tracing.paths import REASONS, trace_paths

QUESTIONS = {
    "route.json": "ip -j route",
    "addr.json": "ip -j -d addr",
    "neigh.json": "ip -j neigh",
    "rule.json": "ip -j rule",
    "rule6.json": "ip -6 -j rule",
    "sysctl": "sysctl net.ipv4.ip_forward net.ipv4.fib_multipath_hash_policy",
}


def run(command: str) -> bytes:
    return subprocess.run(command.split(), check=True, capture_output=True).stdout


def discovered(folder):
    found = discover_folder(folder, 10**9, 500)
    return found.fabric, {(r.kind, r.device, r.text) for r in found.report.remarks}


def route(switch, network, gateway, port):
    answer = eos_answers(switch)
    answer["eos-route.json"]["vrfs"]["default"]["routes"][network]["vias"] = [
        {"nexthopAddr": gateway, "interface": f"Ethernet{port}"}
    ]
    return answer


def test_sound_tables_have_no_remark(tmp_path):
    assert failing_routes(check_fabric(tmp_path, eos_answers).fabric) == []


def test_recorded_routers_have_no_remark(tmp_path):
    folder = recorded(tmp_path) / "healthy"
    assert len(read_folder(folder)[0]) == 8
    assert failing_routes(discover_folder(folder, 10**9, 500).fabric) == []


def test_a_loop_and_a_missing_route_are_one_line_each(tmp_path):
    check_fabric(tmp_path, eos_answers)
    spine1, spine2 = LAB[2], LAB[3]
    save(tmp_path, "spine1", route(spine1, "10.1.2.0/24", "10.0.11.1", 1))
    answer = eos_answers(spine2)
    del answer["eos-route.json"]["vrfs"]["default"]["routes"]["10.1.1.0/24"]
    save(tmp_path, "spine2", answer)
    fabric, remarks = discovered(tmp_path)
    (host1, host2) = (fabric.host_name(host) for host in range(2))
    assert {one for one in remarks if one[0] in ("loop", "no route")} == {
        ("loop", "leaf1", f"packets to {host2} loop: leaf1 > spine1 > leaf1"),
        ("no route", "spine2", f"it has no route to {host1}"),
    }


def test_a_switch_without_ipv4_routes_does_not_forward_ipv4_by_its_ipv6_routes(tmp_path):
    folder = recorded(tmp_path) / "healthy"
    table = json.loads((folder / "leaf1.route.json").read_text())
    kept = [one for one in table if not {"nhid", "nexthops", "gateway", "via"} & set(one)]
    assert 0 < len(kept) < len(table)
    (folder / "leaf1.route.json").write_text(json.dumps(kept))
    fabric, remarks = discovered(folder)
    assert [device for kind, device, _ in remarks if kind == "no route"] == ["leaf1"]
    traffic = traffic_of(fabric, truth(folder.parent, "healthy"))
    leaf1 = fabric.nodes.names.index("leaf1")
    at_leaf1 = fabric.attachments.switch[:, 0] == leaf1
    crosses = at_leaf1[traffic.src_host] & ~at_leaf1[traffic.dst_host] & ~traffic.keys.ipv6
    assert np.count_nonzero(crosses)
    assert trace_paths(traffic, fabric).placement.dropped[crosses].all()


def test_assumed_paths_are_no_loop(tmp_path):
    for switch in LAB:
        if switch.name != "spine1":
            save(tmp_path, switch.name, eos_answers(switch))
    fabric, remarks = discovered(tmp_path)
    assert not all(fabric.origin.tables)
    assert not [one for one in remarks if one[0] in ("loop", "no route")]


def test_a_switch_whose_table_could_not_be_read_is_no_host(tmp_path):
    """Without LLDP, its addresses tell where its links are."""
    for switch in LAB:
        answer = eos_answers(switch)
        answer["eos-lldp.json"] = {"lldpNeighbors": {}}
        if switch.name == "spine1":
            routes = answer["eos-route.json"]["vrfs"]["default"]["routes"]
            routes["10.1.2.0/24"]["routeAction"] = "x"
        save(tmp_path, switch.name, answer)
    fabric, remarks = discovered(tmp_path)
    spine1 = fabric.nodes.names.index("spine1")
    assert not fabric.origin.tables[spine1]
    assert fabric.nodes.names[fabric.switches :] == ("leaf1:Ethernet3", "leaf2:Ethernet3")
    assert len(fabric.origin.ports) == 6
    assert not [one for one in remarks if one[0] in ("loop", "no route")]


def test_a_loop_beyond_a_switch_without_tables_is_told(tmp_path):
    check_fabric(tmp_path, eos_answers)
    save(tmp_path, "spine1", route(LAB[2], "10.1.2.0/24", "10.0.11.1", 1))
    fabric = discover_folder(tmp_path, 10**9, 500).fabric
    names = fabric.nodes.names
    tables = ["" if name == "spine2" else told
              for name, told in zip(names, fabric.origin.tables, strict=False)]  # fmt: skip
    unread = replace(fabric, origin=fabric.origin._replace(tables=tuple(tables)))
    assert [note.kind for note in failing_routes(unread)] == ["loop"]
    tables = ["" if name == "spine1" else told
              for name, told in zip(names, fabric.origin.tables, strict=False)]  # fmt: skip
    unread = replace(fabric, origin=fabric.origin._replace(tables=tuple(tables)))
    assert failing_routes(unread) == []


def test_a_traced_path_ends_where_the_circle_closes(tmp_path):
    check_fabric(tmp_path, eos_answers)
    for number, spine in enumerate(LAB[2:], 1):
        save(tmp_path, spine.name, route(spine, "10.1.2.0/24", f"10.0.1{number}.1", 1))
    save(tmp_path, "leaf1", route(LAB[0], "10.1.2.0/24", "10.0.11.2", 1))
    fabric, _ = discovered(tmp_path)
    flows = [
        {"src": "10.1.1.2", "dst": "10.1.2.2", "sport": 49152},
        {"src": "10.1.2.2", "dst": "10.1.1.2", "sport": 49152},
    ]
    found = trace_paths(traffic_of(fabric, flows), fabric)
    assert REASONS[found.reason[0]] == "the tables form a loop"
    assert fabric.nodes.names[found.switch[0]] == "leaf1"
    links = [int(link) for link in found.placement.links[0] if link >= 0]
    names = [fabric.link_name(link) for link in links]
    assert names[1:] == ["leaf1>spine1", "spine1>leaf1"]
    assert np.count_nonzero(found.evidence[0]) == 3
    assert REASONS[found.reason[1]] == "the hash or the seed of the switch is not known"


@pytest.fixture
def routers(root, need_tool, tmp_path):
    """r1 - r2 - r3 with static routes; r1 and r3 have a network of hosts each, on swp1."""
    need_tool("ip")
    prefix = f"rsfail{os.getpid()}"
    with ExitStack() as stack:

        def do(name, command):
            return run(f"ip netns exec {prefix}{name} {command}")

        def cable(one, port, other, far, addresses):
            run(f"ip link add {port} netns {prefix}{one} type veth "
                f"peer name {far} netns {prefix}{other}")  # fmt: skip
            for name, end, own in ((one, port, addresses[0]), (other, far, addresses[1])):
                do(name, f"ip link set {end} up")
                if own:
                    do(name, f"ip address add {own} dev {end}")

        for name in ("r1", "r2", "r3"):
            run(f"ip netns add {prefix}{name}")
            stack.callback(run, f"ip netns del {prefix}{name}")
            do(name, "sysctl -q net.ipv4.ip_forward=1")
        cable("r1", "up12", "r2", "up21", ("10.0.12.1/30", "10.0.12.2/30"))
        cable("r2", "up23", "r3", "up32", ("10.0.23.1/30", "10.0.23.2/30"))
        cable("r1", "swp1", "r1", "far1", ("10.1.1.1/24", ""))
        cable("r3", "swp1", "r3", "far1", ("10.3.1.1/24", ""))
        do("r1", "ip route add 10.3.1.0/24 via 10.0.12.2")
        do("r2", "ip route add 10.3.1.0/24 via 10.0.23.2")
        do("r2", "ip route add 10.1.1.0/24 via 10.0.12.1")
        do("r3", "ip route add 10.1.1.0/24 via 10.0.23.1")

        def remarks():
            for name in ("r1", "r2", "r3"):
                for suffix, command in QUESTIONS.items():
                    (tmp_path / f"{name}.{suffix}").write_bytes(do(name, command))
            fabric, found = discovered(tmp_path)
            assert fabric.hosts == 2
            return found

        yield do, remarks


def test_what_real_routers_do_is_one_line_each(routers):
    do, remarks = routers
    assert remarks() == set()
    do("r2", "ip route replace 10.3.1.0/24 via 10.0.12.1")
    do("r2", "ip route del 10.1.1.0/24")
    do("r1", "ip rule add from 10.1.1.0/24 lookup 100")
    do("r1", "ip link add vni10 type vxlan id 10 dstport 4789 dev up12")
    assert remarks() == {
        ("loop", "r1", "packets to r3:swp1 loop: r1 > r2 > r1"),
        ("no route", "r2", "it has no route to r1:swp1"),
        ("not represented", "r1", "policy routing: 1 IPv4 rules choose other tables, which are "
         "not read, such as `src 10.1.1.0 srclen 24 table 100`"),
        ("not represented", "r1", "VXLAN on vni10: the tables of the underlay place the outer "
         "packets, and overlay routes are not read"),
    }  # fmt: skip


def test_a_blackhole_is_no_route(routers):
    do, remarks = routers
    do("r2", "ip route replace blackhole 10.3.1.0/24")
    assert remarks() == {("no route", "r2", "it has no route to r3:swp1")}
