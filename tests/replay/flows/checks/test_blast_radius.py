"""What failures take away, by hand and against networkx."""

from __future__ import annotations

import networkx as nx
import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.flows.checks.blast_radius import blast_radii
from rocescope.replay.flows.checks.path_counts import paths_between
from rocescope.replay.flows.checks.table_sizes import table_sizes

PLANES = "multi-plane:planes=4,leaves=3,spines=8,hosts=8,rate=100G"


def test_one_of_every_kind_in_planes() -> None:
    found = blast_radii(parse_fabric(PLANES), "each")
    assert [
        (r.element, r.kind, r.links, r.hosts_below, r.hosts_cut_off) for r in found
    ] == [
        ("host1-plane1.leaf1", "host-leaf link", 2, 1, 0),
        ("plane1.leaf1-plane1.spine1", "leaf-spine link", 2, 8, 0),
        ("plane1.spine1", "spine", 6, 24, 0),
        ("plane1.leaf1", "leaf", 32, 8, 0),
        ("plane1", "plane", 2 * (24 + 24), 24, 0),
    ]  # fmt: skip
    assert [r.host_capacity_percent for r in found] == [25, 0, 0, 25, 25]
    assert [r.uplink_capacity_percent for r in found] == [0, 12.5, 12.5, 0, 0]
    assert [(r.paths_after, r.paths_before) for r in found] == [
        (24, 32), (31, 32), (31, 32), (24, 32), (24, 32),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["leaf1-spine1", "spine1-core1", "core1", "spine1", "leaf8"])
def test_a_fat_tree_as_networkx_sees_it(name: str) -> None:
    fabric = parse_fabric("fat-tree:k=4")
    links, (one,) = fabric.links, blast_radii(fabric, name)
    ends = list(zip(links.source.tolist(), links.target.tolist(), strict=True))
    gone = {ends[i] for i in fabric.find_links(name)}
    whole, rest = nx.DiGraph(ends), nx.DiGraph(e for e in ends if e not in gone)
    hosts = range(fabric.switches, fabric.switches + fabric.hosts)
    assert one.hosts_cut_off == sum(h not in rest for h in hosts)
    tier = fabric.nodes.tier
    downwards = nx.DiGraph((a, b) for a, b in ends if tier[a] > tier[b])
    downwards.add_nodes_from(whole)
    low = {min(pair, key=lambda node: tier[node]) for pair in gone}
    below = low.union(*(nx.descendants(downwards, node) for node in low))
    assert one.hosts_below == len(below & set(hosts))
    names = fabric.nodes.names
    pair = names.index(one.source), names.index(one.destination)
    assert pair[0] in below
    far = list(nx.all_shortest_paths(whole, *pair))
    assert one.paths_before == len(far)
    left = [path for path in far if not set(nx.utils.pairwise(path)) & gone]
    assert one.paths_after == len(left)


def test_single_homed_hosts_are_cut_off() -> None:
    leaf, link = blast_radii(
        parse_fabric("leaf-spine:leaves=2,spines=2,hosts=4"), "leaf2,host3-leaf1"
    )
    assert (leaf.hosts_cut_off, leaf.host_capacity_percent, leaf.paths_after) == (4, 100, 0)
    assert (leaf.source, leaf.destination) == ("host5", "host1")
    assert (link.hosts_cut_off, link.source) == (1, "host3")


def test_parallel_links_count_one_by_one() -> None:
    fabric = parse_fabric("leaf-spine:leaves=2,spines=2,hosts=2,uplinks=2")
    _, link, *_ = blast_radii(fabric, "each")
    assert (link.element, link.links, link.uplink_capacity_percent) == ("leaf1-spine1#1", 2, 25)
    # The equal-cost group holds all four links of the leaf, and the spine two to the other.
    assert (link.paths_before, link.paths_after) == (8, 6)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ("plane9", "no plane9"),
        ("leaf1-spine9", "leaf1-spine9"),
        (",", "each, or names"),
        ("leaf1-spine1", "is already down"),
    ],
)
def test_names_that_do_not_work(names: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        blast_radii(parse_fabric("leaf-spine:leaves=2,spines=2,hosts=2,down=leaf1-spine1"), names)


def test_tables() -> None:
    leaf, spine = table_sizes(parse_fabric(PLANES))
    # 2 other leaves over one group of 8 uplinks; itself, 8 uplinks and 8 hosts in static tables.
    assert (leaf.routes, leaf.groups, leaf.members, leaf.static_srv6) == (2, 1, 8, 17)
    assert (spine.routes, spine.groups, spine.members, spine.static_srv6) == (3, 0, 0, 4)


@pytest.mark.parametrize(
    ("switch_gbps", "sizes"),
    [
        (12_800, (128, 8_192, 1_024, 512)),
        pytest.param(51_200, (512, 131_072, 4_096, 2_048), marks=pytest.mark.thorough),
    ],
)
def test_nics_of_eight_planes_by_arithmetic(
    switch_gbps: int, sizes: tuple[int, int, int, int]
) -> None:
    """The fabric of arXiv 2605.04333, from a switch of 51.2 Tb/s and a NIC of 800 Gb/s in 8 ports.

    A switch has 512 ports of 100 Gb/s; half of a T0's lead down, so a plane has 512 T0s, 256 T1s
    and 512 * 256 ports for NICs. A T1 has one link to every T0. A switch of 12.8 Tb/s makes a
    sixteenth of it.
    """
    planes = 8
    radix = switch_gbps // (800 // planes)
    down, t0s, t1s = radix // 2, radix, radix // 2
    nics, way_up = t0s * down, radix // 2
    assert (radix, nics, planes * t0s, planes * t1s) == sizes
    fabric = parse_fabric(f"multi-plane:planes=8,leaves={t0s},spines={t1s},hosts={down},rate=100G")
    assert (fabric.hosts, fabric.switches) == (nics, planes * (t0s + t1s))
    cables = planes * (nics + t0s * way_up)  # a port per NIC and plane, and all uplinks
    assert len(fabric.links.source) == 2 * cables
    far, near = paths_between(fabric, 0, nics - 1), paths_between(fabric, 0, 1)
    paths = planes * t1s
    assert (far.paths, far.longest_links, near.paths, near.longest_links) == (paths, 4, planes, 2)
    found = {r.kind: r for r in blast_radii(fabric, "each")}
    share, way = 100 / planes, 100 / way_up  # 12.5 % of a NIC, 0.39 % of a T0's uplinks
    per_plane = paths // planes
    for kind, links, below, capacity, uplinks, lost in (
        ("host-leaf link", 2, 1, share, 0, per_plane),
        ("leaf-spine link", 2, down, 0, way, 1),
        ("spine", 2 * t0s, nics, 0, way, 1),
        ("leaf", 2 * (down + way_up), down, share, 0, per_plane),
        ("plane", 2 * (nics + t0s * way_up), nics, share, 0, per_plane),
    ):
        one = found[kind]
        assert (one.links, one.hosts_below, one.hosts_cut_off) == (links, below, 0), kind
        assert (one.host_capacity_percent, one.uplink_capacity_percent) == (capacity, uplinks)
        assert (one.paths_before, one.paths_before - one.paths_after) == (paths, lost), kind
    leaf, spine = table_sizes(fabric)
    assert (leaf.routes, leaf.members, leaf.static_srv6) == (t0s - 1, way_up, 1 + radix)
    assert (spine.routes, spine.groups, spine.static_srv6) == (t0s, 0, 1 + radix)
