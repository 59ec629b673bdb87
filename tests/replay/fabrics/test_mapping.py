"""Which host an address belongs to: by address, order, subnet or file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from captures import DATA

from rocescope.analyzer.errors import UsageError
from rocescope.replay.compare.captured import as_captured, sweep_result
from rocescope.replay.compare.flows import replay
from rocescope.replay.fabrics.fabric import Fabric
from rocescope.replay.fabrics.mapping import map_hosts
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.fabrics.switch_hashing import hash_known, hash_records, switch_hashing
from rocescope.replay.hashing.seeded import SeedRange, switch_seeds
from rocescope.replay.hashing.settings import HashSettings
from rocescope.replay.strategies.registry import parse_strategy
from rocescope.replay.traffic.observed import traffic_from_capture

# Which host an address belongs to: by address, order, subnet or file.

FABRIC = parse_fabric("leaf-spine:leaves=2,hosts=3")


def test_exact_addresses():
    addresses = ["10.0.0.2", "10.0.0.6", "10.0.0.7", "fd10::3", "192.168.1.1"]
    assert map_hosts(addresses, FABRIC).hosts.tolist() == [1, 5, -1, 2, -1]


def test_sorted_addresses_in_order():
    addresses = ["10.9.0.9", "10.9.0.10", "10.8.1.1", "10.9.0.9"]
    assert map_hosts(addresses, FABRIC, "order").hosts.tolist() == [1, 2, 0, 1]
    with pytest.raises(UsageError, match="7 addresses.* only 6 hosts"):
        map_hosts([f"10.0.0.{i}" for i in range(7)], FABRIC, "order")


def test_one_subnet_per_leaf():
    addresses = ["10.2.1.9", "10.1.1.7", "10.1.1.10", "10.2.1.1"]
    assert map_hosts(addresses, FABRIC, "subnets").hosts.tolist() == [4, 0, 1, 3]
    with pytest.raises(UsageError, match="3 subnets.* only 2 leaves; use --map order"):
        map_hosts(["10.1.1.1", "10.1.1.2", "11.1.2.1", "12.1.3.1"], FABRIC, "subnets")
    with pytest.raises(UsageError, match="4 addresses .* only 3 hosts"):
        map_hosts([f"10.1.1.{i}" for i in range(1, 5)], FABRIC, "subnets")


@pytest.mark.parametrize(
    ("addresses", "rule"),
    [
        (
            ["10.2.4.10", "10.1.1.10", "10.1.2.10", "10.2.3.10"],
            "10.1.0.0/16 on leaf1, 10.2.0.0/16 on leaf2",
        ),
        (
            ["fd10:2:4::10", "fd10:1:1::10", "fd10:1:2::10", "fd10:2:3::10"],
            "fd10:1::/32 on leaf1, fd10:2::/32 on leaf2",
        ),
    ],
)
def test_every_host_has_its_own_subnet(addresses, rule):
    """As in the captured run with 2 leaves (topology.json): 10.<leaf>.<host>.10."""
    mapped = map_hosts(addresses, FABRIC, "subnets")
    assert mapped.hosts.tolist() == [4, 0, 1, 3]
    assert mapped.rule == rule


def test_subnets_of_one_host_each_that_no_larger_subnets_join():
    addresses = ["172.16.4.9", "172.16.0.1", "172.16.1.3", "172.16.3.7", "172.16.2.5"]
    mapped = map_hosts(addresses, FABRIC, "subnets")
    assert mapped.hosts.tolist() == [4, 0, 1, 3, 2]
    assert mapped.rule == "sorted addresses, each of its own subnet, on the hosts in order"
    with pytest.raises(UsageError, match="7 addresses.* only 6 hosts"):
        map_hosts([f"172.16.{i}.1" for i in range(7)], FABRIC, "subnets")


def test_a_file_names_hosts_and_leaves(tmp_path):
    file = tmp_path / "hosts.yaml"
    file.write_text("172.16.0.9: host6\n172.16.0.0/24: leaf1\n")
    addresses = ["172.16.0.5", "172.16.0.9", "172.16.0.4", "10.0.0.5", "8.8.8.8"]
    # What the file does not name keeps the address the fabric gives it.
    assert map_hosts(addresses, FABRIC, str(file)).hosts.tolist() == [1, 5, 0, 4, -1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("10.0.0.1: host1\n10.0.0.2: hostX\n", r"hosts.yaml:2: .* no host or leaf 'hostX'"),
        ("10.0.0.1: host1\nten: host2\n", r"hosts.yaml:2: 'ten' is not an address or subnet"),
        ("10.0.0.1: host1\n10.0.0.1: host2\n", r"hosts.yaml:2: '10.0.0.1' is given twice"),
        ("- host1\n", r"hosts.yaml:1: expected addresses"),
        ("a: [\n", r"hosts.yaml:\d: not YAML"),
        ("", "is empty"),
    ],
)
def test_mistakes_are_named_with_their_line(text, message, tmp_path):
    file = tmp_path / "hosts.yaml"
    file.write_text(text)
    with pytest.raises(UsageError, match=message):
        map_hosts(["10.0.0.1"], FABRIC, str(file))


def test_a_file_that_is_not_there():
    with pytest.raises(UsageError, match="cannot read nowhere: .* exact, order, subnets"):
        map_hosts(["10.0.0.1"], FABRIC, "nowhere")


# The hash and seed of every switch, from the fabric, from options, and by default.

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
