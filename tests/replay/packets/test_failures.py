"""Failures: events, their schedule, and the highest rate left.

Events of links, and what they may not be.

Failures resolved for the driver.

The sending rate under failures.
"""

import numpy as np
import pytest
from host_ports import port_links

from rocescope.analyzer.errors import UsageError
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.packets.failures import (
    LINK_DOWN,
    LINK_UP,
    PEER_PORTS,
    ROUTES,
    Failures,
    LinkEvent,
    cables,
    converged,
    flapping,
    outage,
    random_cables,
    rho_max,
    scheduled,
)
from rocescope.replay.packets.model.arrays import NO_ROUTE
from rocescope.replay.packets.model.model import Model
from rocescope.replay.packets.offers import workload_of
from rocescope.replay.packets.runs import run_packets
from rocescope.replay.strategies.registry import parse_packet_strategy

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


FABRIC_SCHEDULE = parse_fabric(
    "leaf-spine:leaves=2,spines=2,hosts=2,uplinks=2,rate=100G,delay=500ns"
)


def test_the_local_switch_reacts_at_once_and_the_others_after_g() -> None:
    link = int(FABRIC_SCHEDULE.find_links("spine1>leaf2")[0])
    other = int(FABRIC_SCHEDULE.find_links("spine1>leaf2")[1])
    plan = scheduled(FABRIC_SCHEDULE, Failures(outage([link, other], 1_000), convergence_ps=5_000))
    changes = plan.changes.tolist()
    assert [row[:2] for row in changes] == [
        [1_000, LINK_DOWN],
        [1_000, LINK_DOWN],
        [1_000, ROUTES],
        [6_000, ROUTES],
    ]
    leaf1, spine1 = (
        FABRIC_SCHEDULE.nodes.names.index("leaf1"),
        FABRIC_SCHEDULE.nodes.names.index("spine1"),
    )
    edge = int(FABRIC_SCHEDULE.attachments.edge[2])  # below leaf 2

    def ways(state: int, switch: int) -> list[int]:
        group = int(plan.routes[state, switch, edge])
        if group == NO_ROUTE:
            return []
        start = plan.fabric.forwarding.group_start
        return plan.fabric.forwarding.group_links[start[group] : start[group + 1]].tolist()

    local, converged = changes[2][2], changes[3][2]
    assert ways(local, spine1) == [] and len(ways(local, leaf1)) == 4  # still half into nothing
    assert {int(FABRIC_SCHEDULE.links.target[x]) for x in ways(converged, leaf1)} == {
        FABRIC_SCHEDULE.nodes.names.index("spine2")
    }
    assert scheduled(FABRIC_SCHEDULE, Failures(outage([link], 0), None)).changes[-1, 1] == ROUTES


def test_a_flapping_link_is_up_in_the_end() -> None:
    events = flapping(["leaf1-spine1#1"], 0, 1_000, 300, 200)
    plan = scheduled(FABRIC_SCHEDULE, Failures(events, 0))
    turns = plan.changes[np.isin(plan.changes[:, 1], (LINK_DOWN, LINK_UP))]
    assert len(turns) == 8  # both directions
    assert plan.changes[-1].tolist() == [800, ROUTES, 0, 0]


def test_peers_learn_of_ports() -> None:
    fabric = parse_fabric("multi-plane:planes=4,leaves=2,spines=2,hosts=2,delay=500ns")
    plan = scheduled(fabric, Failures(outage(port_links(fabric, 1, 2), 0, 1_000_000)))
    told = plan.changes[plan.changes[:, 1] == PEER_PORTS]
    assert told[:, 2:].tolist() == [[1, 0b1011], [1, 0b1111]]
    assert told[:, 0].tolist() == [2_000_000, 3_000_000]  # four links of 500 ns later


TREE = parse_fabric("fat-tree:k=4,rate=800G")


def test_switches_weigh_links_by_the_paths_behind_them() -> None:
    """arXiv 2507.21372, appendix F, on four ports: two paths behind each spine, one of which is
    gone: [800, 1600] Gb/s become [1, 2]."""
    after = converged(TREE, ["spine1-core1"])
    leaf, edge = TREE.nodes.names.index("leaf1"), int(TREE.attachments.edge[-1])
    links, weights = after.group(leaf, edge)
    assert [after.link_name(int(link)) for link in links] == ["leaf1>spine1"] + ["leaf1>spine2"] * 2
    assert weights.tolist() == [1, 1, 1]
    same_pod = int(TREE.attachments.edge[2])
    assert sorted(after.group(leaf, same_pod)[0].tolist()) == sorted(set(links.tolist()))


def test_ofan_follows_the_weights_of_the_present() -> None:
    ends, size = (np.array([0]), np.array([15])), np.array([600 * 4096])
    load = workload_of(*ends, size, None, Model(pfc=None))  # type: ignore[arg-type]
    for spine in ("spine1", "spine2"):
        failures = Failures(outage([f"{spine}-core{1 if spine == 'spine1' else 3}"], 1), 0)
        result = run_packets(
            load, TREE, parse_packet_strategy("ofan"), Model(pfc=None), failures=failures
        )
        packets = [int(result.link_packets[TREE.find_links(f"leaf1>spine{i}")[0]]) for i in (1, 2)]
        assert sum(packets) == 600
        share = packets[0 if spine == "spine1" else 1] / sum(packets)
        assert share == pytest.approx(1 / 3, abs=0.01)


def test_a_link_that_does_not_exist_is_named() -> None:
    with pytest.raises(UsageError, match="leaf9"):
        scheduled(FABRIC_SCHEDULE, Failures(outage(["leaf9-spine1"], 0)))


FABRIC_HIGHEST_RATE = parse_fabric(
    "leaf-spine:leaves=2,spines=2,hosts=2,uplinks=2,rate=100G,delay=500ns"
)


def test_rho_max() -> None:
    """Paper, section 6: 2 flows of a leaf over 4 uplinks; with 3 of 4 gone one carries both."""
    src, dst = np.array([0, 1], np.int32), np.array([2, 3], np.int32)
    assert rho_max(FABRIC_HIGHEST_RATE, src, dst) == 1.0
    down = FABRIC_HIGHEST_RATE.down(["leaf1-spine1#1", "leaf1-spine1#2", "leaf1-spine2#1"])
    assert rho_max(down, src, dst) == 0.5


def test_rho_max_of_flows_that_are_split_by_paths() -> None:
    """Flows of two hosts: split over three paths, the spine that has two carries twice a third."""
    tree = parse_fabric("fat-tree:k=4,rate=800G")
    src, dst = np.array([0, 1], np.int32), np.array([14, 15], np.int32)
    assert rho_max(tree.down(["spine1-core1"]), src, dst) == pytest.approx(0.75)
