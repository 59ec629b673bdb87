"""The sending rate under failures."""

import numpy as np
import pytest

from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.packets.failures.highest_rate import rho_max

FABRIC = parse_fabric("leaf-spine:leaves=2,spines=2,hosts=2,uplinks=2,rate=100G,delay=500ns")


def test_rho_max() -> None:
    """Paper, section 6: 2 flows of a leaf over 4 uplinks; with 3 of 4 gone one carries both."""
    src, dst = np.array([0, 1], np.int32), np.array([2, 3], np.int32)
    assert rho_max(FABRIC, src, dst) == 1.0
    down = FABRIC.down(["leaf1-spine1#1", "leaf1-spine1#2", "leaf1-spine2#1"])
    assert rho_max(down, src, dst) == 0.5


def test_rho_max_of_flows_that_are_split_by_paths() -> None:
    """Flows of two hosts: split over three paths, the spine that has two carries twice a third."""
    tree = parse_fabric("fat-tree:k=4,rate=800G")
    src, dst = np.array([0, 1], np.int32), np.array([14, 15], np.int32)
    assert rho_max(tree.down(["spine1-core1"]), src, dst) == pytest.approx(0.75)
