"""SONiC: answers in the shapes of sonic-swss's schema and of ASIC_DB dumps in sonic-utilities."""

from __future__ import annotations

import json
from ipaddress import ip_interface

import pytest
from switch_lab import BY_NAME, LAB, Switch, check_damage, check_fabric, check_huge, read

from rocescope.discovery.dialects.sonic import SONIC

VR = "oid:0x3000000000022"


def port(number: int) -> str:
    return f"Ethernet{4 * (number - 1)}"


def hashed(**fields: str) -> dict:
    return {"expireat": 1550863898.6, "ttl": -0.001, "type": "hash", "value": fields}


def sai(kind: str, key: str, **fields: str) -> tuple[str, dict]:
    prefix = f"SAI_{kind}_ATTR_"
    return f"ASIC_STATE:SAI_OBJECT_TYPE_{kind}:{key}", hashed(
        **{prefix + name: value for name, value in fields.items()}
    )


def route(dest: str, vr: str = VR, **fields: str) -> tuple[str, dict]:
    key = json.dumps({"dest": dest, "switch_id": "oid:0x21000000000000", "vr": vr})
    return sai("ROUTE_ENTRY", key, **fields)


def oid(kind: int, number: int) -> str:
    return f"oid:0x{kind:x}0000000000{number:02x}"


def answers(switch: Switch):
    asic = dict([
        sai("SWITCH", "oid:0x21000000000000", SRC_MAC_ADDRESS=switch.chassis.upper(),
            ECMP_DEFAULT_HASH_SEED="17", ECMP_HASH_IPV4="oid:0x1c000000000000"),
        sai("HASH", "oid:0x1c000000000000", NATIVE_HASH_FIELD_LIST=(
            "2:SAI_NATIVE_HASH_FIELD_SRC_IP,SAI_NATIVE_HASH_FIELD_DST_IP")),
    ])  # fmt: skip
    appl = {
        "PORT_TABLE:PortConfigDone": hashed(count="3"),
        "LLDP_LOC_CHASSIS": hashed(
            lldp_loc_sys_name=switch.name, lldp_loc_chassis_id=switch.chassis
        ),
    }
    for one in switch.ports:
        n, name, own = one.number, port(one.number), ip_interface(one.address)
        appl[f"PORT_TABLE:{name}"] = hashed(oper_status="up", admin_status="up", speed="100000")
        appl[f"INTF_TABLE:{name}"] = hashed(NULL="NULL")
        appl[f"INTF_TABLE:{name}:{own}"] = hashed(scope="global", family="IPv4")
        asic |= [
            sai("HOSTIF", oid(13, n), NAME=name, OBJ_ID=oid(1, n)),
            sai("ROUTER_INTERFACE", oid(6, n), PORT_ID=oid(1, n),
                TYPE="SAI_ROUTER_INTERFACE_TYPE_PORT", VIRTUAL_ROUTER_ID=VR),
            route(str(own.network), NEXT_HOP_ID=oid(6, n)),
            route(f"{own.ip}/32", NEXT_HOP_ID=oid(1, 0)),
        ]  # fmt: skip
        if one.peer:
            appl[f"LLDP_ENTRY_TABLE:{name}"] = hashed(
                lldp_rem_sys_name=one.peer,
                lldp_rem_port_id=port(one.peer_port),
                lldp_rem_port_id_subtype="7",
                lldp_rem_chassis_id=BY_NAME[one.peer].chassis,
                lldp_rem_man_addr="",
            )
    number = 0
    for network, hops in switch.routes.items():
        group = oid(5, number)
        kind = "SAI_NEXT_HOP_GROUP_TYPE_DYNAMIC_UNORDERED_ECMP"
        asic |= [sai("NEXT_HOP_GROUP", group, TYPE=kind), route(network, NEXT_HOP_ID=group)]
        for hop in hops:
            number += 1
            asic |= [
                sai("NEXT_HOP", oid(4, number), TYPE="SAI_NEXT_HOP_TYPE_IP", IP=hop.gateway,
                    ROUTER_INTERFACE_ID=oid(6, hop.port)),
                sai("NEXT_HOP_GROUP_MEMBER", oid(45, number), NEXT_HOP_GROUP_ID=group,
                    NEXT_HOP_ID=oid(4, number), WEIGHT=str(hop.weight)),
            ]  # fmt: skip
    return {"sonic-asic.json": asic, "sonic-appl.json": appl}


def test_the_fabric(tmp_path):
    found = check_fabric(tmp_path, answers)
    assert set(found.fabric.links.rate_bits_per_second.tolist()) == {100_000_000_000}
    assert found.report.devices[0].hash == "seed 17, fields SRC_IP,DST_IP"


