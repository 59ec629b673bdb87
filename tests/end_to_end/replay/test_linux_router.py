"""Linux's next hops, predicted and taken: real packets through routers in namespaces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from router_namespaces import LeafSpine, ip, ip_json, leaf_spine

from rocescope.replay.hashing.keys import PacketKeys, packet_keys
from rocescope.replay.hashing.models import bind
from rocescope.replay.hashing.settings import Group, HashSettings, equal_cost

pytestmark = pytest.mark.usefixtures("root")

SEEDS = {1: 0x12345678, 2: 0xDEADBEEF, 3: 7, 4: 0xFFFFFFFF}


@pytest.fixture(scope="module")
def fabric(need_tool: Callable[[str], str]) -> Iterator[LeafSpine]:
    need_tool("ip")
    need_seed_sysctl()
    with leaf_spine(2, 4) as built:
        yield built


def need_seed_sysctl() -> None:
    if not Path("/proc/sys/net/ipv4/fib_multipath_hash_seed").exists():
        pytest.skip("this kernel (before 6.11) has a random key instead of a multipath hash seed")


@pytest.fixture(autouse=True)
def fresh_settings(request: pytest.FixtureRequest) -> None:
    if "fabric" in request.fixturenames:
        built = request.getfixturevalue("fabric")
        for leaf in built.leaves:
            built.hash_by(leaf, 1, SEEDS[leaf])


def flows(source: int, target: int, count: int, family: int, seed: int = 1) -> PacketKeys:
    """Flows from hosts of one leaf to hosts of another; ports, labels and QPs at random."""
    random = np.random.default_rng([seed, source, target, family])
    pattern = "10.{}.{}.{}" if family == 4 else "fd10:{}:{:x}::{:x}"

    def hosts(leaf: int) -> list[str]:
        return [pattern.format(leaf, *random.integers(1, 250, 2)) for _ in range(count)]

    return packet_keys(
        hosts(source),
        hosts(target),
        random.integers(1, 65536, count),
        flow_label=random.integers(0, 1 << 20, count) if family == 6 else 0,
        dest_qp=random.integers(0, 1 << 24, count),
    )


def check(
    fabric: LeafSpine, leaf: int, keys: PacketKeys, group: Group, policy: int = 1, fields: int = 7
) -> None:
    """Every packet left by the predicted uplink and came down from the same spine."""
    left, reached = fabric.uplinks_taken(leaf, keys)
    settings = HashSettings("linux", extra={"policy": policy, "fields": fields})
    predicted = bind(keys, settings).choose(SEEDS[leaf], group)[0]
    np.testing.assert_array_equal(left, predicted)
    np.testing.assert_array_equal(reached, predicted)
    assert len(np.unique(predicted)) > 1


@pytest.mark.thorough
@pytest.mark.parametrize("family", [4, 6])
def test_five_tuple_both_ways_with_a_seed_per_leaf(fabric: LeafSpine, family: int) -> None:
    check(fabric, 1, flows(1, 2, 2000, family), equal_cost(4))
    check(fabric, 2, flows(2, 1, 2000, family), equal_cost(4))


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("policy", [0, 2])
def test_addresses_alone(fabric: LeafSpine, family: int, policy: int) -> None:
    fabric.hash_by(1, policy, SEEDS[1])
    check(fabric, 1, flows(1, 2, 1000, family), equal_cost(4), policy)


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("fields", [0x37, 0x10, 0x2F, 0x3F])
def test_custom_fields(fabric: LeafSpine, family: int, fields: int) -> None:
    fabric.hash_by(1, 3, SEEDS[1], fields)
    check(fabric, 1, flows(1, 2, 600, family), equal_cost(4), 3, fields)


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("weights", [(1, 2, 3, 4), (10, 1, 1, 7)])
def test_weights(fabric: LeafSpine, family: int, weights: tuple[int, ...]) -> None:
    fabric.set_routes(1, weights)
    try:
        check(fabric, 1, flows(1, 2, 1500, family), Group(np.array(weights)))
    finally:
        fabric.set_routes(1)


@pytest.mark.parametrize("family", [4, 6])
def test_link_down_and_up_again(fabric: LeafSpine, family: int) -> None:
    keys = flows(1, 2, 1500, family)
    fabric.link_down(1, 3)
    try:
        check(fabric, 1, keys, Group(np.array([1, 1, 0, 1])))
        fabric.link_up(1, 3)
        check(fabric, 1, keys, equal_cost(4))
    finally:
        fabric.link_up(1, 3)
        fabric.set_routes(1)


@pytest.mark.thorough
@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("kind", ["mpath", "resilient"])
def test_nexthop_groups(fabric: LeafSpine, family: int, kind: str) -> None:
    """`ip nexthop` groups with weights, whole and after the link of a member went down."""
    weights = np.array([3, 1, 4, 1])
    leaf = fabric.leaf(1)
    members = "/".join(f"{s},{weights[s - 1]}" for s in fabric.spines)
    buckets = " type resilient buckets 64" if kind == "resilient" else ""
    prefix = fabric.remote_prefixes(1, family)[0]
    hops = [f"nexthop add id {s} via {fabric.via(1, s, family)} dev up{s}" for s in fabric.spines]
    keys = flows(1, 2, 1500, family)

    def group(weights: np.ndarray) -> Group:
        table = bucket_table(leaf) if kind == "resilient" else None
        assert table is None or len(table) == 64
        return Group(weights, table)

    ip([*hops, f"nexthop add id 10 group {members}{buckets}"], leaf)
    try:
        ip([f"route replace {prefix} nhid 10"], leaf)
        check(fabric, 1, keys, group(weights))
        fabric.link_down(1, 3)
        check(fabric, 1, keys, group(np.array([3, 1, 0, 1])))
    finally:
        fabric.link_up(1, 3)
        fabric.set_routes(1)
        left = [f"nexthop del id {hop['id']}" for hop in ip_json("nexthop", leaf)]
        ip(sorted(left, key=lambda command: command != "nexthop del id 10"), leaf)


def bucket_table(leaf: str) -> np.ndarray:
    """Member of every bucket of resilient group 10, as the kernel shows it."""
    shown = [entry["bucket"] for entry in ip_json("nexthop bucket show id 10", leaf)]
    table = np.zeros(len(shown), np.uint16)
    for bucket in shown:
        table[bucket["index"]] = bucket["nhid"] - 1
    return table


def test_ip_route_get_agrees(fabric: LeafSpine) -> None:
    keys = flows(1, 2, 60, 4)
    text = [[".".join(map(str, a[12:])) for a in column.tolist()] for column in keys[:2]]
    told = [
        fabric.route_get(1, src, dst, port)
        for src, dst, port in zip(*text, keys.sport.tolist(), strict=True)
    ]
    predicted = bind(keys, HashSettings()).choose(SEEDS[1], equal_cost(4))[0]
    assert told == predicted.tolist()


@pytest.mark.thorough
def test_four_leaves(need_tool: Callable[[str], str]) -> None:
    need_tool("ip")
    need_seed_sysctl()
    with leaf_spine(4, 4) as fabric:
        for leaf in fabric.leaves:
            fabric.hash_by(leaf, 1, SEEDS[leaf])
            target = leaf % 4 + 1
            check(fabric, leaf, flows(leaf, target, 1000, 4), equal_cost(4))
            check(fabric, leaf, flows(leaf, target, 300, 6), equal_cost(4))
