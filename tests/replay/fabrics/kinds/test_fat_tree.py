"""The fat tree of Al-Fares, Loukissas and Vahdat, against the numbers of their paper."""

from __future__ import annotations

from collections import Counter

import networkx as nx
import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.replay.fabrics.kinds.fat_tree import fat_tree


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
