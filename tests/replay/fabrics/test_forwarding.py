"""Equal-cost groups against networkx, on every kind of fabric and with links down."""

from __future__ import annotations

import numpy as np
import pytest
from fabric_walking import forwarded, shortest_groups
from hypothesis import given
from hypothesis import strategies as st

from rocescope.replay.fabrics.forwarding import Forwarding, without_links
from rocescope.replay.fabrics.parse import parse_fabric

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
