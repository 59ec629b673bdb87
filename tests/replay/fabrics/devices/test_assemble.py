"""Fabrics of devices: real FRR routers with BGP unnumbered, and special cases by hand."""

from __future__ import annotations

import dataclasses
import json
from ipaddress import ip_network

import numpy as np
import pytest
from answers import connected, device, recorded, route
from fabric_walking import hops
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.errors import UsageError
from rocescope.replay.fabrics.devices.assemble import Router, assemble
from rocescope.replay.fabrics.devices.topology import Topology
from rocescope.replay.fabrics.files.convert import json_bytes, yaml_bytes
from rocescope.replay.fabrics.files.linux_tables import read_devices
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.flows.checks.fabric_check import check_fabric


def made(*devices):
    return assemble("lab", devices, 10**10, 500, "tables", strict=True)


def leaf(*more, **answers):
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
    fabric = made(leaf(TO_SPINE), SPINE).fabric
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
    found = made(leaf(TO_SPINE, six), SPINE)
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
    fabric = made(leaf(TO_SPINE, six), SPINE).fabric
    assert links_to(fabric, 0, 1, 4)
    assert links_to(fabric, 0, 1, 6) == []
    file = tmp_path / "fabric.json"
    file.write_bytes(json_bytes(fabric))
    assert links_to(parse_fabric(str(file)), 0, 1, 6) == []


def test_routes_of_ipv6_that_were_not_read():
    """Some device tells routes of IPv6, so that packets of IPv6 can reach the one without."""
    spine = dataclasses.replace(
        SPINE, routes=(*SPINE.routes, route("fd10:1::/64", ("172.16.0.2", "swp2")))
    )
    fabric = made(leaf(TO_SPINE), spine).fabric
    assert fabric.origin.ipv4_only == (True, False)
    assert made(leaf(TO_SPINE), SPINE).fabric.origin.ipv4_only == ()


def test_a_hash_of_ipv4_alone_is_marked():
    hashed = made(leaf(TO_SPINE), dataclasses.replace(SPINE, ipv4_only=True)).fabric
    assert hashed.origin.ipv4_only == (False, True)


def test_a_next_hop_that_leads_nowhere_may_be_a_note():
    devices = (leaf(route("10.2.0.0/24", ("172.16.0.1", "up1"), ("9.9.9.9", "up3"))), SPINE)
    found = assemble("lab", devices, 10**10, 500, "tables", strict=False)
    (note,) = found.notes
    assert (note.kind, note.device) == ("next hop", "leaf")
    assert note.text.startswith("no route to 10.2.0.0/24: here: the next hop 9.9.9.9 on up3")
    assert not hops(found.fabric, "leaf", "spine:swp3")  # part of a group is no group
    assert hops(found.fabric, "spine", "leaf:down1")


def test_a_route_over_the_management_network_is_no_route_of_the_fabric():
    default = route("0.0.0.0/0", ("192.168.0.254", "eth0"))
    lan = connected("192.168.0.0/24", "eth0", "192.168.0.2")
    spine = dataclasses.replace(SPINE, routes=(*SPINE.routes, lan))
    fabric = made(leaf(default, connected("192.168.0.0/24", "eth0", "192.168.0.1")), spine).fabric
    assert not hops(fabric, "leaf", "spine:swp3")
    assert "via 192.168.0.254" not in fabric.nodes.names


def test_mistakes():
    with pytest.raises(UsageError, match="two devices have the name 'leaf'"):
        made(leaf(), leaf())
    with pytest.raises(UsageError, match="the next hop 9.9.9.9 on up3 of leaf is on no connected"):
        made(leaf(route("10.2.0.0/24", ("9.9.9.9", "up3"))), SPINE)


def test_remarks_of_devices_are_told():
    found = made(leaf(TO_SPINE, remarks=("it is strange",)), SPINE)
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
    expected = None
    for target in wanted:
        around = [r for r in one.routes if target.subnet_of(r.network)]
        if around:
            expected = max(around, key=lambda r: r.network.prefixlen)
            break
    router = Router(made(leaf()).fabric, {}, Topology(), {}, False)
    assert router._lookup(one, wanted) is expected
