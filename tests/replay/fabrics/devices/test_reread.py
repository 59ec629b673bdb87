"""A fabric whose switches are read again: real FRR routers before and after a link flap."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from answers import recorded, traffic_of, truth
from traced_lab import ways_of

from rocescope.replay.fabrics.devices.assemble import assemble
from rocescope.replay.fabrics.devices.reread import Reread
from rocescope.replay.fabrics.files.linux_tables import read_device, read_devices
from rocescope.replay.flows.placement import place
from rocescope.replay.hashing.settings import HashSettings

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
    assert state.update(dataclasses.replace(leaf1, routes=turned), "now")[0] is True
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
    assert own != spine2.routes
    assert state.update(dataclasses.replace(spine2, routes=own), "now")[0] is True
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
    other, notes = state.update(dataclasses.replace(leaf1, routes=tuple(routes)), "now")
    assert other
    assert {note.kind for note in notes} == {"next hop"}
    assert (state.fabric.forwarding.group_of[0] == -1).all()
