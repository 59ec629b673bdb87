"""Whole sites: cables, next hops and remarks of small fabrics, from the answers of their devices.

tests/data/sites.tar.xz has a folder of answers for each site, as the commands print them; here is
what a person who built the site knows of it.
"""

from __future__ import annotations

import dataclasses
import tarfile
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

import pytest
from answers import connected, device, heard, port, resolved, route
from fabric_walking import hops, next_nodes

from rocescope.discovery.discover import discover_folder
from rocescope.discovery.folder import read_folder
from rocescope.replay.fabrics.cables import LLDP
from rocescope.replay.fabrics.files import yaml_bytes
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.fabrics.topology import Reread, assemble
from rocescope.replay.hashing.settings import HashSettings


class Site(NamedTuple):
    """What is known of a site."""

    links: str
    """All of them: both ports."""
    routes: Mapping[str, Mapping[str, list[str]]]
    """The next hops of switches to addresses."""
    no_remark: tuple[str, ...] = ()


SITES = {
    # Learned routes of unnumbered ports have no gateway; LLDP names the cables.
    "eos_unnumbered": Site(
        links="""
            leaf1 Ethernet1 - spine1 Ethernet1
            leaf1 Ethernet2 - spine2 Ethernet1
            leaf2 Ethernet1 - spine1 Ethernet2
            leaf2 Ethernet2 - spine2 Ethernet2
            leaf3 Ethernet1 - spine1 Ethernet3
            leaf3 Ethernet2 - spine2 Ethernet3
            leaf1 Ethernet3 - leaf1:Ethernet3
            leaf1 Ethernet4 - leaf1:Ethernet4
            leaf2 Ethernet3 - leaf2:Ethernet3
            leaf2 Ethernet4 - leaf2:Ethernet4
            leaf3 Ethernet3 - leaf3:Ethernet3
            leaf3 Ethernet4 - leaf3:Ethernet4
        """,
        routes={"leaf1": {"10.2.1.9": ["spine1", "spine2"]}, "spine1": {"10.2.1.9": ["leaf2"]}},
        no_remark=("conflict", "next hop", "management network"),
    ),
    # The RDMA port of host3 is down: all it has is a port on the management network.
    "management_lan": Site(
        links="""
            leaf1 swp1 - spine1 swp1
            leaf1 swp2 - spine2 swp1
            leaf1 swp3 - host1 rdma0
            leaf1 swp4 - host2 rdma0
            leaf2 swp1 - spine1 swp2
            leaf2 swp2 - spine2 swp2
            leaf2 swp3 - leaf2:swp3
            leaf2 swp4 - host4 rdma0
        """,  # the network of leaf2 swp3 stays one host: nobody else answers there
        routes={"leaf1": {"10.0.0.7": ["spine1", "spine2"]}},
        no_remark=("lost member", "conflict"),
    ),
    # Two cables in every port channel, and a next hop is both.
    "port_channel": Site(
        links="""
            leaf1 Ethernet3 - host1 rdma0
            leaf2 Ethernet3 - host2 rdma0
            leaf1 Ethernet1 - spine1 Ethernet1
            leaf1 Ethernet11 - spine1 Ethernet11
            leaf1 Ethernet2 - spine2 Ethernet1
            leaf1 Ethernet12 - spine2 Ethernet11
            leaf2 Ethernet1 - spine1 Ethernet2
            leaf2 Ethernet11 - spine1 Ethernet12
            leaf2 Ethernet2 - spine2 Ethernet2
            leaf2 Ethernet12 - spine2 Ethernet12
        """,
        routes={"leaf1": {"10.2.1.10": ["spine1", "spine1", "spine2", "spine2"]}},
    ),
    # A VLAN interface is no cable: hosts are at the access ports that LLDP and ARP name.
    "svi": Site(
        links="""
            leaf1 Ethernet1 - spine1 Ethernet1
            leaf1 Ethernet2 - spine2 Ethernet1
            leaf1 Ethernet3 - host1 rdma0
            leaf1 Ethernet4 - host2 rdma0
            leaf1 Ethernet5 - host3 rdma0
            leaf2 Ethernet1 - spine1 Ethernet2
            leaf2 Ethernet2 - spine2 Ethernet2
            leaf2 Ethernet3 - host4 rdma0
            leaf2 Ethernet4 - host5 rdma0
            leaf2 Ethernet5 - host6 rdma0
        """,
        routes={
            "leaf1": {"10.1.2.13": ["spine1", "spine2"], "10.1.1.12": ["host2"]},
            "spine2": {"10.1.1.12": ["leaf1"]},
        },
        no_remark=("conflict",),
    ),
    # A subinterface is on the cable of its port.
    "subinterfaces": Site(
        links="""
            leaf1 swp1 - spine1 swp1
            leaf1 swp2 - spine2 swp1
            leaf1 swp3 - host1 rdma0
            leaf2 swp1 - spine1 swp2
            leaf2 swp2 - spine2 swp2
            leaf2 swp3 - host2 rdma0
        """,
        routes={"leaf1": {"10.2.1.10": ["spine1", "spine2"]}},
        no_remark=("lost member",),
    ),
    # A bond is one cable to each leaf of an MLAG pair.
    "host_bond": Site(
        links="""
            leaf1 Ethernet1 - spine1 Ethernet1
            leaf1 Ethernet2 - spine2 Ethernet1
            leaf1 Ethernet3 - host1 ens1f0
            leaf1 Ethernet4 - host2 ens1f0
            leaf2 Ethernet1 - spine1 Ethernet2
            leaf2 Ethernet2 - spine2 Ethernet2
            leaf2 Ethernet3 - host1 ens1f1
            leaf2 Ethernet4 - host2 ens1f1
        """,
        routes={"spine1": {"10.1.1.12": ["leaf1", "leaf2"]}},
    ),
    # A VLAN-aware bridge of Cumulus.
    "bridge": Site(
        links="""
            leaf1 swp1 - spine1 swp1
            leaf1 swp2 - spine2 swp1
            leaf1 swp3 - host1 rdma0
            leaf1 swp4 - host2 rdma0
            leaf2 swp1 - spine1 swp2
            leaf2 swp2 - spine2 swp2
            leaf2 swp3 - host3 rdma0
            leaf2 swp4 - host4 rdma0
        """,
        routes={"leaf1": {"10.1.2.12": ["spine1", "spine2"], "10.1.1.12": ["host2"]}},
        no_remark=("conflict",),
    ),
    # GPU hosts with two ports run containers, and forward.
    "inventory_kinds": Site(
        links="""
            leaf1 swp1 - spine1 swp1
            leaf1 swp2 - spine2 swp1
            leaf2 swp1 - spine1 swp2
            leaf2 swp2 - spine2 swp2
            gpu1 rdma0 - leaf1 swp3
            gpu1 rdma1 - leaf2 swp3
            gpu2 rdma0 - leaf1 swp4
            gpu2 rdma1 - leaf2 swp4
            gpu3 rdma0 - leaf1 swp5
            gpu3 rdma1 - leaf2 swp5
            gpu4 rdma0 - leaf1 swp6
            gpu4 rdma1 - leaf2 swp6
        """,
        routes={"leaf1": {"10.2.3.10": ["spine1", "spine2"]}, "spine1": {"10.1.3.10": ["leaf1"]}},
    ),
    # lldpd tells one neighbour twice, by LLDP and CDP.
    "lldp_beside_cdp": Site(
        links="""
            leaf1 swp1 - spine1 swp1
            leaf1 swp2 - spine2 swp1
            leaf1 swp3 - host1 rdma0
            leaf2 swp1 - spine1 swp2
            leaf2 swp2 - spine2 swp2
            leaf2 swp3 - host2 rdma0
        """,
        routes={},
        no_remark=("several neighbours",),
    ),
}


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sites")
    with tarfile.open(Path(__file__).parents[1] / "data" / "sites.tar.xz") as tar:
        tar.extractall(folder, filter="data")
    return folder / "sites"