def test_lldp_may_name_the_alias_of_a_port(tmp_path):
    def aliased(switch):
        answer = answers(switch)
        for key, one in answer["sonic-appl.json"].items():
            if key.startswith("PORT_TABLE:Ethernet"):
                one["value"]["alias"] = "Eth" + key.removeprefix("PORT_TABLE:Ethernet")
            if key.startswith("LLDP_ENTRY_TABLE:"):
                far = one["value"]["lldp_rem_port_id"]
                one["value"]["lldp_rem_port_id"] = far.replace("Ethernet", "Eth")
        return answer

    check_fabric(tmp_path, aliased)


def test_damage(tmp_path):
    check_damage(SONIC, tmp_path, answers)


def test_a_huge_rate(tmp_path):
    check_huge(SONIC, tmp_path, answers(LAB[0]), "sonic-appl.json", '"speed": "100000"')


def test_a_chip_that_lost_a_member_is_seen(tmp_path):
    """orchagent removes a next hop from the chip's group; APPL_DB would still have it."""
    from rocescope.discovery.discover import discover_folder

    check_fabric(tmp_path, answers)
    answer = answers(LAB[0])
    members = [key for key in answer["sonic-asic.json"] if "GROUP_MEMBER" in key]
    del answer["sonic-asic.json"][members[1]]
    read(SONIC, tmp_path, LAB[0], answer)
    (lost,) = discover_folder(tmp_path, 1, 0).report.remarks
    assert (lost.kind, lost.device) == ("lost member", "leaf1")
    assert lost.text.startswith("Ethernet4 to spine2 Ethernet0 has a link and its LLDP peer")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"SAI_ROUTE_ENTRY_ATTR_PACKET_ACTION": "SAI_PACKET_ACTION_X"}, "unknown action"),
        ({"SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID": "oid:0x500000000000ff"}, "unknown object"),
    ],
)
def test_odd_routes(change, told, tmp_path):
    answer = answers(LAB[0])
    key = next(k for k in answer["sonic-asic.json"] if "10.1.2.0/24" in k)
    answer["sonic-asic.json"][key]["value"].update(change)
    device = read(SONIC, tmp_path, LAB[0], answer)
    (line,) = device.unexpected
    assert line.startswith("`sonic-db-dump -n ASIC_DB -y`: leaf1.sonic-asic.json: .ASIC_STATE")
    assert told in line
    assert (device.tables_read, len(device.advertised)) == (True, 2)
    hops = {str(r.network): len(r.hops) for r in device.routes}
    assert (hops["10.1.2.0/24"], hops["10.1.1.0/24"]) == (0, 1)


def test_weights_lags_vlans_vrfs_and_adaptive_routing(tmp_path):
    answer = answers(LAB[0])
    asic, appl = answer["sonic-asic.json"], answer["sonic-appl.json"]
    member = [key for key in asic if "GROUP_MEMBER" in key][1]
    asic[member]["value"]["SAI_NEXT_HOP_GROUP_MEMBER_ATTR_WEIGHT"] = "3"
    appl["LAG_TABLE:PortChannel1"] = hashed(oper_status="up")
    appl["LAG_MEMBER_TABLE:PortChannel1:Ethernet0"] = hashed(status="enabled")
    appl["VLAN_MEMBER_TABLE:Vlan100:Ethernet8"] = hashed(tagging_mode="untagged")
    asic |= [
        sai("LAG_MEMBER", oid(27, 1), LAG_ID=oid(2, 1), PORT_ID=oid(1, 1)),
        sai("VLAN", oid(26, 1), VLAN_ID="100"),
        sai("ROUTER_INTERFACE", oid(6, 1), PORT_ID=oid(2, 1),
            TYPE="SAI_ROUTER_INTERFACE_TYPE_PORT"),
        sai("ROUTER_INTERFACE", oid(6, 3), VLAN_ID=oid(26, 1),
            TYPE="SAI_ROUTER_INTERFACE_TYPE_VLAN"),
        sai("ARS", oid(99, 1)),
        route("10.7.0.0/16", vr="oid:0x3000000000999", NEXT_HOP_ID=oid(6, 1)),
        route("10.6.0.0/16", PACKET_ACTION="SAI_PACKET_ACTION_DROP"),
    ]  # fmt: skip
    device = read(SONIC, tmp_path, LAB[0], answer)
    assert not device.unexpected
    by_network = {str(route.network): route for route in device.routes}
    assert [(h.device, h.weight) for h in by_network["10.1.2.0/24"].hops] == [
        ("PortChannel1", 1), ("Ethernet4", 3)]  # fmt: skip
    assert by_network["10.1.1.0/24"].hops[0].device == "Vlan100"
    assert by_network["10.6.0.0/16"].hops == ()
    assert "10.7.0.0/16" not in by_network
    told = " ".join(device.remarks)
    for words in ("2 virtual routers", "adaptive routing", "PortChannel1 joins Ethernet0"):
        assert words in told


