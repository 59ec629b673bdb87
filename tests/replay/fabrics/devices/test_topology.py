"""Switches, hosts and wires."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

from answers import connected, device, heard, port, route
from hypothesis import given
from hypothesis import strategies as st

from rocescope.replay.fabrics.devices.topology import find_topology


def leaf(*more, **answers):
    return device(
        "leaf",
        connected("10.1.0.0/24", "down1", "10.1.0.1"),
        connected("172.16.0.0/31", "up1", "172.16.0.0"),
        *more,
        **answers,
    )


def spine(*more, **answers):
    return device(
        "spine",
        connected("172.16.0.0/31", "swp1", "172.16.0.1"),
        connected("10.2.0.0/24", "swp2", "10.2.0.1"),
        *more,
        **answers,
    )


def test_devices_with_one_port_and_networks_without_a_neighbour_are_hosts():
    h1 = device("h1", connected("10.1.0.0/24", "eth1", "10.1.0.10"))
    found = find_topology([leaf(), spine(), h1])
    assert found.switches == ["leaf", "spine"]
    assert found.hosts == ["h1", "spine:swp2"]
    assert found.subnets == {
        ip_network("10.1.0.0/24"): "h1",
        ip_network("10.2.0.0/24"): "spine:swp2",
    }
    assert [wire[:4] for wire in found.wires] == [
        ("leaf", "down1", "h1", "eth1"),
        ("leaf", "up1", "spine", "swp1"),
        ("spine", "swp2", "spine:swp2", ""),
    ]


def test_a_host_with_several_ports_is_several_nics():
    networks = [connected(f"10.{i}.0.0/24", f"rdma{i}", f"10.{i}.0.10") for i in (1, 2)]
    h1 = device("h1", *networks, forwards=False)
    found = find_topology([leaf(), spine(), h1])
    assert found.hosts == ["h1:rdma1", "h1:rdma2"]
    assert {str(a): n for a, n in found.owner.items() if n.startswith("h1")} == {
        "10.1.0.10": "h1:rdma1",
        "10.2.0.10": "h1:rdma2",
    }
    # A router of containers forwards too: with a single port it is a host.
    assert "h2" in find_topology([
        leaf(), spine(), device("h2", connected("10.1.0.0/24", "eth1", "10.1.0.9"), forwards=True)
    ]).hosts  # fmt: skip


def test_ports_of_a_vrf_are_left_out():
    interfaces = (port("up1", vrf="blue"), port("down1"))
    advertised = (heard("up1", "spine", "swp1"),)
    found = find_topology([leaf(interfaces=interfaces, advertised=advertised), spine()])
    assert not [wire for wire in found.wires if {wire.a, wire.b} == {"leaf", "spine"}]


def test_an_unnumbered_gateway_without_tables_is_named_by_lldp():
    to_spines = route("10.9.0.0/16", ("fe80::9", "up8"), ("fe80::9", "up9"))
    advertised = (heard("up9", "sp\x1bine[9]", "swp1"),)
    found = find_topology([leaf(to_spines, advertised=advertised), spine()])
    assert found.switches == ["leaf", "spine", "via fe80::9 on leaf up8", "via sp?ine?9?"]
    behind = [wire for wire in found.wires if wire.b == "10.9.0.0/16"]
    assert [wire.a for wire in behind] == found.switches[2:]


def test_numbered_gateways_of_one_switch_without_tables_are_one_switch():
    """LLDP names it on both ports; on a port with two gateways it cannot tell which one it is."""
    networks = [connected(f"172.16.{i}.0/24", f"up{i}", f"172.16.{i}.9") for i in (8, 9, 10)]
    hops = [("172.16.8.1", "up8"), ("172.16.9.1", "up9"), ("172.16.10.1", "up10")]
    over = route("10.9.0.0/16", *hops, ("172.16.10.2", "up10"))
    advertised = tuple(heard(f"up{i}", "spine9", f"swp{i}") for i in (8, 9, 10))
    found = find_topology([leaf(*networks, over, advertised=advertised), spine()])
    assert found.switches[2:] == ["via spine9", "via 172.16.10.1", "via 172.16.10.2"]
    ports = [wire.port_a for wire in found.wires if wire.b == "via spine9"]
    assert ports == ["up8", "up9"]
    assert found.owner[ip_address("172.16.9.1")] == "via spine9"


NESTED = [f"20.{i}.0.0/{n}" for i in range(3) for n in (14, 15, 16) if i % (1 << (16 - n)) == 0] + [
    f"20.{i}.{k}.0/{n}" for i in range(2) for k in range(0, 256, 128) for n in (17, 24, 32)
]


@given(st.permutations(NESTED), st.integers(1, len(NESTED)))
def test_a_network_around_known_ones_is_no_host(networks, count):
    """Against a plain comparison of all pairs; the order of the routes decides."""
    via = ("172.16.0.1", "up1")
    found = find_topology([leaf(*(route(network, via) for network in networks[:count]))])
    expected = []
    for network in map(ip_network, networks[:count]):
        if not any(inner != network and inner.subnet_of(network) for inner in expected):
            expected.append(network)
    told = [host for host in found.hosts if host.startswith("20.")]
    assert told == [str(network) for network in expected]
