"""Junos: answers in the shapes of the Junos XML API reference, as `display json` writes them."""

from __future__ import annotations

import json
import re
from ipaddress import ip_address, ip_interface

import pytest
from switch_lab import BY_NAME, LAB, Switch, check_damage, check_fabric, check_huge, read

from rocescope.discovery.asking import Query
from rocescope.discovery.dialects.junos import JUNOS
from rocescope.discovery.discover import discover_folder
from rocescope.replay.fabrics.devices import Carriers, End


def data(**values: str) -> dict:
    return {key.replace("_", "-"): [{"data": value}] for key, value in values.items()}


def name(number: int) -> str:
    return f"et-0/0/{number - 1}"


def entry(dest: str, kind: str, *hops: dict) -> dict:
    return {**data(rt_destination=dest, destination_type=kind), "nh": list(hops)}


def answers(switch: Switch):
    ports, heard = [], []
    fib = [entry("default", "perm", data(nh_type="rjct"))]
    for port in switch.ports:
        own, here = ip_interface(port.address), name(port.number)
        given = {**data(ifa_local=str(own.ip), ifa_destination=str(own.network))}
        family = {**data(address_family_name="inet"), "interface-address": [given]}
        ports.append(
            {
                **data(
                    name=here,
                    oper_status="up",
                    admin_status="up",
                    speed="100Gbps",
                    current_physical_address=switch.mac(port.number),
                ),
                "logical-interface": [{**data(name=f"{here}.0"), "address-family": [family]}],
            }
        )
        fib += [
            entry(str(own.network), "intf", data(nh_type="rslv", via=f"{here}.0")),
            entry(f"{own.ip}/32", "intf", data(nh_type="locl", to=str(own.ip))),
            entry(f"{own.ip + 1}/32", "dest",
                  data(nh_type="ucst", to="2:0:0:0:0:1", via=f"{here}.0")),
        ]  # fmt: skip
        if port.peer:
            heard.append(data(
                lldp_local_port_id=here, lldp_remote_chassis_id_subtype="Mac address",
                lldp_remote_chassis_id=BY_NAME[port.peer].chassis,
                lldp_remote_port_id_subtype="Interface name",
                lldp_remote_port_id=name(port.peer_port), lldp_remote_system_name=port.peer,
            ))  # fmt: skip
    for network, hops in switch.routes.items():
        several = [data(nh_type="indr"), data(nh_type="ulst")] if len(hops) > 1 else []
        via = [data(nh_type="ucst", to=h.gateway, via=f"{name(h.port)}.0") for h in hops]
        fib.append(entry(network, "user", *several, *via))
    tables = [
        {**data(table_name="default", address_family="Internet"), "rt-entry": fib},
        {**data(table_name="__master.anon__"), "rt-entry": []},
    ]
    six = [{**data(table_name="default"), "rt-entry": []}]
    return {
        "junos-fib.json": {"forwarding-table-information": [{"route-table": tables}]},
        "junos-fib6.json": {"forwarding-table-information": [{"route-table": six}]},
        "junos-interfaces.json": {"interface-information": [{"physical-interface": ports}]},
        "junos-lldp.json": {"lldp-neighbors-information": [{"lldp-neighbor-information": heard}]},
        "junos-arp.json": {"arp-table-information": [{"arp-table-entry": []}]},
        "junos-version.json": {"software-information": [data(host_name=switch.name)]},
    }


def test_the_fabric(tmp_path):
    found = check_fabric(tmp_path, answers)
    assert set(found.fabric.links.rate_bits_per_second.tolist()) == {100_000_000_000}


def test_damage(tmp_path):
    check_damage(JUNOS, tmp_path, answers)


def test_a_huge_rate(tmp_path):
    check_huge(JUNOS, tmp_path, answers(LAB[0]), "junos-interfaces.json", '"100Gbps"')


