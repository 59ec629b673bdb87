"""The fat tree of Al-Fares, Loukissas and Vahdat, against the numbers of their paper."""

from __future__ import annotations

from collections import Counter

import networkx as nx
import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.replay.fabrics.parse import fat_tree, leaf_spine, multi_plane, rail

# The fat tree of Al-Fares, Loukissas and Vahdat, against the numbers of their paper.


def graph_of(fabric):
    graph = nx.MultiGraph()
    ends = zip(fabric.links.source.tolist(), fabric.links.target.tolist(), strict=True)
    graph.add_edges_from((a, b) for a, b in ends if a < b)
    return graph


@pytest.mark.parametrize("k", [2, 4, 6])
def test_numbers_of_the_paper(k):
    fabric = fat_tree({"k": str(k)})
    assert fabric.hosts == k**3 // 4
    assert fabric.switches == 5 * k**2 // 4
    tiers = {0: k**3 // 4, 1: k**2 // 2, 2: k**2 // 2, 3: k**2 // 4}
    assert Counter(fabric.nodes.tier.tolist()) == tiers
    graph = graph_of(fabric)
    assert all(graph.degree(switch) == k for switch in range(fabric.switches))
    paths = list(nx.all_shortest_paths(nx.Graph(graph), fabric.switches, len(graph) - 1))
    assert len(paths) == (k // 2) ** 2 and all(len(path) == 7 for path in paths)


def test_a_core_reaches_every_pod_once():
    fabric = fat_tree({"k": "4"})
    graph = nx.Graph(graph_of(fabric))
    names = fabric.nodes.names
    for core in range(16, 20):
        pods = sorted((int(names[spine].removeprefix("spine")) - 1) // 2 for spine in graph[core])
        assert pods == [0, 1, 2, 3]


def test_oversubscription_and_other_numbers_of_hosts():
    fabric = fat_tree({"k": "4", "hosts": "6", "oversubscription": "3", "rate": "100G"})
    assert fabric.hosts == 48
    assert set(fabric.links.rate_bits_per_second.tolist()) == {100 * 10**9}  # 6 x 100 / (3 x 2)
    with pytest.raises(UsageError, match="k must be even, not 5"):
        fat_tree({"k": "5"})
    with pytest.raises(UsageError, match="fat-tree: k .* is not a whole number from 2 to 256"):
        fat_tree({"k": "0"})


# Leaf-spine: which cables there are, and their rates.


def cables(fabric):
    """(name, name): number of cables and their rates."""
    names, links = fabric.nodes.names, fabric.links
    ends = zip(links.source.tolist(), links.target.tolist(), strict=True)
    return Counter((names[a], names[b]) for a, b in ends)


def test_every_leaf_has_every_spine_and_its_hosts():
    fabric = leaf_spine({"leaves": "3", "spines": "2", "hosts": "2", "uplinks": "4"})
    wanted = Counter()
    for leaf in range(1, 4):
        for spine in range(1, 3):
            wanted[f"leaf{leaf}", f"spine{spine}"] = 4
        for host in (2 * leaf - 1, 2 * leaf):
            wanted[f"host{host}", f"leaf{leaf}"] = 1
    both = wanted + Counter({(b, a): n for (a, b), n in wanted.items()})
    assert cables(fabric) == both
    assert fabric.nodes.tier.tolist() == [1, 1, 1, 2, 2, *[0] * 6]


def test_rates_of_uplinks():
    options = {"leaves": "2", "spines": "2", "hosts": "8", "rate": "100G"}

    def uplinks(**more):
        fabric = leaf_spine(options | more)
        inner = (fabric.links.source < 4) & (fabric.links.target < 4)
        return set(fabric.links.rate_bits_per_second[inner].tolist())

    assert uplinks() == {100 * 10**9}
    assert uplinks(uplink_rate="1.6T") == {1600 * 10**9}
    assert uplinks(oversubscription="2:1", uplinks="2") == {100 * 10**9}  # 800 / (2 x 4)
    assert uplinks(oversubscription="1") == {400 * 10**9}


# Several planes: a host has one port in each, and planes share no switch.


def test_planes_meet_at_hosts_only():
    options = {"planes": "3", "leaves": "2", "spines": "2", "hosts": "2", "uplinks": "2"}
    fabric = multi_plane(options)
    assert (fabric.hosts, fabric.switches, fabric.ports) == (4, 12, 3)
    ends = zip(fabric.links.source.tolist(), fabric.links.target.tolist(), strict=True)
    graph = nx.Graph([pair for pair in ends if max(pair) < fabric.switches])
    parts = [{fabric.nodes.plane[node] for node in part} for part in nx.connected_components(graph)]
    assert sorted(map(tuple, parts)) == [(0,), (1,), (2,)]
    names = [fabric.nodes.names[switch] for switch in fabric.attachments.switch[3].tolist()]
    assert names == ["plane1.leaf2", "plane2.leaf2", "plane3.leaf2"]


def test_a_plane_is_a_leaf_spine_of_its_own_rate():
    fabric = multi_plane({"planes": "2", "rate": "100G", "hosts": "8", "oversubscription": "2"})
    inner = (fabric.links.source < fabric.switches) & (fabric.links.target < fabric.switches)
    assert set(fabric.links.rate_bits_per_second[inner].tolist()) == {100 * 10**9}  # 800 / (2 x 4)
    assert int(inner.sum()) == 2 * 2 * (2 * 4)


# Rails: the n-th NIC of every server in a pod is at the n-th leaf of that pod.


def test_nics_are_on_their_rail():
    fabric = rail({"rails": "3", "servers": "2", "pods": "2", "spines": "2"})
    names = fabric.nodes.names
    places = {
        names[fabric.switches + host]: names[fabric.attachments.switch[host, 0]]
        for host in range(fabric.hosts)
    }
    assert places == {
        f"server{server}.nic{nic}": f"pod{(server + 1) // 2}.rail{nic}"
        for server in range(1, 5)
        for nic in range(1, 4)
    }


def test_rails_alone_do_not_meet():
    fabric = rail({"rails": "2", "servers": "2", "spines": "0"})
    assert fabric.switches == 2 and fabric.nodes.tier.tolist() == [1, 1, 0, 0, 0, 0]
    assert fabric.layers and not any("spine" in name for name in fabric.nodes.names)
    with pytest.raises(UsageError, match="with spines=0 the pods are not connected"):
        rail({"spines": "0", "pods": "2"})
