"""Events of links, and what they may not be."""

import numpy as np
import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.packets.failures.events import (
    Failures,
    LinkEvent,
    cables,
    flapping,
    random_cables,
)

FABRIC = parse_fabric("leaf-spine:leaves=2,spines=2,hosts=2,uplinks=2,rate=100G,delay=500ns")


def test_cables_are_pairs_of_opposite_links() -> None:
    source, target = FABRIC.links.source, FABRIC.links.target
    pairs = cables(FABRIC)
    assert len(pairs) == 8 and len(set(pairs.reshape(-1).tolist())) == 16
    for there, back in pairs.tolist():
        assert (source[there], target[there]) == (target[back], source[back])
    fat_tree = parse_fabric("fat-tree:k=8")
    failed = [len(random_cables(fat_tree, 0.1, seed)) for seed in range(20)]
    assert all(n % 2 == 0 for n in failed)
    assert 0.08 < np.mean(failed) / 2 / len(cables(fat_tree)) < 0.12


def test_flapping_ends_up() -> None:
    events = flapping(["leaf1-spine1#1"], 0, 1_000, 300, 200)
    assert [(e.time_ps, e.what) for e in events] == [
        (0, "down"),
        (300, "up"),
        (500, "down"),
        (800, "up"),
    ]


def test_errors_name_the_value() -> None:
    with pytest.raises(UsageError, match="chance from 0 to 1"):
        Failures((LinkEvent(0, 1, "lossy", 2.0),))
