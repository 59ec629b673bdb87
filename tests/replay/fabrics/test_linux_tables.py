"""Tables of Linux routers as their own tools printed them."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from answers import recorded, routers_of
from fabric_walking import hops, next_nodes
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.errors import UsageError
from rocescope.replay.fabrics.linux_tables import (
    advertised_of,
    interfaces_of,
    policies_of,
    read_device,
    resolved_of,
)
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.flows.checks import check_fabric

# Tables of Linux routers as their own tools printed them.


@pytest.fixture
def tables(data, tmp_path):
    """A copy of the tables of one real router (iproute2 6.1 on Linux 6.18)."""
    return shutil.copytree(data / "linux_router", tmp_path / "tables")


def test_a_real_leaf_spine(data, tmp_path):
    topology = json.loads((data / "leafspine/r01_clean_write/topology.json").read_text())
    file = routers_of(topology, tmp_path)
    fabric = parse_fabric(f"linux:{file},rate=10G")
    assert fabric.nodes.names[:6] == ("leaf1", "leaf2", "spine1", "spine2", "spine3", "spine4")
    hosts = {name: node for name, node in topology["nodes"].items() if "ipv4" in node}
    links = {link["a"]: f"{link['b']}:{link['b_if']}" for link in topology["links"]}
    for name, node in hosts.items():
        for address in (node["ipv4"], node["ipv6"]):
            assert fabric.host_name(fabric.host_of(address)) == links[name]
    for leaf, far in (("leaf1", "leaf2:tapH3"), ("leaf2", "leaf1:tapH2")):
        assert next_nodes(fabric, leaf, far) == ["spine1", "spine2", "spine3", "spine4"]
    assert next_nodes(fabric, "spine3", "leaf2:tapH4") == ["leaf2"]
    settings = fabric.hash_settings[0]
    assert (settings.model, settings.seed, settings.extra["policy"]) == ("linux", 305419896, 1)
    assert check_fabric(fabric).is_sound


def test_weights_nexthop_groups_and_resilient_buckets(tables):
    fabric = parse_fabric(f"linux:{tables}")
    one, two = "via 172.16.1.1", "via 172.16.2.1"
    assert hops(fabric, "router", "10.2.0.0/16") == [(two, 3), (one, 1)]  # group 2,3/1,1
    assert hops(fabric, "router", "10.4.0.0/16") == [(one, 1), (two, 4)]
    assert hops(fabric, "router", "10.3.0.0/16") == [(one, 1), (two, 1)]
    assert "10.9.0.0/16" not in fabric.nodes.names  # a blackhole
    host = fabric.host_of("10.3.7.7")
    group = int(fabric.forwarding.group_of[0, fabric.attachments.edge[host]])
    # `ip nexthop bucket show` listed four buckets of nexthop 2, then four of nexthop 1.
    assert fabric.forwarding.buckets[group].tolist() == [1, 1, 1, 1, 0, 0, 0, 0]
    assert fabric.host_name(fabric.host_of("10.1.1.77")) == "router:h1"
    assert fabric.host_name(fabric.host_of("10.4.0.1")) == "10.4.0.0/16"


def test_dead_next_hops_are_left_out(tables):
    file = tables / "router.route.json"
    entries = json.loads(file.read_text())
    (route,) = [e for e in entries if e["dst"] == "10.4.0.0/16"]
    route["nexthops"][0]["flags"] = ["dead", "linkdown"]
    file.write_text(json.dumps(entries))
    assert hops(parse_fabric(f"linux:{tables}"), "router", "10.4.0.0/16") == [("via 172.16.2.1", 4)]
    route["nexthops"][0]["flags"] = ["linkdown"]
    file.write_text(json.dumps(entries))
    assert len(hops(parse_fabric(f"linux:{tables}"), "router", "10.4.0.0/16")) == 2
    with (tables / "router.sysctl").open("a") as sysctl:
        sysctl.write("net.ipv4.conf.all.ignore_routes_with_linkdown = 1\n")
    assert len(hops(parse_fabric(f"linux:{tables}"), "router", "10.4.0.0/16")) == 1


def test_links_down_leave_the_groups_of_tables(tables):
    fabric = parse_fabric(f"linux:{tables},down=router>via 172.16.1.1")
    assert hops(fabric, "router", "10.2.0.0/16") == [("via 172.16.2.1", 3)]
    assert not fabric.routed


@pytest.mark.parametrize(
    ("table", "text", "message"),
    [
        ("route", '[{"dev": "up1"}]', r"route.json: \[0\]: .* it has no dst"),
        (
            "route",
            '[\n{"dst": "10.2.0.0/99", "dev": "up1"}]',
            r"\[0\].dst: '10.2.0.0/99' is not",
        ),
        ("route", '[\n\n{"dst": "10.2.0.0/16"}]', r"route.json: \[0\]: the route has no next"),
        ("route", "{}{}", "route.json: not JSON"),
        ("route", '[{"dst": "10.2.0.0/16", "gateway": "here"}]', "'here' is not an address"),
        (
            "route",
            '[{"dst": "fd01::/64", "dev": "up1", "prefsrc": "fd01::1%1\\nroute del default"}]',
            "is not an address",
        ),
        ("route", '[{"dst": "fd01::%1\\n/64", "dev": "up1"}]', "is not a network"),
        ("nexthop", '[{"id": 10, "group": [{"id": 7}]}]', "there is no nexthop 7"),
        ("nexthop", '[{"group": []}]', r"nexthop.json: \[0\]: not an entry"),
        ("bucket", '[{"id": 11, "bucket": {"index": 1, "nhid": 1}}]', "buckets .* incomplete"),
        ("sysctl", "net.ipv4.fib_multipath_hash_seed = x", "router.sysctl:1: .* not a number: 'x'"),
    ],
)
def test_mistakes_are_named_with_their_place(table, text, message, tables):
    suffix = "" if table == "sysctl" else ".json"
    (tables / f"router.{table}{suffix}").write_text(text)
    with pytest.raises(UsageError, match=message):
        parse_fabric(f"linux:{tables}")


def test_a_next_hop_that_leads_nowhere(tables):
    file = tables / "router.route.json"
    entries = [e for e in json.loads(file.read_text()) if e["dst"] != "172.16.2.0/31"]
    file.write_text(json.dumps(entries))
    with pytest.raises(UsageError, match="next hop 172.16.2.1 on up2 of router is on no connected"):
        parse_fabric(f"linux:{tables}")


def test_bgp_unnumbered_without_addresses_and_neighbours_of_the_routers(tmp_path):
    """The far ends of link-local next hops are known from MAC, link-local address or LLDP alone."""
    for kept in ("lldp.json", "addr.json"):
        folder = recorded(tmp_path / kept) / "healthy"
        for file in folder.iterdir():
            if not file.name.endswith((".route.json", ".sysctl", kept)):
                file.unlink()
        fabric = parse_fabric(f"linux:{folder}")
        assert fabric.nodes.names == ("leaf1", "leaf2", "spine1", "spine2", "h1", "h2", "h3", "h4")
        assert len(fabric.links.source) == 2 * (4 + 8)
        assert check_fabric(fabric).is_sound


def test_an_empty_folder(tmp_path):
    with pytest.raises(UsageError, match="no NAME.route.json; save `ip -j route`"):
        parse_fabric(f"linux:{tmp_path}")


# Interfaces and neighbours as Linux prints them; real answers follow.


def test_real_answers(tmp_path):
    folder = recorded(tmp_path) / "healthy"
    ports = {port.name: port for port in interfaces_of(folder / "leaf1.addr.json")}
    assert list(ports) == ["lo", "eth0", "swp1", "swp2", "swp3", "swp4", "down1", "down2"]
    assert ports["down2"].mac == "02:00:00:00:04:02"
    assert [str(a) for a in ports["down1"].addresses][:2] == ["10.1.1.1/24", "fd10:1:1::1/64"]
    assert all(port.up and not port.master for port in ports.values())
    heard = {one.port: one for one in advertised_of(folder / "leaf1.lldp.json")}
    assert (heard["swp4"].system, heard["swp4"].far_port) == ("spine2", "swp2")
    assert heard["swp4"].chassis == "02:00:00:00:09:03"
    assert "10.255.0.4" in heard["swp4"].addresses
    macs = {entry.mac for entry in resolved_of(folder / "leaf1.neigh.json") if entry.port == "swp1"}
    assert macs == {"02:00:02:00:02:00"}


def test_without_a_file_nothing_was_asked(tmp_path):
    assert interfaces_of(tmp_path / "a") is None
    assert advertised_of(tmp_path / "a") is None
    assert resolved_of(tmp_path / "a") is None
    (tmp_path / "a.lldp.json").touch()  # lldpctl failed
    assert advertised_of(tmp_path / "a.lldp.json") is None


def test_bonds_and_vrfs_are_remarks(tmp_path):
    (tmp_path / "r.route.json").write_text("[]")
    links = [
        {"ifname": "eth0", "flags": [], "master": "mgmt", "linkinfo": {"info_slave_kind": "vrf"}},
        {"ifname": "swp1", "flags": ["LOWER_UP"], "master": "bond0"},
        {"ifname": "swp2", "flags": [], "master": "bond0", "linkinfo": {"info_slave_kind": "bond"}},
        {"ifname": "bond0", "flags": ["LOWER_UP"]},
    ]
    (tmp_path / "r.addr.json").write_text(json.dumps(links))
    found = read_device(tmp_path, "r")
    assert [(p.name, p.up, p.master, p.vrf) for p in found.interfaces] == [
        ("eth0", False, "", "mgmt"),
        ("swp1", True, "bond0", ""),
        ("swp2", False, "bond0", ""),
        ("bond0", True, "", ""),
    ]
    assert found.remarks == (
        "VRF mgmt is left out with eth0: only the main table was read",
        "bond0 joins swp1, swp2: which of them a packet takes is not known",
    )


def test_what_forwards_and_what_is_offloaded(tmp_path):
    (tmp_path / "r.route.json").write_text(
        '[{"dst": "10.0.0.0/8", "gateway": "10.1.0.1", "dev": "swp1", "flags": ["offload"]}]'
    )
    (tmp_path / "r.sysctl").write_text(
        "net.ipv4.ip_forward = 0\nnet.ipv6.conf.all.forwarding = 1\n"
        "net.ipv4.fib_multipath_hash_policy = 1\nnet.ipv6.fib_multipath_hash_policy = 0\n"
    )
    found = read_device(tmp_path, "r")
    assert found.forwards
    assert found.hash is None
    assert found.ipv4_only
    assert found.remarks == (
        "fib_multipath_hash_policy is 1 for IPv4 and 0 for IPv6; the fabric has the value for IPv4",
        "routes are offloaded: the hardware forwards, and the kernel does not show its hash",
    )


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b'{"lldp": 1}',
        b'{"lldp": [{"interface": {"swp1": {}}}]}',  # lldpctl -f json
        b'{"lldp": [{"interface": [{"name": 5}]}]}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_other_content_is_named(content, tmp_path):
    file = tmp_path / "r.lldp.json"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=r"r.lldp.json: not the output of `lldpctl -f json0`"):
        advertised_of(file)
    file.write_bytes(b'[{"ifname": "a", "flags": [], "addr_info": [{"local": "x"}]}]')
    with pytest.raises(UsageError, match=r"r.lldp.json: 'x/0' does not appear to be"):
        interfaces_of(file)


@pytest.mark.parametrize(
    ("rules", "count"),
    [
        ([], 0),
        ([{"priority": 0, "src": "all", "table": "local"}], 0),
        ([{"priority": 1000, "src": "all", "l3mdev": None}], 0),
        ([{"priority": 9, "src": "all", "fwmark": "0x1", "table": "7"}], 1),
        ([{"priority": 9, "src": "10.0.0.0", "srclen": 8, "table": "main"}], 1),
    ],
)
def test_rules_beside_those_of_every_system(rules, count, tmp_path):
    file = tmp_path / "r1.rule.json"
    file.write_text(json.dumps(rules))
    told = policies_of(file, "IPv4")
    assert len(told) == count
    assert all(text.startswith("policy routing: 1 IPv4 rules") for text in told)


@pytest.mark.parametrize("content", ["[", "{}", "[1]"])
def test_rules_that_are_none(content, tmp_path):
    file = tmp_path / "r1.rule.json"
    file.write_text(content)
    with pytest.raises(UsageError, match="r1.rule.json: not the output of `ip -j rule`"):
        policies_of(file, "IPv4")


# Rows that a reader of answers leaves out, and routes with another header.


def saved(folder, **tables):
    for name, table in tables.items():
        (folder / f"r.{name}.json").write_text(json.dumps(table))
    return folder


ROUTES = [
    {"dst": "10.0.0.0/31", "dev": "swp1", "prefsrc": "10.0.0.0"},
    {"dst": "10.2.0.0/16", "gateway": "10.0.0.1", "dev": "swp1"},
]


@pytest.mark.parametrize(
    "encap",
    [
        {"encap": "seg6", "mode": "encap", "segs": ["2001:db8::1"]},
        {"encap": "mpls", "label": "100"},
        {"encap": "ip", "dst_addr": "192.0.2.1"},
        {"encap": "seg6local", "action": "End"},
    ],
)
@pytest.mark.parametrize("where", ["route", "nexthops", "nexthop"])
def test_routes_with_another_header_are_no_networks_and_no_plain_next_hops(encap, where, tmp_path):
    odd = {"gateway": "10.0.0.1", "dev": "swp1"} if encap["encap"] == "mpls" else {"dev": "swp1"}
    hop = {**encap, **odd, "flags": []}
    route: dict[str, Any] = {"dst": "10.9.0.0/16"}
    if where == "nexthops":
        route["nexthops"] = [hop, {"gateway": "10.0.0.3", "dev": "swp2", "flags": []}]
    else:
        route |= {"nhid": 5} if where == "nexthop" else hop
    nexthops = [{"id": 5, **hop}] if where == "nexthop" else []
    device = read_device(saved(tmp_path, route=[*ROUTES, route], nexthop=nexthops), "r")
    first, *others = device.routes[-1].hops
    assert (first.device, first.usable) == ("", False)
    assert not device.routes[-1].connected
    assert [other.usable for other in others] == ([True] if where == "nexthops" else [])
    assert device.remarks == ("1 next hops add a label or a tunnel header: not used",)


ONE = {"gateway": "10.0.0.1", "dev": "swp1", "flags": []}
TWO = {"gateway": "10.0.0.3", "dev": "swp2", "flags": []}
WAYS = [
    ONE, TWO, {"nhid": 5}, {"nhid": 6}, {"nhid": 9, **ONE}, {**ONE, "flags": ["dead"]},
    {**ONE, "weight": 7}, {**ONE, "encap": "mpls"}, {**ONE, "prefsrc": "10.0.0.0"},
    {**ONE, "type": "blackhole"}, {"nhid": 5, "type": "local"}, {"dev": "swp1"},
    {"via": {"family": "inet6", "host": "fe80::1"}, "dev": "swp1"}, {"nexthops": [ONE, TWO]},
    {"nhid": 5, "nexthops": [ONE, TWO]},
]  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(WAYS)), min_size=1))
def test_plain_rows_are_read_as_all_others(drawn):
    """Against one table per row, in which no way was met before."""
    nexthops = [{"id": 4, **ONE}, {"id": 6, **TWO}, {"id": 5, "group": [{"id": 4}, {"id": 6}]}]
    rows = [{"dst": f"10.{n}.0.0/16" if n else "default", **way} for n, way in drawn]
    with TemporaryDirectory() as folder:
        all_of = list(read_device(saved(Path(folder), route=rows, nexthop=nexthops), "r").routes)
        alone = [
            route
            for row in rows
            for route in read_device(saved(Path(folder), route=[row], nexthop=nexthops), "r").routes
        ]
    assert [dataclasses.replace(r, where="") for r in all_of] == [
        dataclasses.replace(r, where="") for r in alone
    ]


def test_an_odd_row_costs_this_row_where_the_reading_is_not_strict(tmp_path):
    rows = [{"dst": "10.9.0.0/16", "gateway": "10.0.0.x"}, {"dst": "x", "dev": "swp1"}, 7]
    links = [{"ifname": "swp1", "flags": ["LOWER_UP"]}, {"flags": []}]
    saved(tmp_path, route=[*ROUTES, *rows], addr=links, neigh=[{"dev": 1}])
    with pytest.raises(UsageError, match=r"\[2\]\.gateway"):
        read_device(tmp_path, "r")
    device = read_device(tmp_path, "r", strict=False)
    assert [(str(r.network), len(r.hops)) for r in device.routes] == [
        ("10.0.0.0/31", 1), ("10.2.0.0/16", 1), ("10.9.0.0/16", 0)]  # fmt: skip
    assert [port.name for port in device.interfaces] == ["swp1"]
    of_routes, of_ports, of_neighbours = device.unexpected
    assert of_routes.startswith("r.route.json: [2].gateway")
    assert of_routes.endswith("; this row and 2 more left out")
    assert of_ports.endswith("missing required field `ifname`; this row left out")
    assert of_neighbours.startswith("r.neigh.json: not the output of `ip -j neigh`: [0]")


def test_a_table_of_odd_rows_alone_is_unreadable(tmp_path):
    saved(tmp_path, route=[{"dst": "10.9.0.0/16", "gateway": "10.0.0.x"}])
    with pytest.raises(UsageError, match=r"\[0\]\.gateway"):
        read_device(tmp_path, "r", strict=False)