def cables(fabric):
    """Each link as `leaf1 swp1 - spine1 swp1`, in the order of its ends."""
    links = fabric.links
    for cable, ports in enumerate(fabric.origin.ports):
        ends = []
        for node, name in zip(
            (links.source[2 * cable], links.target[2 * cable]), ports, strict=True
        ):
            whole = fabric.nodes.names[int(node)]
            is_host = int(node) >= fabric.switches
            ends.append(
                f"{whole.partition(':')[0]} {name}" if is_host and name else f"{whole} {name}"
            )
        yield " - ".join(sorted(end.strip() for end in ends))


@pytest.mark.parametrize("name", SITES)
def test_cables_and_next_hops_of_a_site(sites, name, tmp_path):
    site = SITES[name]
    found = discover_folder(sites / name, 10**11, 500)
    fabric, remarks = found.fabric, found.report.remarks
    expected = [" - ".join(sorted(line.strip().split(" - "))) for line in site.links.split("\n")]
    assert sorted(cables(fabric)) == sorted(line for line in expected if line)
    devices = {line.split()[0].partition(":")[0] for line in expected if line}
    devices |= {line.split(" - ")[1].split()[0].partition(":")[0] for line in expected if line}
    switches = {name for name in devices if name.startswith(("leaf", "spine"))}
    assert set(fabric.nodes.names[: fabric.switches]) == switches
    assert found.report.switches_without_tables == []
    for cable, evidence in enumerate(fabric.origin.links):
        if max(fabric.links.source[2 * cable], fabric.links.target[2 * cable]) < fabric.switches:
            assert evidence.startswith(LLDP)
    for switch, by_address in site.routes.items():
        for address, expected_hops in by_address.items():
            host = fabric.host_name(fabric.host_of(address))
            at = fabric.nodes.names.index(switch)
            if at in fabric.attachments.switch[fabric.host_of(address)].tolist():
                assert expected_hops == [host]
            else:
                assert sorted(next_nodes(fabric, switch, host)) == expected_hops
    kinds = {remark.kind for remark in remarks}
    assert not kinds & {"conflict", "lost member", "next hop", "no route", *site.no_remark}
    file = tmp_path / "fabric.yaml"
    file.write_bytes(yaml_bytes(fabric))
    assert yaml_bytes(parse_fabric(str(file))) == file.read_bytes()


