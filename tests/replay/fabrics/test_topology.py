"""Links between devices, and contradictions between their sources."""

from __future__ import annotations

import dataclasses
import json
from ipaddress import ip_address, ip_network

import numpy as np
import pytest
from answers import connected, device, heard, port, recorded, resolved, route, traffic_of, truth
from fabric_walking import hops
from hypothesis import given
from hypothesis import strategies as st
from traced_lab import ways_of

from rocescope.analyzer.errors import UsageError
from rocescope.replay.fabrics.cables import find_links
from rocescope.replay.fabrics.devices import Carriers, Routes, connected_networks, owners
from rocescope.replay.fabrics.files import json_bytes, yaml_bytes
from rocescope.replay.fabrics.linux_tables import read_device, read_devices
from rocescope.replay.fabrics.matching import Matches
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.fabrics.topology import (
    Reread,
    assemble,
    find_topology,
)
from rocescope.replay.flows.checks import check_fabric
from rocescope.replay.flows.placement import place
from rocescope.replay.hashing.settings import HashSettings

# Links between devices, and contradictions between their sources.


def cabling(*devices, left_out=()):
    networks, carriers = connected_networks(devices), Carriers(devices)
    return find_links(devices, networks, owners(devices), left_out, carriers)


def shown(found):
    return [(*link.a, *link.b, link.evidence) for link in found.links]


def kinds(found):
    return [note.kind for note in found.notes]


def test_lldp_of_both_ends_by_name_chassis_or_management_address():
    for system, chassis, address in (
        ("spine", "", ()),
        ("spine.example.net", "", ()),
        ("", "02:00:00:00:00:09", ()),
        ("another", "", ("192.0.2.1",)),
    ):
        leaf = device(
            "leaf",
            advertised=(heard("swp1", system, "02:00:00:00:00:0A", chassis, *address),),
            interfaces=(port("swp1", "02:00:00:00:00:01"),),
        )
        spine = device(
            "spine",
            connected("192.0.2.0/24", "eth0", "192.0.2.1"),
            advertised=(heard("swp7", "leaf", "swp1"),),
            interfaces=(port("eth0", "02:00:00:00:00:09"), port("swp7", "02:00:00:00:00:0a")),
        )
        found = cabling(leaf, spine)
        assert shown(found) == [("leaf", "swp1", "spine", "swp7", ("LLDP",))], system
        assert not found.notes


def test_a_neighbour_that_does_not_hear_back_is_named():
    leaf = device("leaf", advertised=(heard("swp1", "spine", "swp7"),))
    found = cabling(leaf, device("spine", advertised=()))
    assert shown(found) == [("leaf", "swp1", "spine", "swp7", ("LLDP of one end",))]
    assert kinds(found) == ["one-sided neighbour"]
    assert (
        found.notes[0].text == "swp1: LLDP neighbour spine swp7 does not list leaf as its neighbour"
    )
    assert not cabling(leaf, device("spine")).notes  # spine was not asked for its neighbours


def test_a_neighbour_on_a_port_without_link_is_stale():
    leaf = device(
        "leaf",
        advertised=(heard("swp1", "spine", "swp7"),),
        interfaces=(port("swp1", "", up=False),),
    )
    found = cabling(leaf, device("spine"))
    assert not found.links
    assert kinds(found) == ["stale neighbour"]


def test_several_neighbours_on_one_port_are_no_cable():
    leaf = device(
        "leaf", advertised=(heard("swp1", "spine", "swp7"), heard("swp1", "other", "swp1"))
    )
    found = cabling(leaf, device("spine"), device("other"))
    assert not found.links
    assert kinds(found) == ["several neighbours"]
    assert "(other, spine)" in found.notes[0].text


def test_a_port_that_the_neighbour_does_not_have():
    leaf = device("leaf", advertised=(heard("swp1", "spine", "swp9"),))
    found = cabling(leaf, device("spine", interfaces=(port("swp7"),)))
    assert not found.links
    assert kinds(found) == ["unknown port"]


def test_a_neighbour_that_was_not_asked():
    found = cabling(device("leaf", advertised=(heard("swp1", "tor9", "swp9"),)))
    assert not found.links
    assert [(*end, name) for end, name in found.strangers.items()] == [("leaf", "swp1", "tor9")]


