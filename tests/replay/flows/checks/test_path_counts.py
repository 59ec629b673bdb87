"""Paths between hosts, against networkx and by hand."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.replay.fabrics.fabric import Fabric
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.flows.checks.path_counts import named_pair, paths_between

FABRICS = [
    "fat-tree:k=4",
    "fat-tree:k=4,down=leaf1-spine1+core1",
    "leaf-spine:leaves=3,spines=4,hosts=2,down=leaf3>spine2",
    "rail:rails=2,servers=4,pods=2,spines=2",
]


def graph(fabric: Fabric) -> nx.DiGraph:
    links = fabric.links
    ends = zip(links.source.tolist(), links.target.tolist(), links.up.tolist(), strict=True)
    return nx.DiGraph((a, b) for a, b, up in ends if up)


@pytest.mark.parametrize("spec", FABRICS)
def test_all_shortest_paths_are_counted(spec: str) -> None:
    fabric = parse_fabric(spec)
    whole, last = graph(fabric), fabric.hosts - 1
    for source, destination in ((0, 1), (0, last), (last, 0), (last // 2, last)):
        if source == destination:
            continue
        ends = fabric.switches + source, fabric.switches + destination
        found = paths_between(fabric, source, destination)
        # Hosts do not forward.
        others = [n for n in whole if n >= fabric.switches and n not in ends]
        ways = list(nx.all_shortest_paths(whole.subgraph(set(whole) - set(others)), *ends))
        assert found.paths == len(ways)
        assert found.longest_links == len(ways[0]) - 1


def test_ports_of_planes() -> None:
    fabric = parse_fabric("multi-plane:planes=3,leaves=2,spines=4,hosts=2,down=host1-plane2.leaf1")
    far, near = paths_between(fabric, 0, 3), paths_between(fabric, 0, 1)
    assert [(p.switch, p.paths, p.links) for p in far.ports] == [
        ("plane1.leaf1", 4, 4), ("plane3.leaf1", 4, 4),
    ]  # fmt: skip
    assert (near.paths, near.longest_links) == (2, 2)


def test_paths_that_avoid_lost_links() -> None:
    fabric = parse_fabric("leaf-spine:leaves=2,spines=4,hosts=2")
    lost = np.zeros(len(fabric.links.source), np.bool_)
    lost[fabric.find_links("leaf1>spine1")] = True
    assert paths_between(fabric, 0, 3, lost).paths == 3
    assert paths_between(fabric, 3, 0, lost).paths == 4
    lost[fabric.find_links("host1")] = True
    none = paths_between(fabric, 0, 3, lost)
    assert (none.paths, none.longest_links) == (0, None)


def test_names_of_a_pair() -> None:
    fabric = parse_fabric("leaf-spine:leaves=2,hosts=2")
    assert named_pair(fabric, "host2, host4") == (1, 3)
    for text, words in (("host1", "two hosts"), ("host1,leaf1", "host1 to host4")):
        with pytest.raises(UsageError, match=words):
            named_pair(fabric, text)
    with pytest.raises(UsageError, match="two different hosts"):
        paths_between(fabric, 1, 1)