# Kinds of sites, made by hand: each differs from the one above by what it says of its ports.


def lldp(*pairs):
    """What both devices of each cable hear: {device: (Advertised, ...)}."""
    told = {}
    for (a, port_a), (b, port_b) in pairs:
        told.setdefault(a, []).append(heard(port_a, b, port_b))
        told.setdefault(b, []).append(heard(port_b, a, port_a))
    return {name: tuple(neighbours) for name, neighbours in told.items()}


def made(*devices):
    found = assemble("site", devices, 10**11, 500, "tables", strict=False)
    return found.fabric, {(note.kind, note.device) for note in found.notes}


def a_switch(name, *routes, ports=(), **more):
    return device(name, *routes, interfaces=tuple(ports) or None, forwards=True, **more)


def a_host(name, address, gateway, nic="rdma0", **more):
    network = str(ip_address(address)).rpartition(".")[0] + ".0/24"
    routes = connected(network, nic, address), route("0.0.0.0/0", (gateway, nic))
    more.setdefault("interfaces", (port(nic, "", f"{address}/24"),))
    return device(name, *routes, forwards=False, **more)


def test_a_network_that_an_unnumbered_port_learned_is_on_no_port():
    """The route of a single spine to the network of a leaf: no gateway, one port."""
    told = lldp((("leaf1", "e1"), ("spine", "e1")), (("leaf2", "e1"), ("spine", "e2")))
    leaves = [
        a_switch(
            f"leaf{i}",
            connected(f"198.51.{i}.0/24", "e9", f"198.51.{i}.1"),
            route(f"198.51.{3 - i}.0/24", ("", "e1")),
            route("203.0.113.9/32", ("", "e1")),
            ports=(port("e1", "", f"203.0.113.{i}/32"), port("e9", "", f"198.51.{i}.1/24")),
            advertised=told[f"leaf{i}"],
        )
        for i in (1, 2)
    ]
    spine = a_switch(
        "spine",
        *(route(f"198.51.{i}.0/24", ("", f"e{i}")) for i in (1, 2)),
        *(route(f"203.0.113.{i}/32", ("", f"e{i}")) for i in (1, 2)),
        ports=[port(f"e{i}", "", "203.0.113.9/32") for i in (1, 2)],
        advertised=told["spine"],
    )
    fabric, notes = made(*leaves, spine)
    assert sorted(cables(fabric)) == [
        "leaf1 e1 - spine e1", "leaf1 e9 - leaf1:e9", "leaf2 e1 - spine e2", "leaf2 e9 - leaf2:e9",
    ]  # fmt: skip
    assert next_nodes(fabric, "leaf1", "leaf2:e9") == ["spine"]
    assert next_nodes(fabric, "spine", "leaf2:e9") == ["leaf2"]
    assert not notes