def test_neighbour_macs_and_link_local_next_hops():
    leaf = device(
        "leaf",
        route("10.2.0.0/16", ("fe80::7", "swp1"), ("fe80::1", "swp2")),
        resolved=(resolved("swp1", "02:00:00:00:00:07"), resolved("swp2", "02:00:00:00:00:ff")),
    )
    spine = device(
        "spine",
        interfaces=(
            port("swp7", "02:00:00:00:00:07", "fe80::7/64"),
            # The same on all ports: they tell the device at most.
            port("swp8", "02:00:00:00:00:ff", "fe80::1/64"),
            port("swp9", "02:00:00:00:00:ff", "fe80::1/64"),
        ),
    )
    evidence = ("link-local next hop", "neighbour MAC")
    assert shown(cabling(leaf, spine)) == [("leaf", "swp1", "spine", "swp7", evidence)]


def test_several_macs_on_one_port_are_a_network():
    ports = [
        device(f"h{i}", interfaces=(port("eth0", f"02:00:00:00:00:0{i}"),)) for i in range(1, 4)
    ]
    leaf = device("leaf", resolved=tuple(resolved("br0", f"02:00:00:00:00:0{i}") for i in (1, 2)))
    assert not cabling(leaf, *ports).links


def test_the_stronger_source_wins_and_the_conflict_is_noted():
    leaf = device(
        "leaf",
        advertised=(heard("swp1", "spine", "swp7"),),
        resolved=(resolved("swp1", "02:00:00:00:00:08"),),
    )
    spine = device(
        "spine",
        advertised=(heard("swp7", "leaf", "swp1"),),
        interfaces=(port("swp7", "02:00:00:00:00:07"), port("swp8", "02:00:00:00:00:08")),
    )
    found = cabling(leaf, spine)
    assert shown(found) == [("leaf", "swp1", "spine", "swp7", ("LLDP",))]
    assert [(n.kind, n.device, n.text) for n in found.notes] == [
        ("conflict", "leaf", "swp1 leads to spine swp7 (LLDP), not to spine swp8 (neighbour MAC)")
    ]


def test_members_of_bonds_and_bridges_are_cables_of_their_own():
    leaf = device(
        "leaf",
        interfaces=(
            port("swp1", master="bond1"),
            port("swp2", master="bond1"),
            port("swp3", master="br0"),
            port("swp4", master="br0"),
            port("bond1"),
            port("br0"),
        ),
        advertised=(
            heard("swp1", "spine", "swp1"),
            heard("swp2", "spine", "swp2"),
            heard("swp3", "h1", "eth1"),
            heard("swp4", "h2", "eth1"),
        ),
    )
    spine = device(
        "spine", interfaces=(port("swp1", master="bo"), port("swp2", master="bo"), port("bo"))
    )
    found = cabling(leaf, spine, device("h1"), device("h2"))
    assert [(*link.a, *link.b) for link in found.links] == [
        ("leaf", "swp1", "spine", "swp1"),
        ("leaf", "swp2", "spine", "swp2"),
        ("leaf", "swp3", "h1", "eth1"),
        ("leaf", "swp4", "h2", "eth1"),
    ]
    assert not found.notes


def test_ports_that_are_left_out():
    devices = (
        device("leaf", advertised=(heard("eth0", "spine", "eth0"), heard("swp1", "spine", "swp1"))),
        device("spine", advertised=(heard("eth0", "leaf", "eth0"), heard("swp1", "leaf", "swp1"))),
    )
    found = cabling(*devices, left_out=[("leaf", "eth0"), ("spine", "eth0")])
    assert shown(found) == [("leaf", "swp1", "spine", "swp1", ("LLDP",))]


def test_ports_and_neighbours_without_an_id_are_not_the_same():
    leaf = device("leaf", advertised=(heard("swp1", "", "", ""),), interfaces=(port("swp1", ""),))
    spine = device("spine", interfaces=(port("lo", ""), port("swp9", "00:00:00:00:00:00")))
    assert not shown(cabling(leaf, spine))


def test_a_tunnel_is_no_connected_network():
    leaf = device("leaf", route("10.1.2.0/24", (None, "")))
    host = device("host", connected("10.1.2.0/24", "swp1", "10.1.2.1"))
    assert [len(members) for members in connected_networks((leaf, host)).values()] == [1]


# Switches, hosts and wires.


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


# Fabrics of devices: real FRR routers with BGP unnumbered, and special cases by hand.


