"""EOS: answers in the shapes that ANTA's and napalm's tests show for eAPI."""

from __future__ import annotations

import pytest
from eos_answers import eos_answers as answers
from switch_lab import LAB, check_damage, check_fabric, read

from rocescope.analyzer.errors import UsageError
from rocescope.discovery.asking import Query
from rocescope.discovery.dialects.eos import EOS


def test_the_fabric(tmp_path):
    found = check_fabric(tmp_path, answers)
    assert set(found.fabric.links.rate_bits_per_second.tolist()) == {100_000_000_000}


def test_damage(tmp_path):
    check_damage(EOS, tmp_path, answers)


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("routeAction", "teleport", "unknown routeAction 'teleport'"),
        ("hardwareProgrammed", None, "hardwareProgrammed"),
        ("vias", None, "expected the key 'vias'"),
    ],
)
def test_an_odd_route_leads_nowhere_and_the_rest_is_read(key, value, told, tmp_path):
    answer = answers(LAB[0])
    route = answer["eos-route.json"]["vrfs"]["default"]["routes"]["10.1.2.0/24"]
    route[key] = value
    if key == "vias":
        del route[key]
    device = read(EOS, tmp_path, LAB[0], answer)
    (line,) = device.unexpected
    assert line.startswith("`show ip route vrf all | json`: leaf1.eos-route.json: .vrfs")
    assert told in line
    assert line.endswith("; this row left out")
    assert device.tables_read
    assert {str(r.network): len(r.hops) for r in device.routes} == {
        "10.0.11.0/30": 1, "10.0.12.0/30": 1, "10.1.1.0/24": 1, "10.1.2.0/24": 0}  # fmt: skip
    assert len(device.interfaces) == 3
    assert len(device.advertised) == 2


def test_weights_bonds_vrfs_tunnels_and_routes_that_hardware_lacks(tmp_path):
    answer = answers(LAB[0])
    routes = answer["eos-route.json"]["vrfs"]
    routes["default"]["routes"]["10.1.2.0/24"]["vias"][1]["weight"] = 3
    routes["default"]["routes"]["10.9.0.0/24"] = {
        "routeAction": "forward", "hardwareProgrammed": False,
        "vias": [{"interface": "Ethernet1", "nexthopAddr": "10.0.11.2"}]}  # fmt: skip
    routes["default"]["routes"]["10.8.0.0/24"] = {
        "routeAction": "forward", "hardwareProgrammed": True,
        "vias": [{"vtepAddr": "10.255.0.1", "vniTag": 5}]}  # fmt: skip
    routes["red"] = {"routes": {}}
    ports = answer["eos-interfaces.json"]["interfaces"]
    ports["Ethernet1"]["interfaceMembership"] = "Member of Port-Channel7"
    ports["Vxlan1"] = {"lineProtocolStatus": "up"}
    device = read(EOS, tmp_path, LAB[0], answer)
    assert not device.unexpected
    by_network = {str(route.network): route for route in device.routes}
    assert [hop.weight for hop in by_network["10.1.2.0/24"].hops] == [1, 3]
    assert "10.9.0.0/24" not in by_network  # the shorter prefix in hardware forwards
    assert not by_network["10.8.0.0/24"].hops[0].usable
    assert not by_network["10.8.0.0/24"].connected
    assert sorted(remark.split(" ")[0] for remark in device.remarks) == [
        "1", "Port-Channel7", "VRF", "VXLAN", "hardware"]  # fmt: skip


def test_a_neighbour_of_a_vlan_is_at_the_port_that_learned_it(tmp_path):
    answer = answers(LAB[0])
    answer["eos-arp.json"] = {
        "ipV4Neighbors": [
            {"interface": "Vlan100, Ethernet3", "hwAddress": "0200.0000.0001"},
            {"interface": "Vlan100, not learned", "hwAddress": "0200.0000.0002"},
        ]
    }
    device = read(EOS, tmp_path, LAB[0], answer)
    assert [(one.port, one.mac) for one in device.resolved] == [("Ethernet3", "02:00:00:00:00:01")]


def test_no_answer_at_all(tmp_path):
    with pytest.raises(UsageError, match="no command was answered"):
        EOS.read(tmp_path, "leaf1")


def test_the_calculator():
    from ipaddress import ip_address

    calculator = EOS.calculator
    query = Query(ip_address("10.1.1.2"), ip_address("10.1.2.2"), 49152, 4791, "Ethernet3")
    assert calculator.command(query) == (
        "show load-balance destination ip ingress-interface Ethernet3 src-ipv4-address 10.1.1.2 "
        "dst-ipv4-address 10.1.2.2 ip-protocol 17 src-l4-port 49152 dst-l4-port 4791"
    )
    assert calculator.port(b"Output Interface: Ethernet43\n") == "Ethernet43"
    assert calculator.port(b"Unable to determine the output interface\n") is None
    assert calculator.port(b"Output Interface: Ethernet43\nOutput Interface: Ethernet44\n") is None


def test_odd_ports_addresses_and_neighbours_cost_themselves_alone(tmp_path):
    answer = answers(LAB[0])
    ports = answer["eos-interfaces.json"]["interfaces"]
    ports["Ethernet1"]["lineProtocolStatus"] = "sideways"
    ports["Ethernet2"]["interfaceAddress"][0]["primaryIp"]["address"] = "10.0.12.x"
    ports["Ethernet3"]["bandwidth"] = -1
    ports["Ethernet4"] = None
    ports["Ethernet5"] = {"lineProtocolStatus": "lowerLayerDown"}
    answer["eos-lldp.json"]["lldpNeighbors"]["Ethernet1"]["lldpNeighborInfo"].append({})
    answer["eos-arp.json"] = {"ipV4Neighbors": [
        {"interface": "Ethernet3", "hwAddress": "0200.0000"},
        {"interface": "Ethernet3", "hwAddress": "0200.0000.0001"}]}  # fmt: skip
    device = read(EOS, tmp_path, LAB[0], answer)
    of_ports, of_neighbours, of_arp = device.unexpected
    assert "unknown state 'sideways'; this row and 3 more left out" in of_ports
    assert "; this row left out" in of_neighbours and "; this row left out" in of_arp
    assert [(p.name, p.up, len(p.addresses), p.bits_per_second) for p in device.interfaces] == [
        ("Ethernet2", True, 0, 10**11), ("Ethernet3", True, 1, 0), ("Ethernet5", False, 0, 0),
    ]  # fmt: skip
    assert [n.system for n in device.advertised] == ["spine1.lab", "spine2.lab"]
    assert [one.mac for one in device.resolved] == ["02:00:00:00:00:01"]


def test_a_table_of_odd_routes_alone_is_unknown(tmp_path):
    answer = answers(LAB[0])
    for route in answer["eos-route.json"]["vrfs"]["default"]["routes"].values():
        route["routeAction"] = "teleport"
    device = read(EOS, tmp_path, LAB[0], answer)
    (line,) = device.unexpected
    assert line.endswith("unknown routeAction 'teleport'")
    assert not device.tables_read
