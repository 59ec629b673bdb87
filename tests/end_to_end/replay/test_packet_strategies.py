"""What each packet strategy does to packets: loads that can be counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.replay.fabrics.fabric import Fabric
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.flows.loads import link_loads
from rocescope.replay.packets.model.model import EngineResult, Model, Workload
from rocescope.replay.packets.offers import collective, workload_of
from rocescope.replay.packets.open_loop import run_open_loop
from rocescope.replay.strategies import conga
from rocescope.replay.strategies.ofan import interleaved, pointer_table
from rocescope.replay.strategies.registry import (
    PACKET_STRATEGIES,
    parse_packet_strategy,
    parse_strategy,
)

TREE = parse_fabric("fat-tree:k=8,rate=800G,delay=500ns")
CLOS = parse_fabric("leaf-spine:leaves=2,spines=4,hosts=4,rate=100G,delay=500ns")
MODEL = Model(pfc=None)


def one_message(src: int, dst: int, packets: int, **columns: object) -> Workload:
    size = np.array([packets * 4096])
    ends = (np.array([src]), np.array([dst]))
    return workload_of(*ends, size, None, MODEL, **columns)  # type: ignore[arg-type]


def run(spec: str, load: Workload, fabric: Fabric, seed: int = 7) -> EngineResult:
    return run_open_loop(load, fabric, parse_packet_strategy(spec), MODEL, seed)


def up(fabric: Fabric, layer: str, source: str = "") -> np.ndarray:
    inside = fabric.links.layer == fabric.layers.index(layer)
    names = np.array([fabric.nodes.names[s] for s in fabric.links.source])
    return np.flatnonzero(inside & ((names == source) if source else True))


def test_interleaved_weighted_round_robin_of_appendix_f() -> None:
    # arXiv 2507.21372, appendix F: weights [1600, 1600, 1600, 800], order P3 P2 P4 P1.
    assert interleaved([1600, 1600, 1600, 800], [2, 1, 3, 0]) == [2, 1, 3, 0, 2, 1, 0]
    assert interleaved([5, 5], [1, 0]) == [1, 0]


def test_ofan_has_a_pointer_per_leaf_and_per_pod() -> None:
    table, keys = pointer_table("ofan", TREE)
    # 32 leaves point to 31 others, 32 spines to 7 other pods (section 7 of the paper).
    assert len(keys) == 32 * 31 + 32 * 7
    leaf, spine = TREE.nodes.names.index("leaf1"), TREE.nodes.names.index("spine1")
    assert len(set(table[leaf].tolist()) - {-1}) == 31
    assert len(set(table[spine].tolist()) - {-1}) == 7


@pytest.mark.parametrize("spec", ["ofan", "host-dr", "switch-rr:reshuffle=0,acks=own"])
def test_rotation_fills_all_cores_evenly(spec: str) -> None:
    result = run(spec, one_message(0, 127, 160), TREE)
    for layer in ("leaf-spine", "spine-core", "core-spine", "spine-leaf"):
        for kind, packets in (("data", 160), ("ACKs", 160)):
            of_kind = [
                count
                for link in up(TREE, layer)
                if (count := int(result.link_packets[link]))
                and (result.link_bytes[link] == 4160 * count) == (kind == "data")
            ]
            assert sum(of_kind) == packets
            assert max(of_kind) == min(of_kind), (layer, kind)


def test_reshuffled_round_robin_keeps_every_round_whole() -> None:
    result = run("switch-rr:reshuffle=1,acks=own", one_message(0, 7, 40), CLOS)
    assert result.link_packets[up(CLOS, "leaf-spine", "leaf1")].tolist() == [10] * 4


def test_shortest_queue_avoids_a_slow_link() -> None:
    slow = parse_fabric(
        "leaf-spine:leaves=2,spines=2,hosts=4,rate=100G,delay=500ns,slow=leaf1-spine1:10G"
    )
    load = one_message(0, 7, 400)
    even = run("switch-random", load, slow)
    short = run("jsq", load, slow)
    at = int(slow.find_links("leaf1>spine1")[0])
    assert short.link_bytes[at] < 0.5 * even.link_bytes[at]
    assert short.completion_ps is not None and even.completion_ps is not None
    assert short.completion_ps < even.completion_ps
    adaptive = run("adaptive", load, slow)
    assert adaptive.link_bytes[at] < even.link_bytes[at]


def test_flowlets_move_after_a_gap_only() -> None:
    near = one_message(0, 7, 1)
    for gap, moves in (("1us", True), ("100us", False)):
        load = near._replace(
            flow=np.zeros(24, np.int32),
            flow_start=np.array([0, 24]),
            packets=np.ones(24, np.int64),
            packet_start=np.arange(25),
            packet_bytes=np.full(24, 4160),
            last_bytes=np.full(24, 4160),
            release_ps=np.arange(24) * 50_000_000,
            after=np.full(24, -1, np.int32),
            on=np.zeros(24, np.uint8),
            phase=np.zeros(24, np.int32),
        )
        for name in ("flowlet", "adaptive-flowlet"):
            used = run(f"{name}:gap={gap}", load, CLOS).link_packets[up(CLOS, "leaf-spine")]
            assert (np.count_nonzero(used) > 2) == moves, (name, gap, used)


def messages_of_one_flow(count: int, packets: int, every_ps: int) -> Workload:
    return workload_of(
        np.array([0]),
        np.array([7]),
        np.full(count, packets * 4096),
        None,  # type: ignore[arg-type]
        MODEL,
        flow=np.zeros(count, np.int64),
        release_ps=np.arange(count) * every_ps,
    )


def test_conga_learns_of_a_slow_link_behind_the_spine() -> None:
    # Leaf 1 sees nothing of it: 416 kB are 2 of 8 levels of its links in 160 us, 8 of the slow one.
    slow = parse_fabric(
        "leaf-spine:leaves=2,spines=2,hosts=4,rate=100G,delay=500ns,slow=spine1-leaf2:10G"
    )
    load = messages_of_one_flow(24, 100, 1_000_000_000)
    at = int(slow.find_links("spine1>leaf2")[0])
    assert run("flowlet:gap=500us", load, slow).link_packets[at] > 500
    for seed in range(4):
        learned = run("conga", load, slow, seed).link_packets[at]
        assert learned in (0, 100), learned  # the first flowlet at most
    with pytest.raises(UsageError, match="leaves and spines"):
        run("conga", one_message(0, 127, 4), TREE)


def test_a_flowlet_avoids_a_port_that_was_busy() -> None:
    # 100 packets in 33 us on a line of 100 Gb/s fill 2 samples of 16 us: the average is
    # 7/16 of the rate (band 3), the queue 0, so the quality is 1 against 0.
    load = messages_of_one_flow(2, 100, 40_000_000)
    pair = parse_fabric("leaf-spine:leaves=2,spines=2,hosts=4,rate=100G,delay=500ns")
    for seed in range(6):
        used = run("adaptive-flowlet:gap=4us", load, pair, seed).link_packets[
            up(pair, "leaf-spine", "leaf1")
        ]
        assert used.tolist() == [100, 100], seed
    seldom = [
        run("adaptive-flowlet:gap=4us,load=0", load, pair, seed).link_packets for seed in range(6)
    ]
    assert any(200 in packets[up(pair, "leaf-spine", "leaf1")] for packets in seldom)
    with pytest.raises(UsageError, match="bands"):
        run("adaptive-flowlet:bands=5+10+20", load, pair)


def test_congestion_of_a_link_halves_in_about_five_periods() -> None:
    # X of the paper: 8 levels of rate * tau; an eighth goes every 20 us, rounded up.
    state = np.zeros(30, np.int64)
    state[conga.FULL], state[conga.SENT], state[20] = 20, 21, 1_000_000
    assert conga.level(state, 0, 0, 600_000) == 4
    assert conga.level(state, 0, 5 * 20_000_000, 0) == 2
    assert state[21] == 307_744  # 525,000, 459,375, 401,953, 351,708, 307,744
    assert conga.level(state, 0, 10**12, 0) == 0


def test_host_spray_keeps_an_entropy_value_on_one_path() -> None:
    assert np.count_nonzero(run("host-spray:evs=1", one_message(0, 7, 64), CLOS).link_bytes) == 8
    spread = run("host-spray", one_message(0, 7, 400), CLOS)
    used = spread.link_packets[up(CLOS, "leaf-spine", "leaf1")]
    assert used.sum() == 400 and used.min() > 60


@pytest.mark.parametrize("spec", ["ecmp", "ecmp-qpn", "wcmp", "static", "assign", "subflow:k=4"])
def test_whole_flows_load_the_links_that_their_placement_says(spec: str) -> None:
    fabric = parse_fabric("fat-tree:k=4,rate=100G,delay=500ns")
    load = collective("permutation", fabric, MODEL, 10 * 4096, 3, qps=2)
    outcome = parse_strategy(spec).place(load.traffic, fabric)
    packets = link_loads(outcome.placement, outcome.traffic, len(fabric.links.source))
    flows = len(load.src)
    origin = outcome.origin if outcome.origin is not None else np.arange(2 * flows)
    expected = np.zeros(len(fabric.links.source), np.int64)
    for row, unit in enumerate(origin.tolist()):
        parts = np.flatnonzero(origin == unit)
        number = int(np.flatnonzero(parts == row)[0])
        count = int(load.packets[unit % flows])
        share = count // len(parts) + (number < count % len(parts))
        for link in outcome.placement.links[row]:
            if link >= 0:
                expected[link] += share * (4160 if unit < flows else 64)
    result = run(spec, load, fabric)
    assert result.link_bytes.tolist() == expected.tolist()
    assert (packets.flows[expected > 0] > 0).all()


def test_same_seed_same_packets_other_seed_other_packets() -> None:
    load = collective("permutation", CLOS, MODEL, 1 << 16, 1)
    for name in PACKET_STRATEGIES:
        if parse_packet_strategy(name).reacts:
            continue
        first, again = (run(name, load, CLOS, 5).link_bytes.tolist() for _ in range(2))
        assert first == again, name
    assert run("switch-random", load, CLOS, 5).link_bytes.tolist() != (
        run("switch-random", load, CLOS, 6).link_bytes.tolist()
    )


def test_strategies_say_where_they_do_not_fit() -> None:
    single = parse_fabric("leaf-spine:leaves=1,spines=1,hosts=4")
    planes = parse_fabric("multi-plane:planes=2,leaves=2,spines=2,hosts=2")
    load = one_message(0, 3, 4)
    for spec, fabric, words in (
        ("ofan", single, "tiers"),
        ("host-dr", planes, "one port"),
        ("adaptive:bands=5+x+20", CLOS, "bands"),
        ("switch-rr:acks=none", CLOS, "acks"),
        ("flowlet:gap=3", CLOS, "gap"),
        ("switch-random:k=3", CLOS, "option"),
    ):
        with pytest.raises(UsageError, match=words):
            run(spec, load, fabric)
    with pytest.raises(UsageError, match="--packets"):
        parse_strategy("ofan")