def made(*devices):
    return assemble("lab", devices, 10**10, 500, "tables", strict=True)


def leaf_assemble(*more, **answers):
    return device(
        "leaf",
        connected("10.1.0.0/24", "down1", "10.1.0.1"),
        connected("172.16.0.0/31", "up1", "172.16.0.0"),
        connected("172.16.0.2/31", "up2", "172.16.0.2"),
        *more,
        **answers,
    )


SPINE = device(
    "spine",
    connected("172.16.0.0/31", "swp1", "172.16.0.1"),
    connected("172.16.0.2/31", "swp2", "172.16.0.3"),
    connected("10.2.0.0/24", "swp3", "10.2.0.1"),
    connected("fd10:2::/64", "swp3"),
    route("10.1.0.0/24", ("172.16.0.2", "swp2"), ("172.16.0.0", "swp1")),
)
TO_SPINE = route("10.2.0.0/24", ("172.16.0.1", "up1"), ("172.16.0.3", "up2"))


def test_bgp_unnumbered_with_parallel_links_and_a_management_lan(tmp_path):
    folder = recorded(tmp_path) / "healthy"
    found = assemble(str(folder), read_devices(folder), 10**10, 500, "ip -j route", strict=True)
    fabric = found.fabric
    assert fabric.nodes.names == ("leaf1", "leaf2", "spine1", "spine2", "h1", "h2", "h3", "h4")
    assert len(fabric.links.source) == 2 * (4 + 8)
    assert [note.kind for note in found.notes] == ["management network"]
    ports = dict(zip(map(fabric.link_name, range(0, 24, 2)), fabric.origin.ports, strict=True))
    assert ports["leaf1>spine2#2"] == ("swp4", "swp2")
    assert set(fabric.origin.links[4:]) == {"LLDP, link-local next hop, neighbour MAC"}
    routes = json.loads((folder / "leaf1.route.json").read_text())
    (to_h3,) = [r["nexthops"] for r in routes if r["dst"] == "10.2.3.0/24"]
    links, weights = fabric.group(0, int(fabric.attachments.edge[2]))
    own = [fabric.origin.ports[link // 2][0] for link in links.tolist()]
    assert own == [hop["dev"] for hop in to_h3]
    assert weights.tolist() == [1, 1, 1, 1]
    assert fabric.host_of("fd10:2:4::10") == 3
    assert check_fabric(fabric).is_sound
    file = tmp_path / "fabric.yaml"
    file.write_bytes(yaml_bytes(fabric))
    again = parse_fabric(str(file))
    assert again.origin == fabric.origin
    assert again.addresses == fabric.addresses
    assert yaml_bytes(again) == file.read_bytes()


def test_the_order_of_the_group_after_a_flap(tmp_path):
    folder = recorded(tmp_path) / "flapped"
    fabric = assemble("lab", read_devices(folder), 10**10, 500, "ip -j route", strict=True).fabric
    links, _ = fabric.group(0, int(fabric.attachments.edge[2]))
    names = [fabric.link_name(link) for link in links.tolist()]
    assert names == ["leaf1>spine2#2", "leaf1>spine1", "leaf1>spine1#2"]


def test_next_hops_over_parallel_numbered_links_keep_their_order():
    fabric = made(leaf_assemble(TO_SPINE), SPINE).fabric
    links, _ = fabric.group(0, int(fabric.attachments.edge[1]))
    assert [fabric.link_name(link) for link in links.tolist()] == ["leaf>spine", "leaf>spine#2"]
    back, _ = fabric.group(1, int(fabric.attachments.edge[0]))
    assert [fabric.link_name(link) for link in back.tolist()] == ["spine>leaf#2", "spine>leaf"]


def links_to(fabric, switch, host, version):
    """The next hops of a switch for packets of one family."""
    edge = fabric.edge_of(np.array([host], np.int32), version == 6)[0]
    links, _ = fabric.group(switch, int(edge))
    return [fabric.link_name(link) for link in links.tolist()]


def test_families_with_different_next_hops_have_groups_of_their_own(tmp_path):
    six = route("fd10:2::/64", ("172.16.0.3", "up2"), ("172.16.0.1", "up1"))
    found = made(leaf_assemble(TO_SPINE, six), SPINE)
    assert [(n.kind, n.device) for n in found.notes] == [("address families", "leaf")]
    file = tmp_path / "fabric.yaml"
    file.write_bytes(yaml_bytes(found.fabric))
    again = parse_fabric(str(file))
    assert yaml_bytes(again) == file.read_bytes()
    for fabric in (found.fabric, again):
        assert links_to(fabric, 0, 1, 4) == ["leaf>spine", "leaf>spine#2"]
        assert links_to(fabric, 0, 1, 6) == ["leaf>spine#2", "leaf>spine"]
        assert links_to(fabric, 1, 0, 6) == links_to(fabric, 1, 0, 4)
        assert fabric.origin.ipv4_only == ()
    one_less = again.down(["leaf>spine#1"])
    assert links_to(one_less, 0, 1, 6) == links_to(one_less, 0, 1, 4) == ["leaf>spine#2"]


def test_a_family_without_a_route_has_none(tmp_path):
    """leaf routes IPv6, but not to the network of the host; before, its route of IPv4 served."""
    six = route("fd10:3::/64", ("172.16.0.3", "up2"))
    fabric = made(leaf_assemble(TO_SPINE, six), SPINE).fabric
    assert links_to(fabric, 0, 1, 4)
    assert links_to(fabric, 0, 1, 6) == []
    file = tmp_path / "fabric.json"
    file.write_bytes(json_bytes(fabric))
    assert links_to(parse_fabric(str(file)), 0, 1, 6) == []


def test_routes_of_ipv6_that_were_not_read():
    """Some device tells routes of IPv6, so that packets of IPv6 can reach the one without."""
    spine = dataclasses.replace(
        SPINE, routes=Routes((*SPINE.routes, route("fd10:1::/64", ("172.16.0.2", "swp2"))))
    )
    fabric = made(leaf_assemble(TO_SPINE), spine).fabric
    assert fabric.origin.ipv4_only == (True, False)
    assert made(leaf_assemble(TO_SPINE), SPINE).fabric.origin.ipv4_only == ()


def test_a_hash_of_ipv4_alone_is_marked():
    hashed = made(leaf_assemble(TO_SPINE), dataclasses.replace(SPINE, ipv4_only=True)).fabric
    assert hashed.origin.ipv4_only == (False, True)


def test_a_next_hop_that_leads_nowhere_may_be_a_note():
    devices = (
        leaf_assemble(route("10.2.0.0/24", ("172.16.0.1", "up1"), ("9.9.9.9", "up3"))),
        SPINE,
    )
    found = assemble("lab", devices, 10**10, 500, "tables", strict=False)
    (note,) = found.notes
    assert (note.kind, note.device) == ("next hop", "leaf")
    assert note.text.startswith("no route to 10.2.0.0/24: here: the next hop 9.9.9.9 on up3")
    assert not hops(found.fabric, "leaf", "spine:swp3")  # part of a group is no group
    assert hops(found.fabric, "spine", "leaf:down1")


def test_a_route_over_the_management_network_is_no_route_of_the_fabric():
    default = route("0.0.0.0/0", ("192.168.0.254", "eth0"))
    lan = connected("192.168.0.0/24", "eth0", "192.168.0.2")
    spine = dataclasses.replace(SPINE, routes=Routes((*SPINE.routes, lan)))
    fabric = made(
        leaf_assemble(default, connected("192.168.0.0/24", "eth0", "192.168.0.1")), spine
    ).fabric
    assert not hops(fabric, "leaf", "spine:swp3")
    assert "via 192.168.0.254" not in fabric.nodes.names


def test_mistakes():
    with pytest.raises(UsageError, match="two devices have the name 'leaf'"):
        made(leaf_assemble(), leaf_assemble())
    with pytest.raises(UsageError, match="the next hop 9.9.9.9 on up3 of leaf is on no connected"):
        made(leaf_assemble(route("10.2.0.0/24", ("9.9.9.9", "up3"))), SPINE)


def test_remarks_of_devices_are_told():
    found = made(leaf_assemble(TO_SPINE, remarks=("it is strange",)), SPINE)
    assert [(n.device, n.text) for n in found.notes] == [("leaf", "it is strange")]


@given(
    st.lists(st.tuples(st.sampled_from([0, 8, 12, 16, 24, 32]), st.integers(0, 3)), min_size=1),
    st.lists(st.tuples(st.sampled_from([16, 24, 32]), st.integers(0, 3)), min_size=1, max_size=3),
)
def test_the_longest_route(routes, targets):
    """Against a plain search in all routes; of two for one network the first counts."""

    def network(length, number):
        return ip_network((0x14000000 + (number << 12 if length > 8 else 0), length), strict=False)

    one = device(
        "leaf", *(route(str(network(*pair)), ("", f"swp{i}")) for i, pair in enumerate(routes))
    )
    wanted = [network(*pair) for pair in targets]
    expected = -1
    for target in wanted:
        around = [i for i, r in enumerate(one.routes) if target.subnet_of(r.network)]
        if around:
            expected = max(around, key=lambda i: one.routes[i].network.prefixlen)
            break
    other = device("spine", *reversed(one.routes), route("20.0.0.0/7", ("", "swp9")))
    matches = Matches([one.routes, other.routes], [wanted, []])
    assert matches.of(one.routes, 4).tolist() == [expected, -1]
    assert matches.of(one.routes, 6).tolist() == [-1, -1]
    assert matches.has[4].tolist() == [True, False]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.booleans())))
