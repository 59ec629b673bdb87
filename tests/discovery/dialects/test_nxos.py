"""NX-OS: answers in the shapes of the NX-API reference, and of genie's `show forwarding ipv4`."""

from __future__ import annotations

from ipaddress import ip_address, ip_interface

import pytest
from switch_lab import BY_NAME, LAB, Switch, check_damage, check_fabric, read

from rocescope.discovery.asking import Query
from rocescope.discovery.dialects.nxos import NXOS

RULE = "-" * 18 + "+" + "-" * 41 + "+" + "-" * 22 + "+" + "-" * 17
HEAD = f"""
slot  1
=======


IPv4 routes for table default/base

{RULE}
Prefix            | Next-hop                                | Interface            | Labels
{RULE}
0.0.0.0/32           Drop                                      Null0
127.0.0.0/8          Drop                                      Null0
"""


def dotted(mac: str) -> str:
    digits = mac.replace(":", "")
    return ".".join(digits[i : i + 4] for i in (0, 4, 8))


def table(switch: Switch) -> str:
    text = HEAD
    for port in switch.ports:
        own = ip_interface(port.address)
        text += f"{own.network!s:20} {'Attached':41} Ethernet1/{port.number}\n"
        text += f"{own.ip!s:>17}/32    {'Receive':41} sup-eth1\n".lstrip()
    for network, hops in switch.routes.items():
        start = f"*{network}"
        for hop in hops:
            text += f"{start:20} {hop.gateway:41} Ethernet1/{hop.port}\n"
            start = ""
    return text


def answers(switch: Switch):
    ports = [
        {
            "interface": f"Ethernet1/{port.number}", "state": "up", "admin_state": "up",
            "eth_hw_addr": dotted(switch.mac(port.number)), "eth_bw": "100000000",
            "eth_ip_addr": port.address.partition("/")[0],
            "eth_ip_mask": port.address.partition("/")[2],
        }
        for port in switch.ports
    ]  # fmt: skip
    heard = [
        {
            "l_port_id": f"Eth1/{port.number}", "port_id": f"Ethernet1/{port.peer_port}",
            "sys_name": port.peer, "chassis_id": dotted(BY_NAME[port.peer].mac(port.peer_port)),
            "mgmt_addr": "not advertised",
        }
        for port in switch.ports if port.peer
    ]  # fmt: skip
    return {
        "nxos-fib.text": table(switch),
        "nxos-fib6.text": "slot  1\n=======\n\nIPv6 routes for table default/base\n",
        "nxos-interfaces.json": {"TABLE_interface": {"ROW_interface": ports}},
        "nxos-lldp.json": {"TABLE_nbor_detail": {"ROW_nbor_detail": heard}},
        "nxos-arp.json": {"TABLE_vrf": {"ROW_vrf": {"vrf-name-out": "default"}}},
        "nxos-hostname.json": {"hostname": switch.name},
        "nxos-hash.text": "IPv4/IPv6 ECMP load sharing:\nUniversal-id (Random Seed): 4032\n",
    }


def test_the_fabric(tmp_path):
    found = check_fabric(tmp_path, answers)
    assert set(found.fabric.links.rate_bits_per_second.tolist()) == {100_000_000_000}
    assert found.report.devices[0].hash == "Universal-id (Random Seed): 4032"


def test_damage(tmp_path):
    check_damage(NXOS, tmp_path, answers)


def test_a_table_of_one_row_is_an_object(tmp_path):
    answer = answers(LAB[0])
    table = answer["nxos-lldp.json"]["TABLE_nbor_detail"]
    table["ROW_nbor_detail"] = table["ROW_nbor_detail"][0]
    device = read(NXOS, tmp_path, LAB[0], answer)
    assert [(n.port, n.system, n.far_port) for n in device.advertised] == [
        ("Ethernet1/1", "spine1", "Ethernet1/1")]  # fmt: skip


