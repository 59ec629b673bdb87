"""Addresses of hosts: counted, explicit, by network."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import networkx as nx
import numpy as np
import pytest
from fabric_walking import forwarded, shortest_groups
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.errors import UsageError
from rocescope.replay.fabrics.build import Cables, cables, tiers_by_distance
from rocescope.replay.fabrics.fabric import (
    AddressPlan,
    parse_address,
    parse_interface,
    parse_network,
)
from rocescope.replay.fabrics.forwarding import Forwarding, without_links
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.hashing.keys import addresses

# Addresses of hosts: counted, explicit, by network.

# Addresses of hosts: counted, explicit, by network.

PLAN = AddressPlan(
    300,
    {1: (ip_address("192.168.0.7"), ip_address("fd00::7")), 2: (ip_address("fd00::8"),)},
    {ip_network("172.16.0.0/16"): 3, ip_network("172.16.5.0/24"): 4, ip_network("fd05::/64"): 4},
)


@pytest.mark.parametrize(
    ("host", "ipv4", "ipv6"),
    [
        (0, "10.0.0.1", "fd10::1"),
        (1, "192.168.0.7", "fd00::7"),
        (2, "fd00::8", "fd00::8"),
        (299, "10.0.1.44", "fd10::12c"),
    ],
)
def test_addresses_and_back(host, ipv4, ipv6):
    assert str(PLAN.address_of(host)) == ipv4
    assert str(PLAN.address_of(host, ipv6=True)) == ipv6
    assert PLAN.host_of(ip_address(ipv4)) == PLAN.host_of(ip_address(ipv6)) == host


def test_networks_lead_to_hosts_the_longest_first():
    found = [PLAN.host_of(ip_address(a)) for a in ("172.16.9.9", "172.16.5.9", "fd05::99")]
    assert found == [3, 4, 4]


@pytest.mark.parametrize("address", ["10.0.0.2", "10.0.0.3", "10.0.1.45", "9.255.255.255", "::1"])
def test_addresses_of_no_host(address):
    """Hosts with addresses of their own do not have the counted ones."""
    assert PLAN.host_of(ip_address(address)) is None


@pytest.mark.parametrize("ipv6", [False, True])
def test_packed_addresses_are_the_same_as_texts(ipv6):
    hosts = np.array([0, 1, 2, 255, 256, 299])
    texts = [str(PLAN.address_of(int(h), ipv6)) for h in hosts]
    assert PLAN.packed(hosts, ipv6).tolist() == addresses(texts).tolist()


def test_a_host_that_is_not_there():
    with pytest.raises(IndexError):
        PLAN.address_of(300)


@pytest.mark.parametrize(
    ("parse", "plain", "zoned"),
    [
        (parse_address, "fe80::1", "fe80::1%1\nroute del default\n#"),
        (parse_network, "fe80::/64", "fe80::%1\n/64"),
        (parse_interface, "fe80::1/64", "fe80::1%1\n/64"),
    ],
)
def test_a_zone_is_no_part_of_an_address(parse, plain, zoned):
    assert str(parse(plain)) == plain
    with pytest.raises(ValueError, match="has a zone"):
        parse(zoned)


# Names of links, ports of hosts, links that go down.


def names(fabric, links):
    return [fabric.link_name(int(link)) for link in links]


def test_links_are_found_by_name():
    fabric = parse_fabric("leaf-spine:leaves=2,spines=2,hosts=1,uplinks=2")
    assert names(fabric, fabric.find_links("leaf1>spine2")) == ["leaf1>spine2", "leaf1>spine2#2"]
    assert names(fabric, fabric.find_links("leaf1-spine2#2")) == [
        "leaf1>spine2#2",
        "spine2>leaf1#2",
    ]
    assert names(fabric, fabric.find_links("host2")) == ["host2>leaf2", "leaf2>host2"]
    assert len(fabric.find_links("spine1")) == 8


@pytest.mark.parametrize(
    "name", ["leaf1-spine3", "leaf1-leaf2", "leaf1-spine1#3", "leaf1-spine1#x", ""]
)
def test_a_link_that_is_not_there(name):
    fabric = parse_fabric("leaf-spine:leaves=2,spines=2,hosts=1,uplinks=2")
    with pytest.raises(UsageError, match="no link"):
        fabric.find_links(name)


def test_names_may_contain_dashes(tmp_path):
    file = tmp_path / "f.yaml"
    file.write_text(
        "nodes: {tor-a: , gpu-1: {kind: host}, gpu-2: {kind: host}}\n"
        "links: [[gpu-1, tor-a], [gpu-2, tor-a]]\n"
    )
    fabric = parse_fabric(str(file))
    assert names(fabric, fabric.find_links("gpu-1-tor-a")) == ["gpu-1>tor-a", "tor-a>gpu-1"]


def test_addresses_count_hosts_in_port_order():
    fabric = parse_fabric("leaf-spine:leaves=2,hosts=4")
    assert [str(fabric.address_of(h)) for h in (0, 3, 4)] == ["10.0.0.1", "10.0.0.4", "10.0.0.5"]
    assert [fabric.host_of(a) for a in ("10.0.0.8", "10.0.0.9", "fd10::2")] == [7, None, 1]
    assert fabric.host_name(4) == "host5"
    assert fabric.attachments.switch[4, 0] == 1  # leaf2
    assert fabric.host_of("::ffff:10.0.0.8") == 7


def test_ports_of_a_host_in_every_plane():
    fabric = parse_fabric("multi-plane:planes=3,leaves=2,spines=1,hosts=1")
    assert fabric.ports == 3
    src, dst = np.array([0], np.int32), np.array([1], np.int32)
    assert fabric.usable_ports(src, dst).tolist() == [[True, True, True]]
    # Without the destination's port in the second plane the first and third remain.
    lost = fabric.down(["host2-plane2.leaf2"])
    assert lost.usable_ports(src, dst).tolist() == [[True, False, True]]
    # Hosts keep their ports in order; host2 now has two, to the leaves of planes 1 and 3.
    assert [lost.nodes.names[s] for s in lost.attachments.switch[1, :2]] == [
        "plane1.leaf2",
        "plane3.leaf2",
    ]
    back = lost.usable_ports(dst, src)
    assert back.tolist() == [[True, True, False]]


def test_exit_links_lead_to_the_host():
    fabric = parse_fabric("leaf-spine:leaves=2,hosts=2")
    switch, host = np.array([0, 1, 1], np.int32), np.array([1, 3, 0], np.int32)
    links = fabric.exit_link_at(switch, host)
    assert [fabric.link_name(int(link)) for link in links[:2]] == ["leaf1>host2", "leaf2>host4"]
    assert links[2] == -1


def test_a_host_without_a_link():
    fabric = parse_fabric("leaf-spine:leaves=2,hosts=2,down=host1-leaf1")
    assert fabric.attachments.edge.tolist() == [-1, 0, 1, 1]
    usable = fabric.usable_ports(np.array([0, 1], np.int32), np.array([1, 0], np.int32))
    assert not usable.any()


def test_a_slow_link():
    fabric = parse_fabric("leaf-spine:leaves=2,hosts=1,slow=leaf1>spine2:100G+spine1:10G")
    rates = {
        fabric.link_name(i): int(rate) // 10**9
        for i, rate in enumerate(fabric.links.rate_bits_per_second)
    }
    assert (rates["leaf1>spine2"], rates["spine2>leaf1"]) == (100, 400)
    assert (rates["leaf1>spine1"], rates["spine1>leaf2"], rates["leaf1>spine3"]) == (10, 10, 400)


# Tiers by distance to hosts, beside networkx.

SWITCHES, NODES = 6, 9
ENDS = st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1))


def wired(pairs) -> Cables:
    a, b = (np.array(side, np.int64) for side in zip(*pairs, strict=True))
    return cables(a, b, 10**9, 0)


@given(st.lists(ENDS, min_size=1, max_size=20))
def test_the_tier_is_the_distance(pairs):
    graph = nx.Graph()
    graph.add_nodes_from([*range(SWITCHES), "hosts"])
    for a, b in pairs:
        low, high = min(a, b), max(a, b)
        if high < SWITCHES:
            graph.add_edge(low, high)
        elif low < SWITCHES:
            graph.add_edge(low, "hosts")
    far = nx.single_source_shortest_path_length(graph, "hosts")
    wanted = [far.get(switch, 126) for switch in range(SWITCHES)]
    assert tiers_by_distance([None] * SWITCHES, wired(pairs), SWITCHES).tolist() == wanted


def test_given_tiers_stay():
    wires = wired([(0, 6), (0, 1), (1, 2)])
    assert tiers_by_distance([None, 7, None], wires, 3).tolist() == [1, 7, 3]


# Equal-cost groups against networkx, on every kind of fabric and with links down.

SPECS = (
    "leaf-spine:leaves=3,spines=2,hosts=2,uplinks=2",
    "fat-tree:k=4",
    "multi-plane:planes=2,leaves=2,spines=2,hosts=2",
    "rail:rails=2,servers=2,pods=2,spines=3",
)


@pytest.mark.parametrize("spec", SPECS)
def test_groups_are_all_shortest_paths_in_order_of_ports(spec):
    fabric = parse_fabric(spec)
    assert forwarded(fabric) == shortest_groups(fabric)


@given(st.sampled_from(SPECS), st.data())
def test_groups_after_links_went_down(spec, data):
    fabric = parse_fabric(spec)
    switch_links = np.flatnonzero(
        (fabric.links.source < fabric.switches) & (fabric.links.target < fabric.switches)
    )
    lost = data.draw(st.lists(st.sampled_from(switch_links.tolist()), max_size=6))
    after = fabric.down(lost)
    assert forwarded(after) == shortest_groups(after)
    assert not after.links.up[lost].any()
    assert fabric.links.up.all()


def test_equal_groups_are_stored_once():
    forwarding = parse_fabric("leaf-spine:leaves=64,spines=4,hosts=1").forwarding
    # Every leaf has one group of all its uplinks, every spine one group per leaf.
    assert len(forwarding.group_start) - 1 == 64 + 4 * 64
    assert len(forwarding.group_links) == 64 * 4 + 4 * 64


def test_a_router_takes_lost_next_hops_out_of_its_groups():
    before = Forwarding(
        np.array([0, 3, 4]),
        np.array([5, 6, 7, 8], np.int32),
        np.array([1, 2, 3, 1]),
        np.array([[0, 1], [-1, 0]], np.int32),
        {0: np.array([0, 1, 2, 0, 1, 2], np.uint16)},
    )
    up = np.ones(9, np.bool_)
    up[[6, 8]] = False
    after = without_links(before, up)
    assert after.group_start.tolist() == [0, 2, 2]
    assert after.group_links.tolist() == [5, 7]
    assert after.group_weights.tolist() == [1, 3]
    assert after.group_of.tolist() == [[0, -1], [-1, 0]]
    # Buckets that were with the lost next hop move, all others stay (resilient hashing).
    assert after.buckets[0].tolist() == [0, 0, 1, 0, 1, 1]
