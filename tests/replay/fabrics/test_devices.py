"""Records of devices."""

from __future__ import annotations

from ipaddress import ip_network

import pytest
from answers import connected, device, port, route

from rocescope.replay.fabrics.devices import (
    Carriers,
    End,
    connected_networks,
    has_no_cable,
    limits_of,
    management_networks,
    owners,
    parent_of,
)

# Records of devices.


def test_connected_networks_have_one_next_hop_without_gateway():
    assert connected("10.0.0.0/24", "eth1").connected
    assert not route("10.0.0.0/24", ("10.1.0.1", "eth1")).connected
    assert not route("10.0.0.0/24", ("", "eth1"), ("", "eth2")).connected
    assert not route("10.0.0.0/24").connected  # a blackhole


@pytest.mark.parametrize(
    ("port", "parent", "no_cable"),
    [
        ("swp1", "swp1", False),
        ("swp1.100", "swp1", False),
        ("Ethernet1/1", "Ethernet1/1", False),
        ("et-0/0/0.7", "et-0/0/0", False),
        ("Port-Channel11", "Port-Channel11", True),
        ("ae3", "ae3", True),
        ("Eth-Trunk4", "Eth-Trunk4", True),
        ("bond0", "bond0", True),
        ("br_default", "br_default", True),
        ("irb.100", "irb", True),
        ("Vlanif100", "Vlanif100", True),
    ],
)
def test_ports_by_their_names(port, parent, no_cable):
    assert (parent_of(port), has_no_cable(port)) == (parent, no_cable)


def test_carriers_of_ports():
    """A VLAN on a bond in a bridge, one on the bridge, and circles that no device has."""
    ports = (
        port("e1", master="bond0"), port("e2", master="bond0"), port("bond0", master="br0"),
        port("e3", master="br0"), port("br0", kind="bridge"), port("bond0.5"),
        port("vlan10", parent="br0", kind="vlan"), port("Vlan20"),
        port("x", parent="y"), port("y", parent="x"), port("m", master="m"),
    )  # fmt: skip
    one = Carriers([device("r", interfaces=ports)])

    def names(ends):
        return [end.port for end in ends]

    assert names(one.of(End("r", "bond0.5"))) == ["e1", "e2"]
    assert names(one.of(End("r", "vlan10"))) == ["e3", "e1", "e2"]
    assert one.of(End("r", "Vlan20")) == ()
    assert one.of(End("r", "e1")) == (End("r", "e1"),)
    assert one.of(End("r", "x")) == ()
    assert one.of(End("r", "m")) == (End("r", "m"),)
    assert [one.bond(End("r", name)).port for name in ("e1", "bond0.5", "e3")] == [
        "bond0", "bond0", "e3",
    ]  # fmt: skip
    assert one.adapter(End("r", "e1")) == one.adapter(End("r", "vlan10")) == End("r", "br0")
    bridges = {name for name in ("e1", "bond0.5", "vlan10", "br0", "Vlan20")
               if one.is_bridge(End("r", name))}  # fmt: skip
    assert bridges == {"vlan10", "br0", "Vlan20"}


# VRFs, bonds and tunnels in words.


def test_each_is_one_line():
    ports = [
        port("swp1", master="bond0"),
        port("swp2", master="bond0"),
        port("swp3", vrf="red"),
        port("vni10", kind="vxlan"),
        port("vni20", kind="vxlan"),
        port("bond0"),
    ]
    assert [line.split(":")[0] for line in limits_of(ports)] == [
        "VRF red is left out with swp3",
        "bond0 joins swp1, swp2",
        "VXLAN on vni10, vni20",
    ]
    assert not list(limits_of([port("swp1")]))


def test_thousands_are_counted():
    ports = [port(f"e{i}", vrf=f"v{i}", master=f"b{i}") for i in range(20_000)]
    assert list(limits_of(ports)) == [
        "20,000 VRFs are left out with 20,000 ports: only the main table was read",
        "20,000 bonds join 20,000 ports: which a packet takes is not known",
    ]


# Connected networks, and management networks among them.


def management(devices):
    networks = connected_networks(devices)
    return set(management_networks(devices, networks, owners(devices)))


def three(management_port, *more):
    """Three routers in a row, each with a port in a LAN."""
    lan = "192.168.0.0/24"
    return [
        device(
            f"r{i}",
            connected(lan, management_port, f"192.168.0.{i}"),
            connected(f"172.16.{i}.0/31", "up1", f"172.16.{i}.0"),
            connected(f"10.{i}.0.0/24", "down1", f"10.{i}.0.1"),
            *more,
        )
        for i in (1, 2, 3)
    ]


def unread(name, **ports):
    told = tuple(port(p, "", *addresses) for p, addresses in ports.items())
    return device(name, interfaces=told, tables_read=False)


def test_a_device_whose_table_could_not_be_read_is_on_the_networks_of_its_addresses():
    more = {"lo": ["10.255.0.1/32"], "down1": ["fe80::1/64", "10.1.0.1/24"]}
    found = connected_networks([unread("r1", **more)])
    assert {network: [member.end for member in members] for network, members in found.items()} == {
        ip_network("10.1.0.0/24"): [End("r1", "down1")]
    }


def test_a_management_network_stays_one_when_a_table_could_not_be_read():
    r4 = unread("r4", eth0=["192.168.0.4/24"])
    assert management([*three("eth0"), r4]) == {ip_network("192.168.0.0/24")}


@pytest.mark.parametrize("name", ["eth0", "swp48"])
def test_a_network_of_three_that_no_route_uses(name):
    assert management(three(name)) == {ip_network("192.168.0.0/24")}


def test_a_network_that_routes_use_is_part_of_the_fabric():
    assert not management(three("swp48", route("10.9.0.0/16", ("192.168.0.1", "swp48"))))


def test_a_default_route_may_lead_through_a_management_port():
    to_member = route("0.0.0.0/0", ("192.168.0.1", "eth0"))
    assert management(three("eth0", to_member)) == {ip_network("192.168.0.0/24")}
    assert not management(three("swp48", route("0.0.0.0/0", ("192.168.0.1", "swp48"))))


def test_two_devices_need_the_name_of_a_management_port():
    assert management(three("eth0")[:2]) == {ip_network("192.168.0.0/24")}
    assert not management(three("swp48")[:2])


@pytest.mark.parametrize("bridge", ["docker0", "virbr0", "br-0123456789ab"])
def test_bridges_of_containers_are_no_ports(bridge):
    servers = [device(f"s{i}", connected("172.17.0.0/16", bridge, "172.17.0.1")) for i in range(2)]
    assert not connected_networks(servers)


def test_a_network_that_is_all_a_device_has_is_no_management_network():
    hosts = [device(f"h{i}", connected("10.0.0.0/24", "eth0", f"10.0.0.{i}")) for i in range(1, 5)]
    assert not management(hosts)


def test_owners_of_addresses():
    one = device(
        "r1",
        connected("10.1.0.0/24", "down1", "10.1.0.1"),
        interfaces=(port("lo", "", "10.255.0.1/32", "127.0.0.1/8"), port("up1", "", "fe80::1/64")),
    )
    assert {str(a): end for a, end in owners([one]).items()} == {
        "10.1.0.1": End("r1", "down1"),
        "10.255.0.1": End("r1", "lo"),
    }
