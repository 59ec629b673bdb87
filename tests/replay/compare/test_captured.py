"""The loads of captured links, against the seed that the switches really used."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from captures import DATA

from rocescope.replay.compare.captured import as_captured, links_of, with_recovered_seeds
from rocescope.replay.compare.flows import replay
from rocescope.replay.compare.request import ReplayRequest
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.hashing.seeded import SeedRange
from rocescope.replay.hashing.settings import HashSettings
from rocescope.replay.results import AS_CAPTURED
from rocescope.replay.strategies.registry import parse_strategy
from rocescope.replay.traffic.observed import traffic_from_capture

# The loads of captured links, against the seed that the switches really used.

FABRIC = parse_fabric("leaf-spine:leaves=2,spines=4,hosts=2")
CLEAN = sorted(str(path) for path in (DATA / "leafspine" / "r01_clean_write").glob("*.pcap.?z"))
SPINES = [path for path in CLEAN if "spine" in path]
TRUE = "ecmp:hash=linux,policy=1,seed=305419896,per-switch=equal"
"""The seed of the routers, see topology.json of the run."""


def test_loads_are_those_of_the_seed_of_the_switches() -> None:
    traffic = traffic_from_capture(CLEAN, FABRIC, "order")
    found = as_captured(traffic, FABRIC)
    assert found is not None and found.name == AS_CAPTURED
    model = replay(traffic, FABRIC, [parse_strategy(TRUE)], []).strategies[0]
    expected = {link.name: (link.wire_bytes, link.flows) for link in model.links}
    seen = {link.name: (link.wire_bytes, link.flows) for link in found.links}
    assert seen == {name: expected[name] for name in seen}
    assert sorted(seen) == [
        *(f"leaf1>spine{n}" for n in range(1, 5)),
        *(f"spine{n}>leaf1" for n in range(1, 5)),
    ]
    assert found.notes == ["16 links were not captured; they are left out"]


def test_without_a_link_of_a_set_nothing_is_compared() -> None:
    assert as_captured(traffic_from_capture(SPINES[:3], FABRIC, "order"), FABRIC) is None


def test_one_capture_and_unknown_names_have_no_row() -> None:
    assert as_captured(traffic_from_capture(SPINES[:1], FABRIC, "order"), FABRIC) is None
    assert np.all(links_of(["eth0.pcap", "eth1.pcap"], FABRIC) == -1)


@pytest.mark.parametrize("name", ["leaf1-spine2", "spine2_to_leaf1", "a/leaf1-spine2.pcap.gz"])
def test_a_tap_is_named_by_both_ends_of_its_link(name: str) -> None:
    (ways,) = links_of([name], FABRIC)
    assert {FABRIC.link_name(int(link)) for link in ways} == {"leaf1>spine2", "spine2>leaf1"}


# Seeds of switches from a captured run, against the seed that the switches really used.

RECOVERED_FABRIC = parse_fabric("leaf-spine:leaves=2,spines=4,hosts=2")
RECOVERED_SPINES = tuple(
    sorted(str(p) for p in (DATA / "leafspine" / "r01_clean_write").glob("leaf1-spine*.pcap.gz"))
)
NEAR = SeedRange(0x12345600, 0x12345700)
RECOVERED_TRUE = HashSettings("linux", seed=0x12345678, extra={"policy": 1})
"""The seed of the routers, see topology.json of the run."""


@pytest.mark.thorough
def test_both_leaves_by_the_links_of_one() -> None:
    request = ReplayRequest("", captures=RECOVERED_SPINES, map="order")
    fabric, found = with_recovered_seeds(request, RECOVERED_FABRIC, NEAR)
    assert found == ["leaf1", "leaf2"]
    own = dict(zip(RECOVERED_FABRIC.nodes.names, fabric.hash_settings, strict=False))
    assert own["leaf1"] == own["leaf2"] == RECOVERED_TRUE
    assert own["leaf1"].seed_recovered
    assert {own[f"spine{n}"] for n in range(1, 5)} == {None}


def test_settings_of_the_fabric_stay() -> None:
    mine = HashSettings("crc32", seed=7)
    fabric = replace(RECOVERED_FABRIC, hash_settings=(mine, *RECOVERED_FABRIC.hash_settings[1:]))
    request = ReplayRequest("", captures=RECOVERED_SPINES, map="order")
    after, found = with_recovered_seeds(request, fabric, NEAR)
    assert found == ["leaf2"] and after.hash_settings[0] == mine


def test_nothing_is_recovered_without_all_links_of_a_switch() -> None:
    request = ReplayRequest("", captures=RECOVERED_SPINES[:3], map="order")
    assert with_recovered_seeds(request, RECOVERED_FABRIC, NEAR) == (RECOVERED_FABRIC, [])