def test_an_unnumbered_port_to_a_switch_that_was_not_asked():
    leaf = a_switch(
        "leaf",
        connected("198.51.1.0/24", "e9", "198.51.1.1"),
        route("198.51.2.0/24", ("", "e1"), ("", "e2")),
        ports=(
            port("e1", "", "203.0.113.1/32"), port("e2", "", "203.0.113.1/32"),
            port("e9", "", "198.51.1.1/24"),
        ),
        advertised=(heard("e1", "s1", "e1"), heard("e2", "s2", "e1")),
    )  # fmt: skip
    fabric, _ = made(leaf, a_switch("other", connected("192.0.2.0/31", "e1", "192.0.2.0")))
    assert sorted(next_nodes(fabric, "leaf", "198.51.2.0/24")) == ["via s1", "via s2"]


LAN = {f"host{i}": f"192.0.2.{i}" for i in range(1, 5)}


def on_lan(nic_of_host, nic_of_leaf, vrf="", up=()):
    """Four hosts on one leaf, of which only those in `up` have a link, and a LAN of all."""
    told = lldp(*(((h, "rdma0"), ("leaf", f"e{i}")) for i, h in enumerate(LAN, 1) if h in up))
    hosts = []
    for i, (name, address) in enumerate(LAN.items(), 1):
        routes = [connected("192.0.2.0/24", nic_of_host, address)]
        if name in up:
            routes.append(connected(f"198.51.{i}.0/31", "rdma0", f"198.51.{i}.1"))
            routes.append(route("198.51.0.0/16", (f"198.51.{i}.0", "rdma0")))
        of_host = (port(nic_of_host, "", f"{address}/24"), port("rdma0", up=name in up))
        more = {"advertised": told.get(name, ()), "forwards": False, "interfaces": of_host}
        hosts.append(device(name, *routes, **more))
    routes = [
        connected(f"198.51.{i}.0/31", f"e{i}", f"198.51.{i}.0")
        for i, name in enumerate(LAN, 1)
        if name in up
    ]
    if not vrf:
        routes.append(connected("192.0.2.0/24", nic_of_leaf, "192.0.2.9"))
    ports = [port(f"e{i}") for i in range(1, 5)]
    ports.append(port(nic_of_leaf, "", "192.0.2.9/24", vrf=vrf))
    told_leaf = told.get("leaf", ())
    leaf = a_switch("leaf", *routes, ports=ports, advertised=told_leaf, kind="switch")
    return [*hosts, leaf]


@pytest.mark.parametrize(
    ("nic_of_host", "nic_of_leaf", "vrf"),
    [("eno1", "Management1", ""), ("eno1", "Ethernet9", "MGMT"), ("eno1", "fxp0", "")],
)
def test_management_by_name_or_vrf_whatever_the_hosts_answer(nic_of_host, nic_of_leaf, vrf):
    """Only one of the hosts has a link in the fabric."""
    devices = on_lan(nic_of_host, nic_of_leaf, vrf, up=("host2",))
    fabric, notes = made(*devices)
    assert list(cables(fabric)) == ["host2 rdma0 - leaf e2"]
    assert ("management network", "") in notes
    assert {d for kind, d in notes if kind == "not in the fabric"} == {"host1", "host3", "host4"}
    assert fabric.nodes.names == ("leaf", "host2")


def test_names_of_several_management_ports_are_enough():
    """eth0 of the switches, eno1 of the hosts, one of which is down."""
    devices = on_lan("eno1", "eth0", up=("host1", "host2", "host4"))
    other = a_switch(
        "leaf2",
        connected("192.0.2.0/24", "eth0", "192.0.2.10"),
        connected("198.51.9.0/24", "e1", "198.51.9.1"),
        kind="switch",
    )
    fabric, notes = made(*devices, other)
    expected = [f"host{i} rdma0 - leaf e{i}" for i in (1, 2, 4)]
    assert sorted(cables(fabric)) == [*expected, "leaf2 e1 - leaf2:e1"]
    assert ("management network", "") in notes


