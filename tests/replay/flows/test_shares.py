"""Fair shares of links, by hand."""

from __future__ import annotations

import numpy as np
import pytest
import replay_traffic

from rocescope.replay.compare.flows import replay
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.flows.loads import fullest_over_fair
from rocescope.replay.flows.shares import by_capacity, fair_bytes, split_evenly
from rocescope.replay.strategies.registry import parse_strategy

SPEC = "leaf-spine:leaves=2,spines=4,hosts=1"
FABRIC = parse_fabric(SPEC)
DATA, ACK = 1000, 10
TRAFFIC = replay_traffic.traffic(
    FABRIC, [0] * 4 + [1] * 4, [1] * 4 + [0] * 4, [DATA] * 4 + [ACK] * 4
)


def test_the_direction_of_acknowledgements_is_no_room_for_data() -> None:
    even = split_evenly(TRAFFIC, FABRIC)
    fair = {FABRIC.link_name(i): float(even[i]) for i in range(len(even))}
    for spine in range(1, 5):  # four flows of each direction on four spines
        assert fair[f"leaf1>spine{spine}"] == fair[f"spine{spine}>leaf2"] == DATA
        assert fair[f"leaf2>spine{spine}"] == fair[f"spine{spine}>leaf1"] == ACK


@pytest.mark.parametrize("name", ["ecmp", "static", "ecmp:hash=crc32,seed=7"])
def test_two_of_four_equal_flows_on_one_of_four_links_are_twice_its_share(name: str) -> None:
    result = replay(TRAFFIC, FABRIC, [parse_strategy(name)], ["test"]).strategies[0]
    up = {link.name: link for link in result.links if link.name.startswith("leaf1>spine")}
    assert len(up) == 4  # idle ones too
    counts = sorted((link.flows or 0 for link in up.values()), reverse=True)
    for link in up.values():
        assert link.over_mean == pytest.approx(link.flows)
    assert result.max_over_mean == pytest.approx(counts[0])
    assert result.worst[0].over_mean == pytest.approx(result.max_over_mean)
    assert result.worst[0].wire_bytes == counts[0] * DATA


def test_perfect_spraying_is_one_on_every_link() -> None:
    fabric = parse_fabric("fat-tree:k=4")
    traffic = replay_traffic.random_traffic(fabric, 30)
    even = split_evenly(traffic, fabric)
    layers = [np.flatnonzero((fabric.links.layer == n) & (even > 0)) for n in range(6)]
    layers = [links for links in layers if len(links)]
    rates = fabric.links.rate_bits_per_second
    carried = np.round(even * 12).astype(np.int64)
    fair = fair_bytes(even, carried, rates, layers)
    for links in layers:
        assert carried[links] / fair[links] == pytest.approx(1, rel=1e-3)
        fullest = fullest_over_fair(carried[links], fair[links], rates[links])
        assert fullest == pytest.approx(1, 1e-3)


def test_a_slow_link_has_a_smaller_share_on_both_sides_of_its_spine() -> None:
    """WCMP by hand: capacities 1, 4, 4, 4 of 13, from the other leaf as well."""
    fabric = parse_fabric(f"{SPEC},rate=400G,slow=leaf1-spine1:100G")
    names = [fabric.link_name(i) for i in range(len(fabric.links.source))]
    assert by_capacity(FABRIC) is FABRIC
    even = dict(zip(names, split_evenly(TRAFFIC, fabric).tolist(), strict=True))
    for first in ("leaf1>spine", "leaf2>spine"):
        total = sum(even[f"{first}{n}"] for n in range(1, 5))
        assert even[f"{first}1"] == pytest.approx(total / 13, rel=0.01)


def test_links_beside_the_groups_share_by_rate() -> None:
    even, carried = np.array([0.0, 5.0]), np.array([30, 10])
    fair = fair_bytes(even, carried, np.array([1, 3]), [np.array([0, 1])])
    assert fair.tolist() == [10, 30]


def test_the_fullest_link_counts_not_the_largest_ratio() -> None:
    carried, fair, rates = np.array([300, 3, 0]), np.array([200.0, 1.0, 0.0]), np.array([4, 4, 4])
    assert fullest_over_fair(carried, fair, rates) == pytest.approx(1.5)
    assert fullest_over_fair(carried * 0, fair, rates) is None
    # 120 on a link whose share is 80 delay less than 150 on one whose share is 100.
    assert fullest_over_fair(np.array([100, 120]), np.array([100.0, 80.0]), rates[:2]) == 1.2
    assert fullest_over_fair(np.array([150, 80]), np.array([100.0, 80.0]), rates[:2]) == 1.5
