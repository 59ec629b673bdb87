"""What each strategy does, by hand and against trying everything."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import replay_traffic
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.errors import UsageError
from rocescope.replay.fabrics.fabric import Fabric
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.fabrics.routes import with_capacity_weights
from rocescope.replay.flows.loads import LinkLoads, link_loads
from rocescope.replay.flows.placement import place
from rocescope.replay.flows.shares import even_loads
from rocescope.replay.hashing.settings import HashSettings
from rocescope.replay.strategies.registry import parse_strategy
from rocescope.replay.strategies.subflow import split
from rocescope.replay.traffic.traffic import Traffic

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
