"""The hash and seed of every switch, from the fabric, from options, and by default."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from captures import DATA

from rocescope.replay.compare.captured import as_captured, sweep_result
from rocescope.replay.compare.flows import replay
from rocescope.replay.fabrics.fabric import Fabric
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.fabrics.switch_hashing import hash_known, hash_records, switch_hashing
from rocescope.replay.hashing.seeded import SeedRange, switch_seeds
from rocescope.replay.hashing.settings import HashSettings
from rocescope.replay.strategies.registry import parse_strategy
from rocescope.replay.traffic.observed import traffic_from_capture

SEED = 305_419_896
"""The seed of the routers, see topology.json of the run."""
FILES = sorted(str(path) for path in (DATA / "leafspine" / "r01_clean_write").glob("leaf*.pcap.?z"))
LEAVES = f"""\
fabric: leaf-spine:leaves=2,spines=4,hosts=2
nodes:
  leaf1: {{hash: {{model: linux, policy: 1, seed: {SEED}}}}}
  leaf2: {{hash: {{model: linux, policy: 1, seed: {SEED}}}}}
"""
DERIVED = switch_seeds(np.array([0], np.uint64), 6, "different")[0].tolist()


@pytest.fixture
def leaves(tmp_path: Path) -> Fabric:
    """A fabric file with a hash for the leaves only: the spines have one link to each leaf."""
    file = tmp_path / "lab.yaml"
    file.write_text(LEAVES)
    return parse_fabric(str(file))


def test_seeds_of_some_switches_are_used(leaves: Fabric) -> None:
    traffic = traffic_from_capture(FILES, leaves, "order")
    found = as_captured(traffic, leaves)
    assert found is not None
    model = replay(traffic, leaves, [parse_strategy("ecmp")], []).strategies[0]
    expected = {link.name: (link.wire_bytes, link.flows) for link in model.links}
    seen = {link.name: (link.wire_bytes, link.flows) for link in found.links}
    assert len(seen) == 8 and seen == {name: expected[name] for name in seen}
    assert [(one.switch, one.seed, one.seed_from) for one in model.switches] == [
        ("leaf1", SEED, "fabric"),
        ("leaf2", SEED, "fabric"),
        *((f"spine{n}", DERIVED[n + 1], "default") for n in range(1, 5)),
    ]


def test_options_replace_seeds_of_the_fabric(leaves: Fabric) -> None:
    hashing = switch_hashing(leaves, {"seed": "7", "per-switch": "equal"}, "ecmp")
    assert {one.seed for one in hashing.settings} == {7}
    assert {one.seed_from for one in hash_records(leaves, hashing)} == {"option"}


def test_another_hash_keeps_the_seeds(leaves: Fabric) -> None:
    hashing = switch_hashing(leaves, {"hash": "crc32"}, "ecmp")
    assert {one.model for one in hashing.settings} == {"crc32"}
    assert [one.seed for one in hashing.settings] == [SEED, SEED, *DERIVED[2:]]


def test_an_option_keeps_the_other_settings_of_the_switch(leaves: Fabric) -> None:
    own = HashSettings("linux", seed=3, extra={"policy": 3, "fields": 0x37})
    fabric = replace(leaves, hash_settings=(own, *leaves.hash_settings[1:]))
    hashing = switch_hashing(fabric, {"hash": "linux", "policy": "1"}, "ecmp")
    assert hashing.settings[0].extra == {"policy": "1", "fields": 0x37}
    assert hashing.settings[0].seed == 3


def test_a_fabric_without_a_hash_has_no_table_of_switches() -> None:
    fabric = parse_fabric("leaf-spine:leaves=2,spines=4,hosts=2")
    hashing = switch_hashing(fabric, {}, "ecmp")
    assert hash_records(fabric, hashing) == ()
    assert [one.seed for one in hashing.settings] == DERIVED


def test_the_seeds_in_use_are_known_if_all_switches_with_a_choice_have_one(leaves: Fabric) -> None:
    traffic = traffic_from_capture(FILES, leaves, "order")

    def production(fabric: Fabric) -> bool:
        seeds = SeedRange(0, 16)
        found = sweep_result(traffic, fabric, {}, seeds, "equal", "fim-flows", None, [])
        return found.production is not None

    assert production(leaves)
    settings = (None, *leaves.hash_settings[1:])
    assert not production(replace(leaves, hash_settings=settings))


def test_seed_0_of_linux_is_a_secret_random_seed(leaves):
    assert not hash_known(None)
    assert not hash_known(HashSettings("linux"))
    assert hash_known(HashSettings("linux", seed=1))
    assert hash_known(HashSettings("crc32"))
    secret = replace(leaves, hash_settings=(HashSettings("linux"),) * leaves.switches)
    hashing = switch_hashing(secret, {}, "ecmp")
    assert set(hashing.seed_from) == {"default"}
    assert len({one.seed for one in hashing.settings}) == leaves.switches