@pytest.mark.parametrize(("answer", "known"), [({"neigh_count": "0"}, True), ({}, False)])
def test_no_neighbour_is_told_and_not_guessed(answer, known, tmp_path):
    device = read(NXOS, tmp_path, LAB[0], {**answers(LAB[0]), "nxos-lldp.json": answer})
    assert (device.advertised == ()) is known
    assert bool(device.unexpected) is not known


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("% Invalid command at '^' marker.", "expected prefix, next hop and port"),
        ("10.1.2.0/24  10.0.11.999  Ethernet1/1", "expected an address"),
        ("* 10.9.0.0/24  10.0.11.2  Ethernet1/1", "expected prefix, next hop and port"),
        ("# 10.9.0.0/24  10.0.11.2  Ethernet1/1", "expected prefix, next hop and port"),
        ("IPv4 routes for table red/base", "unknown table 'red/base'"),
    ],
)
def test_an_odd_line_costs_this_line_and_the_rest_is_read(text, told, tmp_path):
    answer = answers(LAB[0])
    answer["nxos-fib.text"] += text + "\n"
    device = read(NXOS, tmp_path, LAB[0], answer)
    (line,) = device.unexpected
    number = answer["nxos-fib.text"].count("\n")
    where = f"`show forwarding ipv4 route vrf default`: leaf1.nxos-fib.text:{number}: "
    assert line.startswith(where)
    assert told in line
    assert (device.tables_read, len(device.interfaces), len(device.advertised)) == (True, 3, 2)
    hops = {str(r.network): len(r.hops) for r in device.routes}
    assert hops.pop("10.1.2.0/24") == (0 if text.startswith("10.1.2.0/24") else 2)
    assert {net for net, n in hops.items() if n} == {"10.0.11.0/30", "10.0.12.0/30", "10.1.1.0/24"}


def test_line_cards_that_differ_and_labels_are_told(tmp_path):
    answer = answers(LAB[0])
    second = HEAD.replace("slot  1", "slot  2")
    label = "10.9.0.0/24          10.0.11.2         Ethernet1/1    vni: 501003\n"
    answer["nxos-fib.text"] += label + second
    device = read(NXOS, tmp_path, LAB[0], answer)
    assert not device.unexpected
    assert [remark.split(" ")[0:2] for remark in device.remarks] == [
        ["its", "line"], ["1", "routes"]]  # fmt: skip
    by_network = {str(route.network): route for route in device.routes}
    assert not by_network["10.9.0.0/24"].hops[0].usable
    assert by_network["127.0.0.0/8"].hops == ()
    assert len(by_network["10.1.2.0/24"].hops) == 2


def test_the_calculator():
    query = Query(ip_address("10.1.1.2"), ip_address("10.1.2.2"), 49152, 4791, "Ethernet1/3")
    assert NXOS.calculator.command(query) == (
        "show routing hash 10.1.1.2 10.1.2.2 ip-proto 17 49152 4791 in-interface Ethernet1/3"
    )
    said = b"Load-share parameters used for software forwarding:\nload-share mode: x\n"
    assert NXOS.calculator.port(said + b"Out Interface: Eth1/2\n") == "Ethernet1/2"
    assert NXOS.calculator.port(b"Out Interface: port-channel10\n") == "port-channel10"
    assert NXOS.calculator.port(said) is None
    assert NXOS.calculator.port(b"Out Interface: Eth1/2\nOut Interface: Eth1/3\n") is None


# Rows of other shapes, and odd rows: one costs itself, never the answer.


@pytest.mark.parametrize("port", ["", "--"])
def test_the_port_of_an_attached_network_is_that_with_its_address(port, tmp_path):
    def without(switch):
        answer = answers(switch)
        text = answer["nxos-fib.text"]
        for number in (1, 2, 3):
            text = text.replace(f"{'Attached':41} Ethernet1/{number}", f"{'Attached':41} {port}  ")
        return {**answer, "nxos-fib.text": text}

    check_fabric(tmp_path, without)


def test_an_attached_network_on_no_port_is_told(tmp_path):
    answer = answers(LAB[0])
    answer["nxos-fib.text"] += "10.9.9.0/24          Attached\n"
    device = read(NXOS, tmp_path, LAB[0], answer)
    assert not device.unexpected
    assert device.remarks == ("1 attached networks, such as 10.9.9.0/24, are on no known port",)
    assert {str(r.network): r.hops for r in device.routes}["10.9.9.0/24"] == ()


