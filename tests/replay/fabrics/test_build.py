"""Tiers by distance to hosts, beside networkx."""

from __future__ import annotations

import networkx as nx
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rocescope.replay.fabrics.build import Cables, cables, tiers_by_distance

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