def test_what_routes_tell_is_told_once(drawn):
    """Against a plain walk: no group, port or network of a port is missing, none is told twice."""
    routes = [
        connected(f"10.{n}.0.0/16", f"swp{p}")
        if alone
        else route(f"20.{n}.0.0/16" if n else "0.0.0.0/0", (f"10.9.0.{p}", f"swp{p}"))
        for n, p, alone in drawn
    ]
    table = Routes(routes)
    assert list(table) == routes
    told, seen = [], set()
    for one in routes:
        key = one.hops, not one.network.prefixlen
        if one.without_gateway or key not in seen:
            told.append(one)
        seen.add(key)
    assert list(table.telling()) == told
    assert list(table.of_groups(np.arange(len(table.firsts)) == 0)) == [
        one for one in routes if one.hops == routes[0].hops
    ]


# A fabric whose switches are read again: real FRR routers before and after a link flap.

SWITCHES = ("leaf1", "leaf2", "spine1", "spine2")


@pytest.fixture
def folder(tmp_path):
    return recorded(tmp_path)


@pytest.fixture
def state(folder):
    devices = read_devices(folder / "healthy")
    return Reread(assemble("lab", devices, 10**10, 500, "tables", strict=False).fabric)


def ways(state, flows):
    """Routers and ports as the fabric has them now."""
    fabric = state.fabric
    placed = place(traffic_of(fabric, flows), fabric, fabric.hash_settings)
    return [[list(hop) for hop in way] for way in ways_of(placed.links, fabric)]