def test_routes_that_hardware_has_in_part_are_told(tmp_path):
    answer = answers(LAB[0])
    text = answer["nxos-fib.text"].replace("Ethernet1/2\n", f"Ethernet1/2 {'':40}Yes\n")
    answer["nxos-fib.text"] = text
    device = read(NXOS, tmp_path, LAB[0], answer)
    assert not device.unexpected
    (told,) = device.remarks
    assert told == "hardware has 2 routes only in part, such as 10.0.12.0/30"
    assert len({str(r.network): r for r in device.routes}["10.1.2.0/24"].hops) == 2


def test_a_long_row_in_two_lines(tmp_path):
    answer = answers(LAB[0])
    answer["nxos-fib6.text"] += "2001:db8:0:1:2:3:4:0/112\n     2001:db8::1   Ethernet1/1\n"
    device = read(NXOS, tmp_path, LAB[0], answer)
    assert not device.unexpected
    assert [str(hop.gateway) for hop in device.routes[-1].hops] == ["2001:db8::1"]


@pytest.mark.parametrize("gateway", ["10.0.12.x", "10.0.12.2   \x1b[2J"])
def test_a_group_with_an_odd_member_leads_nowhere(gateway, tmp_path):
    answer = answers(LAB[0])
    answer["nxos-fib.text"] = answer["nxos-fib.text"].replace("10.0.12.2 ", f"{gateway} ")
    device = read(NXOS, tmp_path, LAB[0], answer)
    (line,) = device.unexpected
    assert line.isprintable()
    assert {str(r.network): r.hops for r in device.routes}["10.1.2.0/24"] == ()


@pytest.mark.parametrize(
    ("row", "up"),
    [
        ({"svi_line_proto": "down", "svi_admin_state": "administratively down"}, False),
        ({"svi_line_proto": "administratively down"}, False),
        ({"svi_admin_state": "administratively down"}, False),
        ({"svi_line_proto": "up", "svi_admin_state": "up"}, True),
    ],
)
def test_states_of_vlan_ports(row, up, tmp_path):
    answer = answers(LAB[0])
    ports = answer["nxos-interfaces.json"]["TABLE_interface"]["ROW_interface"]
    address = {"svi_ip_addr": "10.9.0.1", "svi_ip_mask": "24"}
    ports.append({"interface": "Vlan7", **row, **address})
    device = read(NXOS, tmp_path, LAB[0], answer)
    assert not device.unexpected
    assert [(p.name, p.up) for p in device.interfaces[3:]] == [("Vlan7", up)]
    assert str(device.interfaces[3].addresses[0]) == "10.9.0.1/24"


def test_odd_rows_of_ports_and_neighbours_are_counted(tmp_path):
    answer = answers(LAB[0])
    ports = answer["nxos-interfaces.json"]["TABLE_interface"]["ROW_interface"]
    ports[0]["state"] = "sideways"
    ports[1]["eth_ip_addr"], ports[2]["eth_bw"] = "10.0.0.999", "fast"
    heard = answer["nxos-lldp.json"]["TABLE_nbor_detail"]["ROW_nbor_detail"]
    del heard[1]["port_id"]
    device = read(NXOS, tmp_path, LAB[0], answer)
    of_ports, of_neighbours = device.unexpected
    assert "unknown state 'sideways'; this row and 2 more left out" in of_ports
    assert "expected the key 'port_id'; this row left out" in of_neighbours
    assert [(p.name, len(p.addresses), p.bits_per_second) for p in device.interfaces] == [
        ("Ethernet1/2", 0, 10**11), ("Ethernet1/3", 1, 0)]  # fmt: skip
    assert [n.port for n in device.advertised] == ["Ethernet1/1"]


@pytest.mark.parametrize("suffix", ["nxos-arp.json", "nxos-lldp.json", "nxos-interfaces.json"])
def test_an_answer_of_which_nothing_is_understood_says_so(suffix, tmp_path):
    device = read(NXOS, tmp_path, LAB[0], {**answers(LAB[0]), suffix: {"body": "x"}})
    (line,) = device.unexpected
    assert suffix in line and "expected" in line