def test_a_management_switch_that_was_asked_adds_no_link():
    """LLDP of both ends shows its cables to eth0 of all: cables of management, one host is down."""
    pairs = [((name, "eth0"), ("oob", f"swp{i}")) for i, name in enumerate([*LAN, "leaf"], 1)]
    told = lldp(*pairs)
    devices = [
        dataclasses.replace(one, advertised=(*(one.advertised or ()), *told[one.name]))
        for one in on_lan("eth0", "eth0", up=("host1", "host2", "host4"))
    ]
    oob = a_switch(
        "oob",
        connected("192.0.2.0/24", "bridge", "192.0.2.250"),
        route("0.0.0.0/0", ("192.0.2.251", "bridge")),
        ports=(*(port(f"swp{i}", master="bridge") for i in range(1, 6)), port("bridge"), port("u")),
        advertised=told["oob"],
    )
    fabric, notes = made(*devices, oob)
    assert sorted(cables(fabric)) == [f"host{i} rdma0 - leaf e{i}" for i in (1, 2, 4)]
    assert ("management network", "") in notes


def test_the_addresses_of_the_inventory_are_on_a_management_network():
    devices = [
        dataclasses.replace(one, asked_at=ip_address(LAN.get(one.name, "192.0.2.9")))
        for one in on_lan("eno1", "e99", up=("host2",))
    ]
    fabric, notes = made(*devices)
    assert list(cables(fabric)) == ["host2 rdma0 - leaf e2"]
    assert ("management network", "") in notes


def test_lldp_of_both_ends_keeps_a_port_in_the_fabric():
    """A LAN that no route uses looks like management, but LLDP shows cables."""
    told = lldp((("r1", "e1"), ("r2", "e1")), (("r2", "e2"), ("r3", "e1")))
    routers = [
        a_switch(
            f"r{i}",
            connected("192.0.2.0/24", "e1", f"192.0.2.{i}"),
            connected(f"198.51.{i}.0/24", "e9", f"198.51.{i}.1"),
            advertised=told[f"r{i}"],
        )
        for i in (1, 2, 3)
    ]
    fabric, notes = made(*routers)
    found = [cable for cable in cables(fabric) if "e9" not in cable]
    assert found == ["r1 e1 - r2 e1", "r2 e2 - r3 e1"]
    assert ("management network", "") not in notes


def test_kinds_of_the_inventory():
    gpu = dataclasses.replace(
        a_host("gpu", "198.51.1.10", "198.51.1.1", kind="host"), forwards=True
    )
    leaf = a_switch("leaf", connected("198.51.1.0/24", "e1", "198.51.1.1"), kind="switch")
    fabric, notes = made(leaf, gpu)
    assert fabric.nodes.names == ("leaf", "gpu")  # a switch with one live port stays one
    assert notes == {("kind", "")}


def bonded(name, *members, bond="bond0", **more):
    return (*(port(m, master=bond, **more) for m in members), port(bond))


def test_members_of_unequal_bonds_share_the_packets_of_their_next_hop():
    """A bond of two cables beside one cable: one half each, and no hash places a packet."""
    told = lldp(
        (("leaf", "e1"), ("s1", "e1")),
        (("leaf", "e2"), ("s1", "e2")),
        (("leaf", "e3"), ("s2", "e1")),
    )
    leaf = a_switch(
        "leaf",
        connected("198.51.1.0/24", "e9", "198.51.1.1"),
        connected("192.0.2.0/31", "Port-Channel1", "192.0.2.0"),
        connected("192.0.2.2/31", "e3", "192.0.2.2"),
        route("198.51.2.0/24", ("192.0.2.1", "Port-Channel1"), ("192.0.2.3", "e3")),
        ports=(*bonded("leaf", "e1", "e2", bond="Port-Channel1"), port("e3"), port("e9")),
        advertised=told["leaf"],
    )
    spines = [
        a_switch(
            "s1",
            connected("192.0.2.0/31", "Port-Channel7", "192.0.2.1"),
            connected("198.51.2.0/24", "e9", "198.51.2.1"),
            ports=bonded("s1", "e1", "e2", bond="Port-Channel7"),
            advertised=told["s1"],
        ),
        a_switch(
            "s2",
            connected("192.0.2.2/31", "e1", "192.0.2.3"),
            connected("198.51.3.0/24", "e9", "198.51.3.1"),
            advertised=told["s2"],
        ),
    ]
    fabric, _ = made(leaf, *spines)
    assert hops(fabric, "leaf", "s1:e9") == [("s1", 1), ("s1", 1), ("s2", 2)]
    assert "shared network" in fabric.origin.links[0]