# Objects without attributes, and odd entries: one costs itself, never the database.


def test_objects_without_attributes_that_nothing_names(tmp_path):
    """Redis holds such an object as `{"NULL": "NULL"}`: the default VLAN of every switch is one."""

    def with_nulls(switch):
        answer = answers(switch)
        for kind in ("VLAN", "HOSTIF", "LAG", "LAG_MEMBER", "NEXT_HOP", "NEXT_HOP_GROUP", "HASH",
                     "NEXT_HOP_GROUP_MEMBER", "ROUTER_INTERFACE", "VIRTUAL_ROUTER"):  # fmt: skip
            answer["sonic-asic.json"][f"ASIC_STATE:SAI_OBJECT_TYPE_{kind}:oid:0x99"] = hashed(
                NULL="NULL"
            )
        answer["sonic-appl.json"]["VLAN_TABLE:Vlan1"] = hashed(NULL="NULL")
        return answer

    check_fabric(tmp_path, with_nulls)


@pytest.mark.parametrize("kind", ["NEXT_HOP", "ROUTER_INTERFACE", "NEXT_HOP_GROUP"])
def test_routes_over_objects_without_attributes_lead_nowhere(kind, tmp_path):
    answer = answers(LAB[0])
    asic = answer["sonic-asic.json"]
    key = next(k for k in asic if k.startswith(f"ASIC_STATE:SAI_OBJECT_TYPE_{kind}:"))
    asic[key] = hashed(NULL="NULL")
    device = read(SONIC, tmp_path, LAB[0], answer)
    assert device.tables_read
    (line,) = device.unexpected
    assert "expected the key 'SAI_" in line
    assert {str(r.network): r.hops for r in device.routes}["10.1.2.0/24"] == ()


def test_a_group_without_members_leads_nowhere(tmp_path):
    answer = answers(LAB[0])
    asic = answer["sonic-asic.json"]
    for key in [k for k in asic if "GROUP_MEMBER" in k]:
        del asic[key]
    device = read(SONIC, tmp_path, LAB[0], answer)
    assert not device.unexpected
    assert {str(r.network): r.hops for r in device.routes}["10.1.2.0/24"] == ()


def test_the_main_table_is_that_of_the_router_of_the_switch(tmp_path):
    answer = answers(LAB[0])
    asic = answer["sonic-asic.json"]
    key = "ASIC_STATE:SAI_OBJECT_TYPE_SWITCH:oid:0x21000000000000"
    asic[key]["value"]["SAI_SWITCH_ATTR_DEFAULT_VIRTUAL_ROUTER_ID"] = VR
    asic |= [route("10.7.0.0/16", vr="oid:0x3000000000001", NEXT_HOP_ID=oid(6, 1))]
    device = read(SONIC, tmp_path, LAB[0], answer)
    networks = {str(r.network) for r in device.routes}
    assert "10.1.2.0/24" in networks and "10.7.0.0/16" not in networks
    assert "2 virtual routers" in " ".join(device.remarks)


def test_odd_entries_are_counted(tmp_path):
    answer = answers(LAB[0])
    appl = answer["sonic-appl.json"]
    appl["PORT_TABLE:Ethernet0"]["value"]["oper_status"] = "sideways"
    appl["PORT_TABLE:Ethernet4"]["value"]["speed"] = "fast"
    appl["NEIGH_TABLE:Ethernet4:10.0.12.2"] = hashed(neigh="00:11", family="IPv4")
    appl["LLDP_ENTRY_TABLE:Ethernet4"] = {"type": "list", "value": []}
    device = read(SONIC, tmp_path, LAB[0], answer)
    (line,) = device.unexpected
    assert line.startswith("`sonic-db-dump -n APPL_DB -y`: leaf1.sonic-appl.json: .PORT_TABLE:")
    assert line.endswith("; this row and 3 more left out")
    assert [n.port for n in device.advertised] == ["Ethernet0"]
    assert {p.name: p.bits_per_second for p in device.interfaces}["Ethernet4"] == 0


def test_a_database_of_which_nothing_is_understood_says_so(tmp_path):
    answer = {**answers(LAB[0]), "sonic-appl.json": {"COUNTERS:x": hashed(a="1")}}
    device = read(SONIC, tmp_path, LAB[0], answer)
    (line,) = device.unexpected
    assert line.endswith("expected keys of PORT_TABLE")
    assert device.interfaces is None and device.tables_read