@pytest.mark.parametrize(
    ("nh", "told"),
    [
        (data(nh_type="warp"), "unknown nh-type 'warp'"),
        (data(nh_type="ucst", to="10.0.11.2"), "expected the key 'via'"),
        (data(nh_type="ucst", to="x", via="et-0/0/0.0"), "expected an address, found 'x'"),
        (data(nh_type="ulst"), "expected next hops"),
    ],
)
def test_an_odd_route_leads_nowhere_and_the_rest_is_read(nh, told, tmp_path):
    answer = answers(LAB[0])
    fib = answer["junos-fib.json"]["forwarding-table-information"][0]["route-table"][0]
    fib["rt-entry"].append(entry("10.9.0.0/16", "user", nh))
    device = read(JUNOS, tmp_path, LAB[0], answer)
    (line,) = device.unexpected
    assert line.startswith("`show route forwarding-table table default family inet | display json`")
    assert told in line
    assert (device.tables_read, len(device.interfaces), len(device.advertised)) == (True, 3, 2)
    hops = {str(r.network): len(r.hops) for r in device.routes}
    assert (hops["10.9.0.0/16"], hops["10.1.2.0/24"]) == (0, 2)


def test_units_aggregates_tunnels_and_ports_by_description(tmp_path):
    answer = answers(LAB[0])
    first = answer["junos-interfaces.json"]["interface-information"][0]["physical-interface"][0]
    first["logical-interface"][0]["address-family"] = [
        data(address_family_name="aenet", ae_bundle_name="ae3.0")
    ]
    unit = {**data(ifa_local="10.3.0.1", ifa_destination="10.3.0/24")}
    first["logical-interface"].append({
        **data(name="et-0/0/0.7"),
        "address-family": [{**data(address_family_name="inet"), "interface-address": [unit]}],
    })  # fmt: skip
    fib = answer["junos-fib.json"]["forwarding-table-information"][0]["route-table"][0]
    fib["rt-entry"] += [
        entry("10.9.0.0/16", "user", data(nh_type="comp")),
        entry("10.3.0.0/24", "intf", data(nh_type="rslv", via="et-0/0/0.7")),
    ]
    heard = answer["junos-lldp.json"]["lldp-neighbors-information"][0]
    heard["lldp-neighbor-information"][0].update(
        data(lldp_remote_port_id_subtype="Locally assigned", lldp_remote_port_id="541",
             lldp_remote_port_description="et-0/0/9.0")
    )  # fmt: skip
    device = read(JUNOS, tmp_path, LAB[0], answer)
    assert not device.unexpected
    ports = {port.name: port for port in device.interfaces}
    assert ports["et-0/0/0"].master == "ae3"
    assert str(ports["et-0/0/0"].addresses[0]) == "10.3.0.1/24"
    assert device.routes[-1].hops[0].device == "et-0/0/0"
    assert device.advertised[0].far_port == "et-0/0/9"
    assert [remark.split(" ")[0] for remark in device.remarks] == ["1", "ae3"]


def renumbered(answers, number):
    """The same answers, with another unit of every port."""
    return json.loads(re.sub(r'(et-0/0/\d+)\.0"', rf'\1.{number}"', json.dumps(answers)))


def test_any_single_unit_is_its_port(tmp_path):
    check_fabric(tmp_path, lambda switch: renumbered(answers(switch), 100))


def test_several_units_of_a_cable_are_subinterfaces_of_its_port(tmp_path):
    answer = answers(LAB[0])
    first = answer["junos-interfaces.json"]["interface-information"][0]["physical-interface"][0]
    given = data(ifa_local="10.3.0.1", ifa_destination="10.3.0/24")
    family = {**data(address_family_name="inet"), "interface-address": [given]}
    first["logical-interface"].append({**data(name="et-0/0/0.7"), "address-family": [family]})
    fib = answer["junos-fib.json"]["forwarding-table-information"][0]["route-table"][0]
    fib["rt-entry"].append(entry("10.3.0.0/24", "intf", data(nh_type="rslv", via="et-0/0/0.7")))
    device = read(JUNOS, tmp_path, LAB[0], answer)
    assert device.remarks == ()
    assert not [port.name for port in device.interfaces if port.vrf]
    assert Carriers([device]).of(End(device.name, "et-0/0/0.7")) == (End(device.name, "et-0/0/0"),)


