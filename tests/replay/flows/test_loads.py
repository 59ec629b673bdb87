"""Where units enter a fabric."""

from __future__ import annotations

import numpy as np
import pytest
import replay_traffic
from hypothesis import given
from hypothesis import strategies as st

from rocescope.kernels.kernel import Floats, Ints
from rocescope.replay.compare.flows import replay
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.flows.loads import (
    Evenness,
    LinkLoads,
    Placement,
    busiest_over_fair,
    enter,
    evenness,
    link_loads,
    most_at_once,
    over_time,
)
from rocescope.replay.flows.shares import by_capacity, even_loads, fair_bytes, split_evenly
from rocescope.replay.strategies.registry import parse_strategy

# Where units enter a fabric.

# Where units enter a fabric.


def test_hosts_with_several_ports_use_them_in_turn() -> None:
    fabric = parse_fabric("multi-plane:planes=2,leaves=2,spines=2,hosts=3")
    traffic = replay_traffic.traffic(fabric, [0, 0, 0, 1, 0], [3, 4, 5, 3, 3])
    switch = enter(traffic, fabric).switch
    planes = fabric.nodes.plane[switch].tolist()
    assert planes == [0, 1, 0, 0, 1]


def test_hosts_with_one_port_enter_there_or_nowhere() -> None:
    fabric = parse_fabric("leaf-spine:leaves=2,spines=1,hosts=2,down=leaf2-spine1")
    traffic = replay_traffic.traffic(fabric, [0, 1, 0, 2], [1, 0, 2, 3])
    start = enter(traffic, fabric)
    assert (start.access >= 0).tolist() == [True, True, False, True]
    assert start.switch[start.access >= 0].tolist() == [0, 0, 1]


# Loads of links by hand, over all and window by window.

FABRIC = parse_fabric("leaf-spine:leaves=2,spines=2,hosts=4")


def test_flows_and_bytes_per_link() -> None:
    traffic = replay_traffic.traffic(FABRIC, [0, 1, 2], [4, 5, 6], [100, 10, 1])
    links = np.array([[0, 3, -1], [1, 3, 5], [0, 3, 5]], np.int32)
    loads = link_loads(Placement(links, np.array([False, False, True])), traffic, 7)
    assert loads.flows.tolist() == [1, 1, 0, 2, 0, 1, 0]
    assert loads.wire_bytes.tolist() == [100, 10, 0, 110, 0, 10, 0]


def measured(
    flows: list[int], carried: Ints, rates: Ints, fair: Floats, counted: list[int] | None = None
) -> Evenness:
    """The evenness of all links; every link is within reach of the counted flows."""
    n = len(flows)
    loads = LinkLoads(np.array(flows), carried, np.array(flows if counted is None else counted))
    return evenness(loads, np.arange(n), rates, fair, np.ones(n, np.bool_))


def test_evenness_by_hand() -> None:
    carried, rates = np.array([60, 20, 0, 0]), np.full(4, 400)
    even = measured([3, 1, 0, 0], carried, rates, np.full(4, 20.0))
    # mean 1: deviations 2, 0, 1, 1; of bytes, mean 20: 2, 0, 1, 1.
    assert even.fim_flows_percent == pytest.approx(100) and even.fim_bytes_percent == pytest.approx(
        100
    )
    assert even.max_over_mean == pytest.approx(3)
    assert (even.flows, even.wire_bytes, even.idle_links) == (4, 80, 2)
    assert even.fim_flows_best_percent == 0