def test_all_switches_read_again_have_the_ways_that_they_tell(state, folder):
    """After the flap, and back: `ip route get` is the judge."""
    for name in ("flapped", "healthy"):
        flows = truth(folder, name)
        differ = {
            switch: state.update(read_device(folder / name, switch), "now")[0]
            for switch in SWITCHES
        }
        assert {switch for switch, other in differ.items() if other} == {"leaf1", "spine2"}
        assert ways(state, flows) == [flow["path"] for flow in flows]


def test_another_order_of_the_next_hops_of_ipv6(state, folder):
    """It changes the group of IPv6 alone, and back."""
    leaf1 = read_device(folder / "healthy", "leaf1")
    state.update(leaf1, "now")
    host, six = np.array([2], np.int32), np.array([True])

    def group(family):
        links, _ = state.fabric.group(0, int(state.fabric.edge_of(host, family)[0]))
        return links.tolist()

    before = group(six)
    assert before == group(~six)
    turned = tuple(
        dataclasses.replace(route, hops=route.hops[::-1])
        if route.network.version == 6 and len(route.hops) > 1
        else route
        for route in leaf1.routes
    )
    assert state.update(dataclasses.replace(leaf1, routes=Routes(turned)), "now")[0] is True
    assert group(six) == before[::-1]
    assert group(~six) == before
    assert state.update(leaf1, "now")[0] is True
    assert group(six) == before


def test_a_switch_that_loses_its_routes_of_ipv6(state, folder):
    """Those of IPv4 do not serve IPv6, as in a fabric of fresh answers."""
    for name in ("leaf2", "spine1"):
        state.update(read_device(folder / "healthy", name), "now")
    spine2 = read_device(folder / "healthy", "spine2")
    own = tuple(r for r in spine2.routes if r.network.version == 4 or not r.hops[0].gateway)
    assert len(own) < len(spine2.routes)
    assert state.update(dataclasses.replace(spine2, routes=Routes(own)), "now")[0] is True
    host, spine = np.array([2], np.int32), SWITCHES.index("spine2")
    four, six = (int(state.fabric.edge_of(host, family)[0]) for family in (False, True))
    assert len(state.fabric.group(spine, four)[0]) > 0
    assert len(state.fabric.group(spine, six)[0]) == 0


