"""What each strategy does, by hand and against trying everything."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import replay_traffic
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.errors import UsageError
from rocescope.kernels.kernel import Int, Ints, kernel
from rocescope.replay.compare.specs import generated
from rocescope.replay.fabrics.fabric import Fabric
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.fabrics.routes import with_capacity_weights
from rocescope.replay.flows.loads import LinkLoads, link_loads
from rocescope.replay.flows.placement import place
from rocescope.replay.flows.shares import even_loads
from rocescope.replay.hashing.settings import HashSettings
from rocescope.replay.packets.model.model import LINK, EngineResult, Model, Workload
from rocescope.replay.packets.model.records import table
from rocescope.replay.packets.model.rules import Choice, Rules, choose_at
from rocescope.replay.packets.offers import both_ways, collective, workload_of
from rocescope.replay.packets.open_loop import run_open_loop
from rocescope.replay.strategies import adaptive, conga, ofan
from rocescope.replay.strategies.ofan import interleaved, pointer_table
from rocescope.replay.strategies.registry import (
    PACKET_STRATEGIES,
    parse_packet_strategy,
    parse_strategy,
)
from rocescope.replay.strategies.shortest_queue import NONE, random_least
from rocescope.replay.strategies.subflow import split
from rocescope.replay.traffic.traffic import Traffic

# What each strategy does, by hand and against trying everything.

TREE = parse_fabric("fat-tree:k=4")
CLOS = parse_fabric("leaf-spine:leaves=2,spines=2,hosts=4")


def loads(spec: str, traffic: Traffic, fabric: Fabric) -> LinkLoads:
    outcome = parse_strategy(spec).place(traffic, fabric)
    assert not outcome.placement.dropped.any()
    return link_loads(outcome.placement, outcome.traffic, len(fabric.links.source))


def between(fabric: Fabric) -> np.ndarray:
    return (fabric.links.source < fabric.switches) & (fabric.links.target < fabric.switches)


def shift(fabric: Fabric, by: int) -> Traffic:
    n = fabric.hosts
    return replay_traffic.traffic(fabric, list(range(n)), [(i + by) % n for i in range(n)])


def test_ecmp_is_the_hash_it_is_told() -> None:
    traffic = replay_traffic.random_traffic(TREE, 60)
    outcome = parse_strategy("ecmp:hash=crc32,fields=5-tuple+qpn,seed=0x10,per-switch=equal").place(
        traffic, TREE
    )
    own = [HashSettings("crc32", "5-tuple+qpn", seed=16)] * TREE.switches
    assert (outcome.placement.links == place(traffic, TREE, own).links).all()
    assert outcome.parameters == {
        "hash": "crc32", "fields": "5-tuple+qpn", "seed": "16", "per-switch": "equal",
    }  # fmt: skip


def test_ecmp_qpn_tells_queue_pairs_with_one_port_apart() -> None:
    traffic = replay_traffic.traffic(CLOS, [0] * 64, [4] * 64)
    same_port = traffic.keys._replace(sport=np.full(64, 50_000, np.uint16))
    traffic = Traffic(same_port, *list(vars(traffic).values())[1:])
    up = [CLOS.find_links(f"leaf1>spine{i}")[0] for i in (1, 2)]
    assert sorted(loads("ecmp:hash=crc16-ccitt", traffic, CLOS).flows[up]) == [0, 64]
    assert min(loads("ecmp-qpn", traffic, CLOS).flows[up]) > 15


def test_every_level_of_a_tree_is_even_under_destination_routing() -> None:
    """D-mod-k routing serves every shift permutation without a collision (Zahavi 2009)."""
    for by in range(1, 16):
        found = loads("static:by=destination", shift(TREE, by), TREE)
        assert found.flows.max() == 1
        found = loads("static:by=source", shift(TREE, by), TREE)
        assert found.flows.max() == 1


def test_round_robin_is_even_on_the_way_up() -> None:
    traffic = shift(CLOS, 4)
    up = [CLOS.find_links(f"leaf{leaf}>spine{i}")[0] for leaf in (1, 2) for i in (1, 2)]
    assert loads("static", traffic, CLOS).flows[up].tolist() == [2, 2, 2, 2]


@pytest.mark.parametrize(
    "spec",
    ["ecmp", "ecmp-qpn", "wcmp", "static", "static:by=destination", "static:by=source", "srv6",
     "subflow:k=4", "assign"],
)  # fmt: skip
def test_acks_take_no_turns_of_data(spec: str) -> None:
    traffic = shift(CLOS, 4)
    alone, beside = loads(spec, traffic, CLOS), loads(spec, both_ways(traffic, Model()), CLOS)
    if spec == "assign":  # any placement with the same busiest link
        assert beside.counted.max() == alone.counted.max()
    else:
        assert beside.counted.tolist() == alone.counted.tolist()
    assert beside.flows.sum() == 2 * beside.counted.sum()


def test_wcmp_follows_what_lies_behind() -> None:
    fabric = parse_fabric("leaf-spine:leaves=2,spines=2,hosts=4,slow=leaf2-spine2:100G")
    weighted = with_capacity_weights(fabric)
    # leaf1's own links are equal, but behind spine2 only a quarter gets on.
    assert weighted.group(0, 1)[1].tolist() == [4, 1]
    traffic = replay_traffic.traffic(fabric, [0] * 4000, [4] * 4000)
    up = [fabric.find_links(f"leaf1>spine{i}")[0] for i in (1, 2)]
    assert loads("wcmp", traffic, fabric).flows[up[1]] == pytest.approx(800, abs=120)
    assert loads("ecmp", traffic, fabric).flows[up[1]] == pytest.approx(2000, abs=160)


def test_wcmp_weights_stay_small() -> None:
    fabric = parse_fabric("leaf-spine:leaves=2,spines=2,hosts=4,slow=leaf1-spine2:333333M")
    assert with_capacity_weights(fabric).group(0, 1)[1].tolist() == [255, 212]
    assert len(loads("wcmp:hash=crc32", replay_traffic.random_traffic(fabric, 9), fabric).flows)


def test_wcmp_of_equal_capacities_is_ecmp() -> None:
    traffic = replay_traffic.random_traffic(TREE, 80)
    assert (loads("wcmp", traffic, TREE).flows == loads("ecmp", traffic, TREE).flows).all()


@given(st.integers(0), st.integers(1, 9))
def test_subflows_are_all_of_it(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    cells = [(u, w, int(rng.integers(1, 50))) for u in range(6) for w in range(int(u) % 3)]
    traffic = replay_traffic.traffic(
        CLOS, [0] * 6, [4] * 6, rng.integers(1, 99, 6).tolist(), windows=cells
    )
    traffic.packets[:] = rng.integers(0, 12, 6)
    parts = split(traffic, k)
    begin = np.cumsum([0, *np.minimum(k, np.maximum(traffic.packets, 1))[:-1]])
    for column in ("packets", "wire_bytes"):
        sums = np.add.reduceat(getattr(parts, column), begin)
        assert sums.tolist() == getattr(traffic, column).tolist()
    first = parts.take(begin)
    assert (first.keys.sport == traffic.keys.sport).all()
    assert (first.keys.dest_qp == traffic.keys.dest_qp).all()
    assert parts.windows is not None and traffic.windows is not None
    assert parts.windows.wire_bytes.sum() == traffic.windows.wire_bytes.sum()
    assert (np.diff(parts.windows.unit) >= 0).all()


def busiest(traffic: Traffic, fabric: Fabric, found: LinkLoads) -> float:
    seconds = found.wire_bytes * 8 / fabric.links.rate_bits_per_second
    return float(seconds[between(fabric)].max())


def best_of_all(traffic: Traffic, fabric: Fabric) -> float:
    """The smallest load of the busiest link over every assignment of a leaf-spine fabric."""
    best = np.inf
    spines = fabric.switches - 2
    ends = np.stack([traffic.src_host, traffic.dst_host], 1) // 4
    for spine in itertools.product(range(spines), repeat=len(traffic)):
        busy: dict[int, float] = {}
        for unit, s in enumerate(spine):
            a, b = (f"leaf{leaf + 1}" for leaf in ends[unit])
            for name in (f"{a}>spine{s + 1}", f"spine{s + 1}>{b}"):
                link = int(fabric.find_links(name)[0])
                rate = fabric.links.rate_bits_per_second[link]
                busy[link] = busy.get(link, 0) + traffic.wire_bytes[unit] * 8 / rate
        best = min(best, max(busy.values()))
    return best


@examples(15)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.booleans())
def test_assign_is_the_best_there_is(sizes: list[int], slow: bool) -> None:
    spec = "leaf-spine:leaves=2,spines=3,hosts=4"
    fabric = parse_fabric(spec + (",slow=leaf1-spine3:150G" if slow else ""))
    src = [i % 2 * 4 for i in range(len(sizes))]
    traffic = replay_traffic.traffic(fabric, src, [4 - s for s in src], sizes)
    outcome = parse_strategy("assign").place(traffic, fabric)
    found = link_loads(outcome.placement, traffic, len(fabric.links.source))
    best = best_of_all(traffic, fabric)
    assert busiest(traffic, fabric, found) == pytest.approx(best, rel=1e-6)
    assert outcome.solver is not None
    assert outcome.solver.objective == pytest.approx(best, rel=1e-6)
    assert outcome.solver.bound <= best * (1 + 1e-6)


def test_assign_tells_how_far_it_may_be_from_the_best() -> None:
    traffic = replay_traffic.random_traffic(TREE, 300)
    outcome = parse_strategy("assign:limit=1s").place(traffic, TREE)
    found = link_loads(outcome.placement, traffic, len(TREE.links.source))
    report = outcome.solver
    assert report is not None
    assert report.objective == pytest.approx(busiest(traffic, TREE, found))
    even = even_loads(traffic, TREE, traffic.wire_bytes) * 8 / TREE.links.rate_bits_per_second
    # No assignment beats splitting everything evenly on a full fat tree.
    assert report.bound <= report.objective
    assert report.objective >= even[between(TREE)].max() * (1 - 1e-9)
    assert report.gap == pytest.approx((report.objective - report.bound) / report.objective)
    hashed = [busiest(traffic, TREE, loads(f"ecmp:seed={s}", traffic, TREE)) for s in range(5)]
    assert report.objective < min(hashed)


def test_assign_where_nothing_can_be_chosen() -> None:
    traffic = replay_traffic.traffic(CLOS, [0], [1])  # behind the same leaf
    outcome = parse_strategy("assign").place(traffic, CLOS)
    assert outcome.solver is None and not outcome.placement.dropped.any()


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("hedera", "no strategy 'hedera'"),
        ("ecmp:seed", "not key=value"),
        ("ecmp:seed=1,seed=2", "given twice"),
        ("ecmp:seed=-1", "whole number from 0 to 0xffffffff"),
        ("ecmp:seed=0x100000000", "whole number"),
        ("ecmp:hash=md5", "no hash 'md5'"),
        ("ecmp:hash=crc32,colour=red", "no option 'colour'"),
        ("ecmp:hash=crc32,fields=7-tuple", "unknown hash field"),
        ("ecmp:fields=5-tuple", "policy=0..3"),
        ("ecmp:hash=crc32,reduction=half", "reduction 'half'"),
        ("ecmp:hash=crc32,rotate=32", "rotate=32"),
        ("ecmp:per-switch=some", "different or equal"),
        ("ecmp-qpn:fields=5-tuple", "hashes 5-tuple"),
        ("subflow:k=0", "from 1 to 1,024"),
        ("static:by=luck", "by=luck"),
        ("static:seed=1", "no option 'seed'"),
        ("assign:limit=fast", "assign: limit"),
    ],
)
def test_impossible_strategies(spec: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        parse_strategy(spec).place(replay_traffic.traffic(CLOS, [0], [4]), CLOS)


# The rule that defines each strategy, on cases small enough to be worked out by hand.

THREE = parse_fabric("leaf-spine:leaves=3,spines=4,hosts=4,rate=100G,delay=500ns")
MODEL = Model(pfc=None)


def messages(pairs: list[tuple[int, int]], packets: int) -> Workload:
    src, dst = np.array(pairs).T
    return workload_of(src, dst, np.full(len(pairs), packets * 4096), None, MODEL)  # type: ignore[arg-type]


def run(spec: str, load: Workload, fabric: Fabric = THREE, seed: int = 7) -> EngineResult:
    return run_open_loop(load, fabric, parse_packet_strategy(spec), MODEL, seed)


def links(names: str) -> list[int]:
    return [int(THREE.find_links(names.format(i))[0]) for i in range(1, 5)]


@kernel
def _chosen(address: Int, state: Ints, queues: Ints, at: Choice) -> Int:
    choose = choose_at(address)
    return choose(state, queues, at)


def choose_of(rules: Rules) -> Callable[[Ints, Choice], int]:
    """The compiled choice of a strategy."""
    return lambda queues, at: int(_chosen(rules.choose, rules.state, queues, at))


UP, DOWN_2, DOWN_3 = links("leaf1>spine{}"), links("spine{}>leaf2"), links("spine{}>leaf3")


def order_of(spec: str, packets: int) -> list[int]:
    """Which uplink the first packets take, from what one more packet adds to the links."""
    counts = [run(spec, messages([(0, 4)], n)).link_packets[UP] for n in range(1, packets + 1)]
    steps = np.diff(np.stack([np.zeros(4, np.int64), *counts]), axis=0)
    assert (steps.sum(1) == 1).all()
    return steps.argmax(1).tolist()


def test_round_robin_draws_its_order_anew_every_five_rounds() -> None:
    sent = order_of("switch-rr:acks=own", 64)
    rounds = [tuple(sent[i : i + 4]) for i in range(0, 64, 4)]
    assert all(sorted(one) == [0, 1, 2, 3] for one in rounds)
    fives = [set(rounds[i : i + 5]) for i in (0, 5, 10)]
    assert [len(five) for five in fives] == [1, 1, 1]
    assert len(set.union(*fives)) > 1
    never = order_of("switch-rr:acks=own,reshuffle=0", 24)
    assert never == never[:4] * 6


@pytest.mark.parametrize(
    ("spec", "even"), [("ofan", True), ("host-dr", True), ("switch-rr:reshuffle=0,acks=own", False)]
)
def test_rotation_per_destination_evens_the_links_down(spec: str, even: bool) -> None:
    """Packets to leaf 2 and leaf 3 alternate; one pointer for both sends each over two spines."""
    result = run(spec, messages([(0, 4), (0, 8)], 40))
    assert result.link_packets[UP].tolist() == [20] * 4
    for down in (DOWN_2, DOWN_3):
        expected = [10, 10, 10, 10] if even else [0, 0, 20, 20]
        assert sorted(result.link_packets[down].tolist()) == expected


def test_ofan_keeps_data_and_acks_apart() -> None:
    """Leaf 1 sends 40 packets and 40 ACKs to leaf 2: ten of either over every link."""
    load = messages([(0, 4), (5, 1)], 40)
    assert run("ofan", load).link_bytes[UP].tolist() == [10 * (4160 + 64)] * 4
    assert len(set(run("switch-rr:reshuffle=0", load).link_bytes[UP].tolist())) > 1


def test_ofan_starts_its_pointers_anywhere_in_any_order() -> None:
    tree = parse_fabric("fat-tree:k=8")
    _, keys = ofan.pointer_table("ofan", tree)
    begins, rows = ofan._schedules(tree, keys, 3)
    assert len(begins) == 2 * (32 * 31 + 32 * 7)
    starts = Counter(int(rows[at]) for at in begins)
    orders = Counter(tuple(rows[at + 2 : at + 6].tolist()) for at in begins)
    assert sorted(starts) == [0, 1, 2, 3] and len(orders) == 24
    assert all(abs(n - 608) < 5 * 21.4 for n in starts.values())  # binomial: 2,432 times 1/4
    assert all(abs(n - 101.3) < 5 * 9.9 for n in orders.values())


def test_ofan_weighs_a_link_of_half_the_rate_by_half() -> None:
    slow = parse_fabric(
        "leaf-spine:leaves=3,spines=4,hosts=4,rate=100G,delay=500ns,slow=leaf1-spine4:50G"
    )
    result = run("ofan", messages([(0, 4)], 70), slow)
    assert result.link_packets[UP].tolist() == [20, 20, 20, 10]


def test_shortest_queue_is_exact_and_first_wins_ties() -> None:
    """One host alone always finds every link idle; of two in step the second finds one busy."""
    alone = run("jsq:ties=first", messages([(0, 4)], 50)).link_packets[UP]
    assert alone.tolist() == [50, 0, 0, 0]
    both = run("jsq:ties=first", messages([(0, 4), (1, 5)], 50)).link_packets[UP]
    assert both.tolist() == [50, 50, 0, 0]
    assert run("jsq", messages([(0, 4)], 50)).link_packets[UP].min() > 0


def test_drill_takes_the_shortest_of_two_draws_and_its_memory() -> None:
    rules = parse_packet_strategy("drill").rules(messages([(0, 4)], 1), THREE, 1)
    queues = table(len(THREE.links.source), LINK)
    members = np.arange(4, dtype=np.int32)
    call = choose_of(rules)
    queues["waiting_data"][:4] = 4000, 3000, 2000, 1000
    found = [call(queues, Choice(members, 0, 4, 0, 0, packet, 0, 0)) for packet in range(200)]
    # Never worse than the packet before: once the shortest is found it is remembered.
    assert found == sorted(found) and found[-1] == 3
    queues["waiting_data"][3] = 5000
    later = [call(queues, Choice(members, 0, 4, 0, 0, packet, 0, 0)) for packet in range(300, 500)]
    assert later[-1] == 2 and set(later) <= {0, 1, 2, 3}
    # Without memory the shortest of two uniform draws: 7/16, 5/16, 3/16 and 1/16.
    rules = parse_packet_strategy("drill:memory=0").rules(messages([(0, 4)], 1), THREE, 1)
    queues["waiting_data"][:4] = 4000, 3000, 2000, 1000
    call = choose_of(rules)
    drawn = Counter(call(queues, Choice(members, 0, 4, 0, 0, p, 0, 0)) for p in range(4000))
    assert all(abs(drawn[i] - 4000 * (2 * i + 1) / 16) < 160 for i in range(4))


def test_random_ports_are_uniform() -> None:
    counts = run("switch-random", messages([(0, 4)], 4000)).link_packets[UP]
    assert counts.sum() == 4000
    assert (abs(counts - 1000) < 5 * 27.4).all()  # binomial


@pytest.mark.thorough
def test_adaptive_bands_of_5_10_and_20_percent_are_stale_for_100_ns() -> None:
    rules = parse_packet_strategy("adaptive").rules(messages([(0, 4)], 1), THREE, 1)
    state, queues = rules.state, table(len(THREE.links.source), LINK)
    members = np.arange(4, dtype=np.int32)

    def chosen(time_ps: int, packet: int = 0) -> int:
        at = Choice(members, 0, 4, 0, 0, packet, 0, time_ps)
        return int(adaptive.least_band(state, queues, at))

    # Of 800 kB: bands 2, 3, 0 and 1, each a byte beside the boundary.
    queues["waiting_data"][:4] = 159_999, 160_000, 39_999, 40_000
    assert {chosen(0, packet) for packet in range(50)} == {2}
    queues["waiting_data"][2] = 800_000
    assert chosen(99_999) == 2
    assert chosen(100_000) == 3
    queues["waiting_data"][:4] = 80_000, 79_999, 79_999, 80_000
    assert {chosen(200_000, packet) for packet in range(50)} == {1, 2}


def test_least_levels_keep_what_is_among_them() -> None:
    state = np.array([9, 9, 3, 1, 1, 2, 1], np.int64)

    def chosen(size: int, kept: int) -> set[int]:
        return {int(random_least(state, 2, size, 1, what, 0, kept)) for what in range(50)}

    assert chosen(4, NONE) == {1, 2}
    assert chosen(4, 2) == {2}
    assert chosen(4, 0) == {1, 2}
    assert chosen(4, 4) == {1, 2}  # as good, but not of this group
    assert chosen(1, NONE) == {0}


@pytest.mark.thorough
def test_spraying_in_turns_uses_every_entropy_value_once_per_turn() -> None:
    """A value keeps its link, so that every turn loads the links alike, in another order."""
    sent = order_of("host-spray:evs=8,order=turns", 32)
    turns = [sent[i : i + 8] for i in range(0, 32, 8)]
    assert all(Counter(turn) == Counter(turns[0]) for turn in turns)
    assert len({tuple(turn) for turn in turns}) == 4
    drawn = order_of("host-spray:evs=8", 32)
    assert len({tuple(sorted(Counter(drawn[i : i + 8]).items())) for i in range(0, 32, 8)}) > 1


def test_bands_of_adaptive_are_of_the_buffer_of_the_model() -> None:
    small = Model(buffer_bytes=100_000)
    of_model = parse_packet_strategy("adaptive").under(small)
    load = messages([(0, 4)], 4)
    assert of_model.rules(load, THREE, 1).parameters["buffer"] == "100000"
    given = parse_packet_strategy("adaptive:buffer=1MB").under(small)
    assert given.rules(load, THREE, 1).parameters["buffer"] == "1000000"
    assert parse_packet_strategy("adaptive").under(MODEL).rules(load, THREE, 1).parameters[
        "buffer"
    ] == str(adaptive.BUFFER_BYTES)


def test_static_srv6_takes_the_uplink_that_the_entropy_value_names() -> None:
    traffic = generated("permutation:qps=8,acks=no", THREE, None)
    placed = parse_strategy("srv6").place(traffic, THREE).placement
    crosses = traffic.src_host // 4 != traffic.dst_host // 4
    assert crosses.sum() > 20 and not placed.dropped.any()
    for unit in np.flatnonzero(crosses).tolist():
        leaf, spine = traffic.src_host[unit] // 4 + 1, traffic.keys.sport[unit] % 4 + 1
        (uplink,) = THREE.find_links(f"leaf{leaf}>spine{spine}")
        assert uplink in placed.links[unit]


# What each packet strategy does to packets: loads that can be counted by hand.

PACKET_STRATEGIES_TREE = parse_fabric("fat-tree:k=8,rate=800G,delay=500ns")
PACKET_STRATEGIES_CLOS = parse_fabric("leaf-spine:leaves=2,spines=4,hosts=4,rate=100G,delay=500ns")
PACKET_STRATEGIES_MODEL = Model(pfc=None)


def one_message(src: int, dst: int, packets: int, **columns: object) -> Workload:
    size = np.array([packets * 4096])
    ends = (np.array([src]), np.array([dst]))
    return workload_of(*ends, size, None, PACKET_STRATEGIES_MODEL, **columns)  # type: ignore[arg-type]


def run_packet_strategies(spec: str, load: Workload, fabric: Fabric, seed: int = 7) -> EngineResult:
    return run_open_loop(load, fabric, parse_packet_strategy(spec), PACKET_STRATEGIES_MODEL, seed)


def up(fabric: Fabric, layer: str, source: str = "") -> np.ndarray:
    inside = fabric.links.layer == fabric.layers.index(layer)
    names = np.array([fabric.nodes.names[s] for s in fabric.links.source])
    return np.flatnonzero(inside & ((names == source) if source else True))


def test_interleaved_weighted_round_robin_of_appendix_f() -> None:
    # arXiv 2507.21372, appendix F: weights [1600, 1600, 1600, 800], order P3 P2 P4 P1.
    assert interleaved([1600, 1600, 1600, 800], [2, 1, 3, 0]) == [2, 1, 3, 0, 2, 1, 0]
    assert interleaved([5, 5], [1, 0]) == [1, 0]


def test_ofan_has_a_pointer_per_leaf_and_per_pod() -> None:
    table, keys = pointer_table("ofan", PACKET_STRATEGIES_TREE)
    # 32 leaves point to 31 others, 32 spines to 7 other pods (section 7 of the paper).
    assert len(keys) == 32 * 31 + 32 * 7
    leaf, spine = (
        PACKET_STRATEGIES_TREE.nodes.names.index("leaf1"),
        PACKET_STRATEGIES_TREE.nodes.names.index("spine1"),
    )
    assert len(set(table[leaf].tolist()) - {-1}) == 31
    assert len(set(table[spine].tolist()) - {-1}) == 7


@pytest.mark.parametrize("spec", ["ofan", "host-dr", "switch-rr:reshuffle=0,acks=own"])
def test_rotation_fills_all_cores_evenly(spec: str) -> None:
    result = run_packet_strategies(spec, one_message(0, 127, 160), PACKET_STRATEGIES_TREE)
    for layer in ("leaf-spine", "spine-core", "core-spine", "spine-leaf"):
        for kind, packets in (("data", 160), ("ACKs", 160)):
            of_kind = [
                count
                for link in up(PACKET_STRATEGIES_TREE, layer)
                if (count := int(result.link_packets[link]))
                and (result.link_bytes[link] == 4160 * count) == (kind == "data")
            ]
            assert sum(of_kind) == packets
            assert max(of_kind) == min(of_kind), (layer, kind)


def test_reshuffled_round_robin_keeps_every_round_whole() -> None:
    result = run_packet_strategies(
        "switch-rr:reshuffle=1,acks=own", one_message(0, 7, 40), PACKET_STRATEGIES_CLOS
    )
    assert (
        result.link_packets[up(PACKET_STRATEGIES_CLOS, "leaf-spine", "leaf1")].tolist() == [10] * 4
    )


def test_shortest_queue_avoids_a_slow_link() -> None:
    slow = parse_fabric(
        "leaf-spine:leaves=2,spines=2,hosts=4,rate=100G,delay=500ns,slow=leaf1-spine1:10G"
    )
    load = one_message(0, 7, 400)
    even = run_packet_strategies("switch-random", load, slow)
    short = run_packet_strategies("jsq", load, slow)
    at = int(slow.find_links("leaf1>spine1")[0])
    assert short.link_bytes[at] < 0.5 * even.link_bytes[at]
    assert short.completion_ps is not None and even.completion_ps is not None
    assert short.completion_ps < even.completion_ps
    adaptive = run_packet_strategies("adaptive", load, slow)
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
            used = run_packet_strategies(
                f"{name}:gap={gap}", load, PACKET_STRATEGIES_CLOS
            ).link_packets[up(PACKET_STRATEGIES_CLOS, "leaf-spine")]
            assert (np.count_nonzero(used) > 2) == moves, (name, gap, used)


def messages_of_one_flow(count: int, packets: int, every_ps: int) -> Workload:
    return workload_of(
        np.array([0]),
        np.array([7]),
        np.full(count, packets * 4096),
        None,  # type: ignore[arg-type]
        PACKET_STRATEGIES_MODEL,
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
    assert run_packet_strategies("flowlet:gap=500us", load, slow).link_packets[at] > 500
    for seed in range(4):
        learned = run_packet_strategies("conga", load, slow, seed).link_packets[at]
        assert learned in (0, 100), learned  # the first flowlet at most
    with pytest.raises(UsageError, match="leaves and spines"):
        run_packet_strategies("conga", one_message(0, 127, 4), PACKET_STRATEGIES_TREE)


def test_a_flowlet_avoids_a_port_that_was_busy() -> None:
    # 100 packets in 33 us on a line of 100 Gb/s fill 2 samples of 16 us: the average is
    # 7/16 of the rate (band 3), the queue 0, so the quality is 1 against 0.
    load = messages_of_one_flow(2, 100, 40_000_000)
    pair = parse_fabric("leaf-spine:leaves=2,spines=2,hosts=4,rate=100G,delay=500ns")
    for seed in range(6):
        used = run_packet_strategies("adaptive-flowlet:gap=4us", load, pair, seed).link_packets[
            up(pair, "leaf-spine", "leaf1")
        ]
        assert used.tolist() == [100, 100], seed
    seldom = [
        run_packet_strategies("adaptive-flowlet:gap=4us,load=0", load, pair, seed).link_packets
        for seed in range(6)
    ]
    assert any(200 in packets[up(pair, "leaf-spine", "leaf1")] for packets in seldom)
    with pytest.raises(UsageError, match="bands"):
        run_packet_strategies("adaptive-flowlet:bands=5+10+20", load, pair)


def test_congestion_of_a_link_halves_in_about_five_periods() -> None:
    # X of the paper: 8 levels of rate * tau; an eighth goes every 20 us, rounded up.
    state = np.zeros(30, np.int64)
    state[conga.FULL], state[conga.SENT], state[20] = 20, 21, 1_000_000
    assert conga.level(state, 0, 0, 600_000) == 4
    assert conga.level(state, 0, 5 * 20_000_000, 0) == 2
    assert state[21] == 307_744  # 525,000, 459,375, 401,953, 351,708, 307,744
    assert conga.level(state, 0, 10**12, 0) == 0


def test_host_spray_keeps_an_entropy_value_on_one_path() -> None:
    assert (
        np.count_nonzero(
            run_packet_strategies(
                "host-spray:evs=1", one_message(0, 7, 64), PACKET_STRATEGIES_CLOS
            ).link_bytes
        )
        == 8
    )
    spread = run_packet_strategies("host-spray", one_message(0, 7, 400), PACKET_STRATEGIES_CLOS)
    used = spread.link_packets[up(PACKET_STRATEGIES_CLOS, "leaf-spine", "leaf1")]
    assert used.sum() == 400 and used.min() > 60


@pytest.mark.parametrize("spec", ["ecmp", "ecmp-qpn", "wcmp", "static", "assign", "subflow:k=4"])
def test_whole_flows_load_the_links_that_their_placement_says(spec: str) -> None:
    fabric = parse_fabric("fat-tree:k=4,rate=100G,delay=500ns")
    load = collective("permutation", fabric, PACKET_STRATEGIES_MODEL, 10 * 4096, 3, qps=2)
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
    result = run_packet_strategies(spec, load, fabric)
    assert result.link_bytes.tolist() == expected.tolist()
    assert (packets.flows[expected > 0] > 0).all()


def test_same_seed_same_packets_other_seed_other_packets() -> None:
    load = collective("permutation", PACKET_STRATEGIES_CLOS, PACKET_STRATEGIES_MODEL, 1 << 16, 1)
    for name in PACKET_STRATEGIES:
        if parse_packet_strategy(name).reacts:
            continue
        first, again = (
            run_packet_strategies(name, load, PACKET_STRATEGIES_CLOS, 5).link_bytes.tolist()
            for _ in range(2)
        )
        assert first == again, name
    assert run_packet_strategies(
        "switch-random", load, PACKET_STRATEGIES_CLOS, 5
    ).link_bytes.tolist() != (
        run_packet_strategies("switch-random", load, PACKET_STRATEGIES_CLOS, 6).link_bytes.tolist()
    )


def test_strategies_say_where_they_do_not_fit() -> None:
    single = parse_fabric("leaf-spine:leaves=1,spines=1,hosts=4")
    planes = parse_fabric("multi-plane:planes=2,leaves=2,spines=2,hosts=2")
    load = one_message(0, 3, 4)
    for spec, fabric, words in (
        ("ofan", single, "tiers"),
        ("host-dr", planes, "one port"),
        ("adaptive:bands=5+x+20", PACKET_STRATEGIES_CLOS, "bands"),
        ("switch-rr:acks=none", PACKET_STRATEGIES_CLOS, "acks"),
        ("flowlet:gap=3", PACKET_STRATEGIES_CLOS, "gap"),
        ("switch-random:k=3", PACKET_STRATEGIES_CLOS, "option"),
    ):
        with pytest.raises(UsageError, match=words):
            run_packet_strategies(spec, load, fabric)
    with pytest.raises(UsageError, match="--packets"):
        parse_strategy("ofan")