def test_a_fim_of_flows_counts_flows_with_data() -> None:
    carried, rates = np.array([60, 20, 20, 20]), np.full(4, 400)
    even = measured([3, 1, 1, 1], carried, rates, np.full(4, 30.0), counted=[1, 1, 0, 0])
    assert (even.flows, even.data_flows) == (6, 2)
    # mean 1/2: deviations 1, 1, 1, 1; of all flows, mean 3/2: 1, 1/3, 1/3, 1/3.
    assert even.fim_flows_percent == pytest.approx(
        100
    ) and even.fim_all_flows_percent == pytest.approx(50)
    loads = LinkLoads(np.array([2, 2, 1, 1]), carried, np.array([2, 2, 0, 0]))
    reach = np.array([True, True, False, False])  # the other links carry ACKs only
    one_way = evenness(loads, np.arange(4), rates, np.full(4, 30.0), reach)
    assert one_way.fim_flows_percent == 0 and one_way.fim_all_flows_percent == pytest.approx(
        100 / 3
    )
    only_acks = measured([3, 1, 0, 0], carried, rates, np.full(4, 30.0), counted=[0] * 4)
    assert (
        only_acks.fim_flows_percent == pytest.approx(100)
        and only_acks.fim_all_flows_percent is None
    )


def test_links_of_other_rates_have_other_shares() -> None:
    fair = np.array([3_000.0, 1_000.0])
    even = measured([3, 1], np.array([3_000, 1_000]), np.array([300, 100]), fair)
    assert even.fim_bytes_percent == pytest.approx(0) and even.max_over_mean == pytest.approx(1)
    carried, rates = np.array([1 << 40, 1 << 40]), np.array([4 * 10**11] * 2)
    huge = measured([1, 1], carried, rates, carried.astype(np.float64))
    assert huge.max_over_mean == pytest.approx(1)


@pytest.mark.thorough
def test_flows_that_never_meet_do_not_collide() -> None:
    # Two units on link 3 of the layer (3, 4), in different windows: each window has one.
    links = np.array([[3], [3]], np.int32)
    placement = Placement(links, np.zeros(2, np.bool_))
    apart = replay_traffic.traffic(FABRIC, [0, 1], [4, 5], windows=[(0, 0, 50), (1, 9, 50)])
    together = replay_traffic.traffic(FABRIC, [0, 1], [4, 5], windows=[(0, 0, 50), (1, 0, 50)])
    layer, rates = np.array([3, 4]), np.array([1, 1])
    assert apart.windows is not None and together.windows is not None
    assert most_at_once(placement, apart.windows, 3) == 1
    assert most_at_once(placement, together.windows, 3) == 2
    assert most_at_once(placement, together.windows, 4) == 0
    found = over_time(placement, apart.windows, layer, rates)
    assert found is not None
    assert (found.windows, found.peak_bytes, found.peak_link) == (2, 50, 0)
    assert found.fim_bytes == pytest.approx(100) and found.max_over_mean == pytest.approx(2)


def test_alternating_links_are_even_over_all_but_not_at_any_time() -> None:
    placement = Placement(np.array([[3], [4]], np.int32), np.zeros(2, np.bool_))
    traffic = replay_traffic.traffic(
        FABRIC, [0, 1], [4, 5], windows=[(0, 0, 50), (1, 1, 40), (1, 2, 10)]
    )
    assert traffic.windows is not None
    found = over_time(placement, traffic.windows, np.array([3, 4]), np.array([1, 1]))
    assert found is not None and found.windows == 3
    assert found.fim_bytes == pytest.approx(100)


