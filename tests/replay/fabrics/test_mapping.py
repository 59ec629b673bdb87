"""Which host an address belongs to: by address, order, subnet or file."""

from __future__ import annotations

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.replay.fabrics.mapping import map_hosts
from rocescope.replay.fabrics.parse import parse_fabric

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