def test_a_hash_that_is_known_places_no_packet_on_a_member_of_a_bond():
    """Also when the switch is read again."""
    told = lldp((("leaf", "e1"), ("s", "e1")), (("leaf", "e2"), ("s", "e2")))
    leaf = a_switch(
        "leaf",
        connected("198.51.1.0/24", "e9", "198.51.1.1"),
        connected("192.0.2.0/31", "bond1", "192.0.2.0"),
        route("198.51.2.0/24", ("192.0.2.1", "bond1")),
        ports=(*bonded("leaf", "e1", "e2", bond="bond1"), port("e9")),
        advertised=told["leaf"],
        hash=HashSettings("linux", seed=7, extra={"policy": 1, "fields": 7}),
    )
    spine = a_switch(
        "s",
        connected("192.0.2.0/31", "bond1", "192.0.2.1"),
        connected("198.51.2.0/24", "e9", "198.51.2.1"),
        ports=(*bonded("s", "e1", "e2", bond="bond1"), port("e9")),
        advertised=told["s"],
        hash=HashSettings("linux", seed=8, extra={"policy": 1, "fields": 7}),
    )
    fabric, notes = made(leaf, spine)
    assert [each and each.seed for each in fabric.hash_settings] == [None, 8]
    assert ("not represented", "") in notes
    state = Reread(fabric)
    state.update(leaf, "now")
    assert next_nodes(state.fabric, "leaf", "s:e9") == ["s", "s"]
    assert state.fabric.hash_settings[0] is None


def test_a_bond_without_lldp_is_one_link():
    one, two = (
        a_switch(
            name,
            connected("192.0.2.0/31", "bond0", f"192.0.2.{i}"),
            connected(f"198.51.{i}.0/24", "e9", f"198.51.{i}.1"),
            ports=(*bonded(name, "e1", "e2"), port("e9")),
        )
        for i, name in enumerate(("one", "two"))
    )
    fabric, _ = made(one, two)
    assert "one bond0 - two bond0" in set(cables(fabric))


def test_both_cables_of_a_bond_to_one_leaf_are_one_link_of_their_rate():
    told = lldp((("host", "f0"), ("leaf", "e1")), (("host", "f1"), ("leaf", "e2")))
    host = a_host(
        "host", "198.51.1.10", "198.51.1.1", "bond0",
        interfaces=bonded("host", "f0", "f1"), advertised=told["host"],
    )  # fmt: skip
    leaf = a_switch(
        "leaf",
        connected("198.51.1.0/24", "Vlan100", "198.51.1.1"),
        connected("198.51.9.0/24", "e9", "198.51.9.1"),
        ports=(*bonded("leaf", "e1", "e2", bond="Port-Channel1"), port("Vlan100"), port("e9")),
        advertised=told["leaf"],
    )
    fabric, notes = made(leaf, host)
    assert sorted(cables(fabric)) == ["host bond0 - leaf Port-Channel1", "leaf e9 - leaf:e9"]
    assert fabric.links.rate_bits_per_second[0] == 2 * 10**11
    assert notes == {("not represented", "leaf")}


@pytest.mark.parametrize("svi", ["Vlan100", "Vlanif100", "irb.100", "vlan100"])
def test_a_vlan_interface_leads_to_the_port_that_the_neighbour_table_names(svi):
    """Without LLDP: ARP of the leaf has the access ports."""
    hosts = [
        a_host(
            f"host{i}", f"198.51.1.{i}", "198.51.1.254",
            interfaces=(port("rdma0", f"02:00:00:00:00:0{i}", f"198.51.1.{i}/24"),),
        )
        for i in (1, 2, 3)
    ]  # fmt: skip
    leaf = a_switch(
        "leaf",
        connected("198.51.1.0/24", svi, "198.51.1.254"),
        connected("198.51.9.0/24", "e9", "198.51.9.1"),
        ports=(*(port(f"e{i}") for i in (1, 2, 3, 9)), port(svi, "02:00:00:00:00:ff")),
        resolved=tuple(resolved(f"e{i}", f"02:00:00:00:00:0{i}") for i in (1, 2, 3)),
    )
    fabric, notes = made(leaf, *hosts)
    assert sorted(cables(fabric))[:3] == [f"host{i} rdma0 - leaf e{i}" for i in (1, 2, 3)]
    assert not notes