@given(st.integers(0), st.integers(1, 40))
def test_windows_against_plain_sums(seed: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    cells = {(int(u), int(w)): int(b) for u, w, b in rng.integers([0, 0, 1], [5, 6, 99], (rows, 3))}
    traffic = replay_traffic.traffic(
        FABRIC, [0] * 5, [4] * 5, windows=[(u, w, b) for (u, w), b in cells.items()]
    )
    links = rng.integers(0, 3, (5, 2)).astype(np.int32)
    placement = Placement(links, np.array([False] * 4 + [True]))
    layer, rates = np.array([0, 1, 2]), np.array([1, 2, 1])
    total, deviation, largest, windows, peak = 0, 0.0, 0.0, 0, 0
    for window in range(6):
        loads = np.zeros(3)
        for (u, w), b in cells.items():
            if w == window and u < 4:
                for link in links[u]:
                    loads[link] += b
        if loads.any():
            share = loads / (loads.sum() * rates / 4)
            total += loads.sum()
            deviation += loads.sum() * abs(share - 1).mean()
            largest += loads.sum() * share.max()
            windows, peak = windows + 1, max(peak, loads.max())
    assert traffic.windows is not None
    found = over_time(placement, traffic.windows, layer, rates)
    if not total:
        assert found is None
        return
    assert found is not None
    assert (found.windows, found.peak_bytes) == (windows, peak)
    assert found.fim_bytes == pytest.approx(100 * deviation / total)
    assert found.max_over_mean == pytest.approx(largest / total)


def test_even_loads_of_a_fat_tree_by_hand() -> None:
    fabric = parse_fabric("fat-tree:k=4")
    # Host 0 to host 1 (same leaf), host 2 (same pod) and host 15 (another pod), 16 bytes each.
    traffic = replay_traffic.traffic(fabric, [0, 0, 0], [1, 2, 15], 16)
    loads = even_loads(traffic, fabric, traffic.wire_bytes)
    named = {fabric.link_name(i): loads[i] for i in np.flatnonzero(loads)}
    assert named["host1>leaf1"] == 48 and named["leaf1>host2"] == 16
    assert named["leaf1>spine1"] == named["leaf1>spine2"] == 16
    assert named["spine1>leaf2"] == 8 and named["spine1>core1"] == 4
    assert named["core4>spine8"] == 4 and named["spine8>leaf8"] == 8
    assert sum(1 for name in named if name.startswith("core")) == 4


# Fair shares of links, by hand.

SPEC = "leaf-spine:leaves=2,spines=4,hosts=1"
SHARES_FABRIC = parse_fabric(SPEC)
DATA, ACK = 1000, 10
TRAFFIC = replay_traffic.traffic(
    SHARES_FABRIC, [0] * 4 + [1] * 4, [1] * 4 + [0] * 4, [DATA] * 4 + [ACK] * 4
)


def test_the_direction_of_acknowledgements_is_no_room_for_data() -> None:
    even = split_evenly(TRAFFIC, SHARES_FABRIC)
    fair = {SHARES_FABRIC.link_name(i): float(even[i]) for i in range(len(even))}
    for spine in range(1, 5):  # four flows of each direction on four spines
        assert fair[f"leaf1>spine{spine}"] == fair[f"spine{spine}>leaf2"] == DATA
        assert fair[f"leaf2>spine{spine}"] == fair[f"spine{spine}>leaf1"] == ACK


@pytest.mark.parametrize("name", ["ecmp", "static", "ecmp:hash=crc32,seed=7"])
def test_two_of_four_equal_flows_on_one_of_four_links_are_twice_its_share(name: str) -> None:
    result = replay(TRAFFIC, SHARES_FABRIC, [parse_strategy(name)], ["test"]).strategies[0]
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
        busiest = busiest_over_fair(carried[links], fair[links], rates[links])
        assert busiest == pytest.approx(1, 1e-3)


def test_a_slow_link_has_a_smaller_share_on_both_sides_of_its_spine() -> None:
    """WCMP by hand: capacities 1, 4, 4, 4 of 13, from the other leaf as well."""
    fabric = parse_fabric(f"{SPEC},rate=400G,slow=leaf1-spine1:100G")
    names = [fabric.link_name(i) for i in range(len(fabric.links.source))]
    assert by_capacity(SHARES_FABRIC) is SHARES_FABRIC
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
    assert busiest_over_fair(carried, fair, rates) == pytest.approx(1.5)
    assert busiest_over_fair(carried * 0, fair, rates) is None
    # 120 on a link whose share is 80 delay less than 150 on one whose share is 100.
    assert busiest_over_fair(np.array([100, 120]), np.array([100.0, 80.0]), rates[:2]) == 1.2
    assert busiest_over_fair(np.array([150, 80]), np.array([100.0, 80.0]), rates[:2]) == 1.5