def test_ports_of_another_vrf_are_left_out_in_one_line(tmp_path):
    """Its network is not in the default table: no lost member, but a remark."""

    def moved(switch):
        answer = answers(switch)
        if switch.name in ("leaf1", "spine1"):
            table = answer["junos-fib.json"]["forwarding-table-information"][0]["route-table"][0]
            gone = [e for e in table["rt-entry"] if "10.0.11." in json.dumps(e)]
            table["rt-entry"] = [e for e in table["rt-entry"] if e not in gone]
        return answer

    for switch in LAB:
        device = read(JUNOS, tmp_path, switch, moved(switch))
        told = [remark for remark in device.remarks if remark.startswith("VRF (not stated)")]
        assert len(told) == (switch.name in ("leaf1", "spine1"))
    remarks = discover_folder(tmp_path, 10**10, 500).report.remarks
    assert "lost member" not in {remark.kind for remark in remarks}


def test_the_calculator():
    query = Query(ip_address("10.1.1.2"), ip_address("10.1.2.2"), 49152, 4791, "et-0/0/2")
    assert JUNOS.calculator.command(query) == (
        "show forwarding-options load-balance ingress-interface et-0/0/2 family inet "
        "source-address 10.1.1.2 destination-address 10.1.2.2 transport-protocol udp "
        "source-port 49152 destination-port 4791"
    )
    assert JUNOS.calculator.port(b"Next-hop interface: et-0/0/1\n") == "et-0/0/1"
    assert JUNOS.calculator.port(b"error: command is not valid on the qfx5120\n") is None


@pytest.mark.parametrize("piece", [b"\n", b" ", b"Interface ", b"(", b": "])
def test_an_answer_of_a_calculator_without_end_takes_no_quadratic_time(piece):
    """A pattern that tries every pair of places would not end here."""
    assert JUNOS.calculator.port(piece * 1_000_000) is None
    assert JUNOS.calculator.port(b"Interface" + piece * 1_000_000 + b"x") is None


# Shapes of other versions, and odd entries: one costs itself, never the answer.


def fib_of(answer):
    return answer["junos-fib.json"]["forwarding-table-information"][0]["route-table"][0]["rt-entry"]


@pytest.mark.parametrize("kind", ["dest", "iddn", "clon", "ifcl", "ignr", "ifdn"])
def test_types_of_ports_without_link_and_of_neighbours(kind, tmp_path):
    answer = answers(LAB[0])
    good = read(JUNOS, tmp_path, LAB[0], answer)
    fib_of(answer).append(entry("10.9.0.0/31", kind, data(nh_type="rslv", via="et-0/0/5.0")))
    device = read(JUNOS, tmp_path, LAB[0], answer)
    assert not device.unexpected
    more = [(str(r.network), r.hops) for r in device.routes[len(good.routes) :]]
    assert more == ([("10.9.0.0/31", ())] if kind == "ifdn" else [])


def test_an_unknown_type_is_told(tmp_path):
    answer = answers(LAB[0])
    fib_of(answer).append(entry("10.9.0.0/31", "warp", data(nh_type="rslv", via="et-0/0/5.0")))
    (line,) = read(JUNOS, tmp_path, LAB[0], answer).unexpected
    assert line.endswith("unknown type 'warp'; this row left out")


@pytest.mark.parametrize("several", [True, False])
def test_answers_of_several_routing_engines(several, tmp_path):
    def wrapped(switch):
        engines = {}
        for suffix, answer in answers(switch).items():
            items = [{**data(re_name="fpc0"), **answer}, data(re_name="fpc1")]
            inner = {"multi-routing-engine-item": items if several else items[0]}
            engines[suffix] = {"multi-routing-engine-results": [inner] if several else inner}
        return engines

    check_fabric(tmp_path, wrapped)