def test_the_same_tables_change_nothing_and_groups_do_not_pile_up(state, folder):
    state.update(read_device(folder / "healthy", "leaf1"), "now")
    before = state.fabric.forwarding
    for _ in range(5):
        assert state.update(read_device(folder / "healthy", "leaf1"), "now")[0] is False
    after = state.fabric.forwarding
    assert len(after.group_start) == len(before.group_start)
    assert len(after.group_links) == len(before.group_links)


def test_ports_of_hosts_and_hash_settings(state, folder):
    leaf1 = read_device(folder / "healthy", "leaf1")
    state.update(leaf1, "now")
    exit_link = int(state.fabric.attachments.exit_link[0, 0])
    to_h1 = state.fabric.origin.ports[exit_link // 2][exit_link % 2]
    down = [port._replace(up=False) if port.name == to_h1 else port for port in leaf1.interfaces]
    lost = dataclasses.replace(leaf1, interfaces=tuple(down))
    assert state.update(lost, "now")[0] is True
    attached = state.fabric.attachments.switch
    assert int(np.count_nonzero(attached < 0)) == 1
    assert state.begins_at(np.array([0]), np.array([0, 1, 2], np.int32)).tolist() == [
        True, True, False,
    ]  # fmt: skip
    assert state.update(leaf1, "now")[0] is True
    assert (state.fabric.attachments.switch >= 0).all()
    assert state.update(dataclasses.replace(leaf1, hash=None), "now")[0] is True
    assert state.fabric.hash_settings[0] is None


def test_a_recovered_seed_stays_while_the_switch_tells_none(state, folder):
    leaf1 = read_device(folder / "healthy", "leaf1")
    secret = dataclasses.replace(leaf1, hash=dataclasses.replace(leaf1.hash, seed=0))
    found = HashSettings("linux", seed=9, seed_recovered=True, extra={"policy": 1})
    state.fabric = dataclasses.replace(
        state.fabric, hash_settings=(found, *state.fabric.hash_settings[1:])
    )
    assert secret.hash.extra == {"policy": 1, "fields": 7}
    assert state.update(secret, "now")[0] is False
    assert state.fabric.hash_settings[0] is found
    assert state.update(dataclasses.replace(leaf1, hash=None), "now")[0] is False
    assert state.fabric.hash_settings[0] is found
    other = dataclasses.replace(secret.hash, extra={"policy": 3, "fields": 7})
    assert state.update(dataclasses.replace(secret, hash=other), "now")[0] is True
    assert state.fabric.hash_settings[0] == other


def test_a_seed_that_a_user_wrote_stays_until_the_switch_tells_one(state, folder):
    """What the switch told itself and tells no more is lost."""
    told = HashSettings("linux", extra={"policy": 1, "fields": 7})
    leaf1 = read_device(folder / "healthy", "leaf1")
    written = HashSettings("linux", seed=9, extra={"policy": 1})
    state.fabric = dataclasses.replace(
        state.fabric, hash_settings=(written, *state.fabric.hash_settings[1:])
    )
    assert state.update(dataclasses.replace(leaf1, hash=told), "now")[0] is False
    assert state.fabric.hash_settings[0] is written
    assert leaf1.hash.seed
    assert state.update(leaf1, "now")[0] is True
    assert state.fabric.hash_settings[0] == leaf1.hash
    assert state.update(dataclasses.replace(leaf1, hash=told), "now")[0] is True
    assert state.fabric.hash_settings[0] == told


def test_a_next_hop_on_an_unknown_port_is_no_way(state, folder):
    leaf1 = read_device(folder / "healthy", "leaf1")
    routes = [
        dataclasses.replace(r, hops=tuple(h._replace(device="new0") for h in r.hops))
        if len(r.hops) > 1
        else r
        for r in leaf1.routes
    ]
    other, notes = state.update(dataclasses.replace(leaf1, routes=Routes(routes)), "now")
    assert other
    assert {note.kind for note in notes} == {"next hop"}
    assert (state.fabric.forwarding.group_of[0] == -1).all()