def test_two_vlan_interfaces_are_no_cable():
    """Two leaves with the same VLAN, whose hosts nobody asked: the network is one host of both."""
    leaves = [
        a_switch(
            f"leaf{i}",
            connected("198.51.1.0/24", "Vlan100", "198.51.1.1"),
            connected(f"192.0.2.{2 * i}/31", "e1", f"192.0.2.{2 * i}"),
            ports=(port("e1"), port("e2"), port("Vlan100")),
        )
        for i in (1, 2)
    ]
    spine = a_switch(
        "spine",
        *(connected(f"192.0.2.{2 * i}/31", f"e{i}", f"192.0.2.{2 * i + 1}") for i in (1, 2)),
        route("198.51.1.0/24", ("192.0.2.2", "e1"), ("192.0.2.4", "e2")),
    )
    fabric, notes = made(*leaves, spine)
    assert sorted(cables(fabric)) == [
        "198.51.1.0/24 - leaf1 Vlan100",
        "198.51.1.0/24 - leaf2 Vlan100",
        "leaf1 e1 - spine e1",
        "leaf2 e1 - spine e2",
    ]
    assert next_nodes(fabric, "spine", "198.51.1.0/24") == ["leaf1", "leaf2"]
    assert not notes


def test_a_vlan_between_two_switches_leads_over_the_cables_of_its_port_channel():
    """The peer link of an MLAG pair: routes name the VLAN, LLDP names the cables."""
    told = lldp((("leaf1", "e1"), ("leaf2", "e1")), (("leaf1", "e2"), ("leaf2", "e2")))
    leaves = [
        a_switch(
            f"leaf{i}",
            connected("192.0.2.0/31", "Vlan4094", f"192.0.2.{i - 1}"),
            connected(f"198.51.{i}.0/24", "e9", f"198.51.{i}.1"),
            route(f"198.51.{3 - i}.0/24", (f"192.0.2.{2 - i}", "Vlan4094")),
            ports=(
                *bonded(f"leaf{i}", "e1", "e2", bond="Port-Channel1"), port("Vlan4094"), port("e9"),
            ),
            advertised=told[f"leaf{i}"],
        )
        for i in (1, 2)
    ]  # fmt: skip
    fabric, notes = made(*leaves)
    assert next_nodes(fabric, "leaf1", "leaf2:e9") == ["leaf2", "leaf2"]
    assert sorted(cables(fabric))[:2] == ["leaf1 e1 - leaf2 e1", "leaf1 e2 - leaf2 e2"]
    assert not {kind for kind, _ in notes} & {"conflict", "next hop"}


def test_one_neighbour_of_several_protocols():
    """The same port by name and by MAC address; another port of the same device is another."""
    spine = device("spine", interfaces=(port("e7", "02:00:00:00:00:07"), port("e8")))

    def of_leaf(*far):
        leaf = device(
            "leaf",
            connected("198.51.1.0/24", "e9", "198.51.1.1"),
            advertised=tuple(heard("e1", "spine", port_id) for port_id in far),
        )
        fabric, notes = made(leaf, spine)
        return {kind for kind, _ in notes}, set(cables(fabric))

    notes, found = of_leaf("e7", "02:00:00:00:00:07")
    assert "leaf e1 - spine e7" in found
    assert "several neighbours" not in notes
    notes, found = of_leaf("e7", "e8")
    assert notes == {"several neighbours"}


def test_hosts_are_in_the_order_of_their_numbers(sites, tmp_path):
    folder = tmp_path / "answers"
    folder.mkdir()
    for file in (sites / "svi").glob("host1.*"):
        for number in (2, 10, 1):
            (folder / file.name.replace("host1", f"host{number}")).write_bytes(file.read_bytes())
    answers, _ = read_folder(folder)
    assert [each.device.name for each in answers] == ["host1", "host2", "host10"]
