"""What `rocescope fabric` says of a fabric, against arithmetic and networkx."""

from __future__ import annotations

import networkx as nx
import pytest

from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.flows.checks.fabric_check import check_fabric

G = 10**9


def layers(report):
    return {layer.name: layer for layer in report.layers}


def test_a_fat_tree():
    report = check_fabric(parse_fabric("fat-tree:k=8,rate=100G"))
    assert report.is_sound and report.problems == []
    assert (report.hosts, report.switches, report.edges) == (128, 80, 32)
    assert (report.longest_path_links, report.unreachable_pairs) == (6, 0)
    assert (report.looping_pairs, report.dead_ends) == (0, 0)
    assert report.bisection_bits_per_second == 64 * 100 * G
    assert report.bisection_ratio == 1.0
    assert [(t.name, t.switches, t.oversubscription_max) for t in report.tiers] == [
        ("leaf", 32, 1.0), ("spine", 32, 1.0), ("core", 16, None),
    ]  # fmt: skip
    # 32 leaves have 31 destinations over 4 uplinks; 32 spines reach 28 leaves of other pods.
    assert layers(report)["leaf-spine"].group_sizes == {4: 32 * 31}
    assert layers(report)["spine-core"].group_sizes == {4: 32 * 28}
    assert layers(report)["spine-leaf"].group_sizes == {1: 32 * 4}
    assert layers(report)["core-spine"].group_sizes == {1: 16 * 32}
    assert layers(report)["host-leaf"].group_sizes == {}


def test_an_oversubscribed_fabric_with_failures():
    spec = "leaf-spine:leaves=4,spines=4,hosts=8,rate=100G,oversubscription=2"
    report = check_fabric(parse_fabric(f"{spec},down=leaf1-spine1,slow=leaf2-spine2:10G"))
    (leaf, spine) = report.tiers
    assert leaf.downlink_bits_per_second == 800 * G and leaf.uplink_bits_per_second == 400 * G
    assert (leaf.oversubscription_min, leaf.oversubscription_max) == (2.0, 800 / 300)
    assert spine.oversubscription_min is None
    up = layers(report)["leaf-spine"]
    assert (up.links, up.down, up.capacity_bits_per_second) == (16, 1, (14 * 100 + 10) * G)
    assert (up.rate_min_bits_per_second, up.rate_max_bits_per_second) == (10 * G, 100 * G)
    assert up.group_sizes == {3: 3 + 3, 4: 3 * 2}  # leaf1 to all, all to leaf1


@pytest.mark.parametrize(
    "spec",
    [
        "leaf-spine:leaves=4,spines=3,hosts=4,rate=100G,uplinks=2,uplink_rate=40G,down=leaf1-spine2",
        "fat-tree:k=4,down=spine1+core3",
        "multi-plane:planes=2,leaves=2,spines=2,hosts=3,oversubscription=3,down=plane1.leaf1",
    ],
)
def test_bisection_is_the_maximum_flow_of_networkx(spec):
    fabric = parse_fabric(spec)
    edge, half = fabric.attachments.edge, fabric.hosts // 2
    assert not set(edge[:half]) & set(edge[half:])
    graph = nx.DiGraph()
    links = fabric.links
    for i in range(len(links.source)):
        if links.up[i]:
            a, b = int(links.source[i]), int(links.target[i])
            # hosts are no transit: one node sends, another receives
            a = ("from", a) if a >= fabric.switches else a
            b = ("to", b) if b >= fabric.switches else b
            before = graph.get_edge_data(a, b, {"capacity": 0})["capacity"]
            graph.add_edge(a, b, capacity=before + int(links.rate_bits_per_second[i]))
    for host in range(fabric.hosts):
        node = fabric.switches + host
        if host < half:
            graph.add_edge("source", ("from", node))
        else:
            graph.add_edge(("to", node), "sink")
    expected, _ = nx.maximum_flow(graph, "source", "sink")
    assert check_fabric(fabric).bisection_bits_per_second == expected


def test_hosts_that_cannot_reach_each_other():
    report = check_fabric(parse_fabric("rail:rails=2,servers=3,spines=0"))
    assert not report.is_sound
    assert report.unreachable_pairs == 2 * 3 * 3
    assert report.problems == [
        "18 of 30 pairs of hosts cannot reach each other, for example server1.nic1 to server1.nic2"
    ]
    report = check_fabric(parse_fabric("leaf-spine:leaves=2,hosts=2,down=host2"))
    assert report.unreachable_pairs == 2 * 3
    assert "host2 has no link that is up" in report.problems[0]


def test_one_leaf():
    report = check_fabric(parse_fabric("leaf-spine:leaves=1,spines=1,hosts=4"))
    assert report.is_sound
    assert report.bisection_bits_per_second is None
    assert report.longest_path_links == 2


RING = """\
nodes:
  s1: {tier: 1}
  s2: {tier: 1}
  s3: {tier: 1}
  h1: {kind: host}
  h2: {kind: host}
links: [[h1, s1], [h2, s3], [s1, s2], [s2, s3], [s1, s3]]
"""


def test_given_routes_that_lead_in_a_circle(tmp_path):
    file = tmp_path / "ring.yaml"
    file.write_text(RING + "routes: {s1: {h2: [s2]}, s2: {h2: [s1]}}\n")
    report = check_fabric(parse_fabric(str(file)))
    assert not report.is_sound and report.looping_pairs > 0
    assert "the path from s1 to h2 is a loop" in report.problems


def test_given_routes_that_do_not_loop(tmp_path):
    file = tmp_path / "ring.yaml"
    file.write_text(RING + "routes: {s1: {h2: [s2]}, s2: {h2: [s3]}}\n")
    report = check_fabric(parse_fabric(str(file)))
    assert report.is_sound
    assert report.longest_path_links == 4  # h1 s1 s2 s3 h2


def test_given_routes_that_end(tmp_path):
    file = tmp_path / "ring.yaml"
    file.write_text(RING + "routes: {s1: {h2: [s2]}}\ndown: [s2>s3, s2>s1]\n")
    report = check_fabric(parse_fabric(str(file)))
    assert report.dead_ends == 2 and report.unreachable_pairs == 0
    assert "the path from s2 to h2 ends without a route" in report.problems


def test_131072_hosts_are_checked_in_bounded_memory():
    report = check_fabric(parse_fabric("leaf-spine:leaves=512,spines=64,hosts=256,rate=800G"))
    assert (report.hosts, report.unreachable_pairs) == (131_072, 0)
    # 64 uplinks of 800 Gb/s per leaf, 256 leaves on each side
    assert report.bisection_bits_per_second == 256 * 64 * 800 * G
    assert report.bisection_ratio == 0.25
