"""A fabric on which captured links can be replayed at once."""

from __future__ import annotations

import numpy as np
import pytest
import replay_traffic

from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.seeds.small_fabric import small_fabric
from rocescope.replay.seeds.tapped import Direction, Seen


def direction(names: list[str], links: int = 4) -> Direction:
    """One flow from each of the first half of the hosts to each of the others."""
    half = len(names) // 2
    source, destination = (
        ends.ravel() for ends in np.meshgrid(range(half), range(half, len(names)))
    )
    keys = replay_traffic.random_traffic(
        parse_fabric("leaf-spine:leaves=2,spines=2,hosts=2"), len(source)
    ).keys
    zeros = np.zeros(len(source), np.int64)
    taps = tuple(f"up{i}" for i in range(links))
    link, limit = zeros.astype(np.int32), zeros.astype(np.uint8)
    return Direction("", Seen(taps, keys, link, limit, source, destination, tuple(names)))


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["10.1.1.10", "10.1.2.10", "10.2.3.10", "10.2.4.10"], "hosts=2 subnets"),
        (["10.1.0.1", "10.1.0.2", "10.1.0.3", "10.1.0.4"], "hosts=2 order"),
        (["fd10:1:1::1", "fd10:1:1::2", "fd10:2:1::1", "fd10:2:1::2"], "hosts=2 subnets"),
        (["10.1.0.1", "10.1.0.9", "10.1.0.2", "10.1.0.5"], None),
    ],
)
def test_each_side_is_one_leaf(names: list[str], told: str | None) -> None:
    found = small_fabric([direction(names)])
    expected = None if told is None else f"leaf-spine:leaves=2,spines=4,{told}"
    assert (None if found is None else f"{found.fabric} {found.map}") == expected


def test_nothing_to_build_from_or_too_much_is_no_fabric() -> None:
    assert small_fabric([]) is None
    names = ["10.1.1.10", "10.1.2.10", "10.2.3.10", "10.2.4.10"]
    assert small_fabric([direction(names, links=1 << 20)]) is None