def by_index(switch, of_unit, shown):
    """LLDP names ports by SNMP index: 500 of port 0, 600 of its unit."""
    answer = answers(switch)
    for n, port in enumerate(
        answer["junos-interfaces.json"]["interface-information"][0]["physical-interface"]
    ):
        if shown:
            port.update(data(snmp_index=str(500 + n)))
            port["logical-interface"][0].update(data(snmp_index=str(600 + n)))
    heard = answer["junos-lldp.json"]["lldp-neighbors-information"][0]
    for peer in heard["lldp-neighbor-information"]:
        number = int(peer["lldp-remote-port-id"][0]["data"].rpartition("/")[2])
        peer.update(data(
            lldp_remote_port_id_subtype="Locally assigned",
            lldp_remote_port_id=str(number + (600 if of_unit else 500)),
            lldp_remote_port_description=f"to {switch.name}, ordered in May",
        ))  # fmt: skip
    return answer


@pytest.mark.parametrize("of_unit", [True, False])
def test_lldp_may_name_ports_by_snmp_index(of_unit, tmp_path):
    check_fabric(tmp_path, lambda switch: by_index(switch, of_unit, shown=True))


def test_of_an_index_that_nobody_shows_the_only_cable_between_two_devices_is_meant(tmp_path):
    check_fabric(tmp_path, lambda switch: by_index(switch, of_unit=True, shown=False))


def test_indexes_of_parallel_cables_are_told_once(tmp_path):
    for switch in LAB:
        answer = by_index(switch, of_unit=True, shown=False)
        for peer in answer["junos-lldp.json"]["lldp-neighbors-information"][0][
            "lldp-neighbor-information"
        ]:
            near = switch.name[:-1]
            far = ("spine" if near == "leaf" else "leaf") + "1"
            peer.update(data(lldp_remote_system_name=far, lldp_remote_chassis_id=""))
        for suffix, one in answer.items():
            (tmp_path / f"{switch.name}.{suffix}").write_text(json.dumps(one))
    remarks = discover_folder(tmp_path, 10**10, 500).report.remarks
    told = [(r.device, r.text) for r in remarks if r.kind == "unknown port"]
    assert len(told) == len(set(told)) == 4
    assert (
        told[0][1]
        == "LLDP names ports of spine1 by numbers, which the answers of spine1 do not show"
    )


def test_values_with_line_ends(tmp_path):
    def with_lines(switch):
        return json.loads(
            re.sub(r'("data": )"([^"]*)"', r'\1"\\n\2\\n"', json.dumps(answers(switch)))
        )

    check_fabric(tmp_path, with_lines)


def test_internal_ports_and_odd_ports(tmp_path):
    answer = answers(LAB[0])
    ports = answer["junos-interfaces.json"]["interface-information"][0]["physical-interface"]
    ports.append(data(name=".local.", oper_status="up"))
    assert not read(JUNOS, tmp_path, LAB[0], answer).unexpected
    ports[1].update(data(oper_status="sideways"))
    ports[2]["logical-interface"][0]["address-family"][0]["interface-address"][0].update(
        data(ifa_local="10.1.1.x")
    )
    device = read(JUNOS, tmp_path, LAB[0], answer)
    (line,) = device.unexpected
    assert "unknown state 'sideways'; this row and 1 more left out" in line
    assert [(p.name, len(p.addresses)) for p in device.interfaces] == [
        ("et-0/0/0", 1), ("et-0/0/2", 0)]  # fmt: skip


def test_a_forwarding_table_without_the_default_table_says_so(tmp_path):
    answer = answers(LAB[0])
    tables = answer["junos-fib.json"]["forwarding-table-information"][0]["route-table"]
    tables[0].update(data(table_name="red.inet"))
    device = read(JUNOS, tmp_path, LAB[0], answer)
    (line,) = device.unexpected
    assert line.endswith("expected a route-table 'default'")
    assert not device.tables_read
