"""Seeds of switches from a captured run, against the seed that the switches really used."""

from __future__ import annotations

from dataclasses import replace

import pytest
from captures import DATA

from rocescope.replay.compare.recovered import with_recovered_seeds
from rocescope.replay.compare.request import ReplayRequest
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.hashing.seeding import SeedRange
from rocescope.replay.hashing.settings import HashSettings

FABRIC = parse_fabric("leaf-spine:leaves=2,spines=4,hosts=2")
SPINES = tuple(
    sorted(str(p) for p in (DATA / "leafspine" / "r01_clean_write").glob("leaf1-spine*.pcap.gz"))
)
NEAR = SeedRange(0x12345600, 0x12345700)
TRUE = HashSettings("linux", seed=0x12345678, extra={"policy": 1})
"""The seed of the routers, see topology.json of the run."""


@pytest.mark.thorough
def test_both_leaves_by_the_links_of_one() -> None:
    request = ReplayRequest("", captures=SPINES, map="order")
    fabric, found = with_recovered_seeds(request, FABRIC, NEAR)
    assert found == ["leaf1", "leaf2"]
    own = dict(zip(FABRIC.nodes.names, fabric.hash_settings, strict=False))
    assert own["leaf1"] == own["leaf2"] == TRUE
    assert own["leaf1"].seed_recovered
    assert {own[f"spine{n}"] for n in range(1, 5)} == {None}


def test_settings_of_the_fabric_stay() -> None:
    mine = HashSettings("crc32", seed=7)
    fabric = replace(FABRIC, hash_settings=(mine, *FABRIC.hash_settings[1:]))
    request = ReplayRequest("", captures=SPINES, map="order")
    after, found = with_recovered_seeds(request, fabric, NEAR)
    assert found == ["leaf2"] and after.hash_settings[0] == mine


def test_nothing_is_recovered_without_all_links_of_a_switch() -> None:
    request = ReplayRequest("", captures=SPINES[:3], map="order")
    assert with_recovered_seeds(request, FABRIC, NEAR) == (FABRIC, [])
