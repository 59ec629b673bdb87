"""Sizes of tables, counted by hand."""

from __future__ import annotations

from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.flows.checks.table_sizes import table_sizes


def sizes(spec):
    return {
        one.tier: (one.routes, one.groups, one.members, one.static_srv6)
        for one in table_sizes(parse_fabric(spec))
    }


def test_leaves_choose_and_spines_do_not():
    found = sizes("leaf-spine:leaves=3,spines=4,hosts=2")
    # A leaf reaches two others over one group of four links; its neighbours are four spines and
    # two hosts. A spine reaches three leaves, each over one link.
    assert found == {"leaf": (2, 1, 4, 1 + 4 + 2), "spine": (3, 0, 0, 1 + 3)}


def test_parallel_links_are_members_but_one_segment():
    found = sizes("leaf-spine:leaves=3,spines=2,hosts=2,uplinks=2")
    assert found["leaf"] == (2, 1, 4, 1 + 2 + 2)
    assert found["spine"] == (3, 3, 6, 1 + 3)


def test_a_failed_link_leaves_its_groups():
    found = sizes("leaf-spine:leaves=2,spines=2,hosts=1,down=leaf1-spine1")
    assert found["leaf"] == (1, 0, 0, 1 + 2 + 1)  # of leaf2: its segments are those of all links
