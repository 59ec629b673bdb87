"""Links between devices, and contradictions between their sources."""

from __future__ import annotations

from answers import connected, device, heard, port, resolved, route

from rocescope.replay.fabrics.devices.cabling import find_links
from rocescope.replay.fabrics.devices.networks import connected_networks, owners


def cabling(*devices, left_out=()):
    return find_links(devices, connected_networks(devices), owners(devices), left_out)


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


def test_members_of_a_bond_are_one_link_and_members_of_a_bridge_several():
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
        ("leaf", "bond1", "spine", "bo"),
        ("leaf", "br0", "h1", "eth1"),
        ("leaf", "br0", "h2", "eth1"),
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
