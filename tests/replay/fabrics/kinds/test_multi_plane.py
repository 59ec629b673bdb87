"""Several planes: a host has one port in each, and planes share no switch."""

from __future__ import annotations

import networkx as nx

from rocescope.replay.fabrics.kinds.multi_plane import multi_plane


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
