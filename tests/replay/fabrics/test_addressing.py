"""Addresses of hosts: counted, explicit, by network."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import numpy as np
import pytest

from rocescope.replay.fabrics.addressing import (
    AddressPlan,
    parse_address,
    parse_interface,
    parse_network,
)
from rocescope.replay.hashing.keys import addresses

PLAN = AddressPlan(
    300,
    {1: (ip_address("192.168.0.7"), ip_address("fd00::7")), 2: (ip_address("fd00::8"),)},
    {ip_network("172.16.0.0/16"): 3, ip_network("172.16.5.0/24"): 4, ip_network("fd05::/64"): 4},
)


@pytest.mark.parametrize(
    ("host", "ipv4", "ipv6"),
    [
        (0, "10.0.0.1", "fd10::1"),
        (1, "192.168.0.7", "fd00::7"),
        (2, "fd00::8", "fd00::8"),
        (299, "10.0.1.44", "fd10::12c"),
    ],
)
def test_addresses_and_back(host, ipv4, ipv6):
    assert str(PLAN.address_of(host)) == ipv4
    assert str(PLAN.address_of(host, ipv6=True)) == ipv6
    assert PLAN.host_of(ip_address(ipv4)) == PLAN.host_of(ip_address(ipv6)) == host


def test_networks_lead_to_hosts_the_longest_first():
    found = [PLAN.host_of(ip_address(a)) for a in ("172.16.9.9", "172.16.5.9", "fd05::99")]
    assert found == [3, 4, 4]


@pytest.mark.parametrize("address", ["10.0.0.2", "10.0.0.3", "10.0.1.45", "9.255.255.255", "::1"])
def test_addresses_of_no_host(address):
    """Hosts with addresses of their own do not have the counted ones."""
    assert PLAN.host_of(ip_address(address)) is None


@pytest.mark.parametrize("ipv6", [False, True])
def test_packed_addresses_are_the_same_as_texts(ipv6):
    hosts = np.array([0, 1, 2, 255, 256, 299])
    texts = [str(PLAN.address_of(int(h), ipv6)) for h in hosts]
    assert PLAN.packed(hosts, ipv6).tolist() == addresses(texts).tolist()


def test_a_host_that_is_not_there():
    with pytest.raises(IndexError):
        PLAN.address_of(300)


@pytest.mark.parametrize(
    ("parse", "plain", "zoned"),
    [
        (parse_address, "fe80::1", "fe80::1%1\nroute del default\n#"),
        (parse_network, "fe80::/64", "fe80::%1\n/64"),
        (parse_interface, "fe80::1/64", "fe80::1%1\n/64"),
    ],
)
def test_a_zone_is_no_part_of_an_address(parse, plain, zoned):
    assert str(parse(plain)) == plain
    with pytest.raises(ValueError, match="has a zone"):
        parse(zoned)
