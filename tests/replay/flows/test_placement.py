"""Units hop by hop: against a plain walk, with each switch's own settings."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import replay_traffic
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.flows.loads import enter, ingress_ports
from rocescope.replay.flows.placement import Walk, place
from rocescope.replay.hashing.models import bind
from rocescope.replay.hashing.settings import Group, HashSettings

FABRICS = [
    parse_fabric("leaf-spine:leaves=3,spines=4,hosts=3,uplinks=2"),
    parse_fabric("fat-tree:k=4"),
    parse_fabric("multi-plane:planes=2,leaves=2,spines=2,hosts=3"),
    parse_fabric("leaf-spine:leaves=3,spines=4,hosts=2,down=leaf1-spine2+leaf3-spine4"),
]
SETTINGS = [
    HashSettings("linux"),
    HashSettings("crc16-ccitt", "5-tuple+qpn"),
    HashSettings("jenkins", "5-tuple", rotate=3),
    HashSettings("crc32", "5-tuple+ingress"),
]


@pytest.mark.thorough
@examples(25)
@given(st.integers(0, len(FABRICS) - 1), st.lists(st.integers(0, 3), min_size=1), st.integers(0))
def test_every_switch_hashes_in_its_own_way(number: int, kinds: list[int], seed: int) -> None:
    fabric = FABRICS[number]
    rng = np.random.default_rng(seed)
    settings = [
        HashSettings(
            **{
                **{f: getattr(SETTINGS[kind], f) for f in ("model", "field_set", "rotate")},
                "seed": int(rng.integers(0, 1 << 32)),
            }
        )
        for kind in (kinds[i % len(kinds)] for i in range(fabric.switches))
    ]
    traffic = replay_traffic.random_traffic(fabric, 20, seed)
    placement = place(traffic, fabric, settings)
    port = ingress_ports(fabric)
    access = enter(traffic, fabric).access

    @cache
    def choices(switch: int, came_by: int, members: int) -> list[int]:
        """The member that each unit would take at this switch."""
        known = settings[switch].model != "linux"
        bound = bind(traffic.keys, settings[switch], int(port[came_by]) if known else None)
        return bound.choose([settings[switch].seed], Group(np.ones(members, np.int64)))[0].tolist()

    for unit in range(len(traffic)):

        def choose(switch: int, came_by: int, members: int, unit: int = unit) -> int:
            return choices(switch, came_by, members)[unit]

        expected = replay_traffic.plain_walk(
            fabric, int(access[unit]), int(traffic.dst_host[unit]), choose
        )
        links = placement.links[unit]
        assert links[links >= 0].tolist() == expected
    assert not placement.dropped.any()


def test_rows_are_walks_of_their_own() -> None:
    fabric = FABRICS[1]
    traffic = replay_traffic.random_traffic(fabric, 50)
    settings = [HashSettings("linux")] * fabric.switches
    seeds = np.random.default_rng(1).integers(0, 1 << 32, (5, fabric.switches), dtype=np.uint64)
    hops: list[np.ndarray] = []
    Walk(traffic, fabric, settings).run(seeds, lambda _hop, link: hops.append(link.copy()))
    for row in range(5):
        own = [HashSettings("linux", seed=int(seed)) for seed in seeds[row]]
        alone = place(traffic, fabric, own).links
        assert (np.stack([hop[row] for hop in hops], 1) == alone).all()


def test_one_seed_for_all_is_that_seed_at_every_switch() -> None:
    fabric = FABRICS[1]
    traffic = replay_traffic.random_traffic(fabric, 50)
    walk = Walk(traffic, fabric, [HashSettings("crc32")] * fabric.switches)
    found: dict[str, list[np.ndarray]] = {"equal": [], "matrix": []}
    seeds = np.array([3, 99], np.uint64)
    walk.run(seeds, lambda _hop, link: found["equal"].append(link.copy()))
    walk.run(
        np.repeat(seeds[:, None], fabric.switches, 1),
        lambda _hop, link: found["matrix"].append(link.copy()),
    )
    assert (np.stack(found["equal"]) == np.stack(found["matrix"])).all()


def test_what_cannot_be_reached_is_dropped() -> None:
    fabric = parse_fabric("leaf-spine:leaves=2,spines=1,hosts=1,down=leaf2-spine1")
    traffic = replay_traffic.traffic(fabric, [0, 1], [1, 0])
    placement = place(traffic, fabric, [HashSettings()] * fabric.switches)
    assert placement.dropped.tolist() == [True, True]


@pytest.mark.parametrize("host", [-1, 0])
def test_units_without_a_host_are_dropped(host: int) -> None:
    fabric = FABRICS[0]
    traffic = replay_traffic.traffic(fabric, [0], [5])
    traffic.src_host[0] = host
    placement = place(traffic, fabric, [HashSettings()] * fabric.switches)
    assert placement.dropped.tolist() == [host < 0]


def test_a_group_of_tables_that_lost_all_its_links() -> None:
    """Tables of routers keep the group when its links fail; replays and traces continue."""
    routed = parse_fabric("leaf-spine:leaves=2,spines=2,hosts=1")
    fabric = replace(routed, routed=False).down(["leaf2-spine1"])
    units = replay_traffic.traffic(fabric, [0] * 50, [1] * 50)
    placed = place(units, fabric, [HashSettings("linux", seed=1)] * fabric.switches)
    over = fabric.find_links("leaf1>spine1")[0]
    # leaf1 does not know: what it sends to spine1 is lost there.
    assert ((placed.links == over).any(1) == placed.dropped).all()
    assert 0 < placed.dropped.sum() < 50
