"""Leaf-spine: which cables there are, and their rates."""

from __future__ import annotations

from collections import Counter

from rocescope.replay.fabrics.kinds.leaf_spine import leaf_spine


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
