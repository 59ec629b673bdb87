"""Advice, checked by doing what it says."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from replay_traffic import traffic

from rocescope.discovery.tracing.advise import advise
from rocescope.discovery.tracing.paths import trace_paths
from rocescope.replay.fabrics.fabric import Origin
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.hashing.settings import HashSettings


@pytest.fixture
def fabric():
    made = parse_fabric("leaf-spine:leaves=2,spines=4,hosts=4,rate=10G")
    return replace(
        made, hash_settings=tuple(HashSettings("linux", seed=5 + i) for i in range(made.switches))
    )


@pytest.fixture
def units(fabric):
    rng = np.random.default_rng(4)
    src = rng.integers(0, 4, 24)
    return traffic(fabric, src.tolist(), rng.integers(4, 8, 24).tolist(), 1_000_000)


def peak(units, fabric):
    """Nanoseconds of the busiest link between switches, link by link."""
    links = trace_paths(units, fabric).placement.links
    return max(
        int(units.wire_bytes[(links == link).any(1)].sum()) * 8e9 / 10e9
        for link in range(len(fabric.links.source))
        if max(fabric.links.source[link], fabric.links.target[link]) < fabric.switches
    )


def options(units, fabric):
    found = advise(units, fabric)
    assert found.busy_ns == peak(units, fabric)
    assert [one.busy_ns for one in found.options] == sorted(one.busy_ns for one in found.options)
    return {one.kind: one for one in found.options}


def test_source_ports_do_what_is_said(units, fabric):
    found = options(units, fabric)["source ports"]
    sport = units.keys.sport.copy()
    for change in found.changes:
        qp, old, new = re.search(r"QP 0x(\w+) .* UDP source port (\d+) to (\d+) ", change).groups()
        row = np.flatnonzero((units.keys.dest_qp == int(qp, 16)) & (sport == int(old)))
        assert len(row) == 1
        sport[row] = int(new)
    changed = replace(units, keys=units.keys._replace(sport=sport))
    assert peak(changed, fabric) == found.busy_ns < peak(units, fabric)
    # 24 equal flows on 4 uplinks: six each is the best that exists.
    assert found.busy_ns == 6 * 1_000_000 * 8e9 / 10e9


def test_a_seed_does_what_is_said(units, fabric):
    found = options(units, fabric)["seed"]
    (change,) = found.changes
    assert change.startswith("leaf1: sysctl -w net.ipv4.fib_multipath_hash_seed=")
    own = HashSettings("linux", seed=int(change.rpartition("=")[2]))
    at = fabric.nodes.names.index("leaf1")
    settings = list(fabric.hash_settings)
    settings[at] = own
    other = replace(fabric, hash_settings=tuple(settings))
    assert peak(units, other) == found.busy_ns < peak(units, fabric)


def test_routes_do_what_is_said(fabric):
    """Four flows on four uplinks, of which chance lets two or more share one."""
    drawn = (traffic(fabric, [0] * 4, [4, 5, 6, 7], 9_000_000, seed=seed) for seed in range(50))
    units = next(one for one in drawn if peak(one, fabric) > 9_000_000 * 0.8)
    found = options(units, fabric)["static routes"]
    before = peak(units, fabric)
    over = {}
    for change in found.changes:
        switch, address, spine = re.search(
            r"(\w+): ip route add ([\d.]+)/32 via ADDRESS \(ADDRESS: that of (\w+); host ", change
        ).groups()
        over[switch, fabric.host_of(address)] = spine
    links = trace_paths(units, fabric).placement.links.copy()
    for (switch, host), spine in over.items():
        assert switch == "leaf1"
        for row in np.flatnonzero(units.dst_host == host):
            links[row, 1] = fabric.find_links(f"{switch}>{spine}")[0]
            links[row, 2] = fabric.find_links(f"{spine}>leaf2")[0]
    busy = [
        int(units.wire_bytes[(links == link).any(1)].sum()) * 8e9 / 10e9
        for link in range(len(fabric.links.source))
        if max(fabric.links.source[link], fabric.links.target[link]) < fabric.switches
    ]
    assert max(busy) == found.busy_ns < before


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["e;reboot", "$(id)", "-batch", "a b", "swp"])
def test_only_plain_names_of_ports_are_part_of_a_command(fabric, name):
    ports = tuple((f"{name}{i}", f"{name}{i}") for i in range(len(fabric.links.source) // 2))
    origin = Origin(ports, ("",) * len(ports), ("ip -j route",) * fabric.switches)
    drawn = (traffic(fabric, [0] * 4, [4, 5, 6, 7], 9_000_000, seed=seed) for seed in range(50))
    units = next(one for one in drawn if peak(one, fabric) > 9_000_000 * 0.8)
    fabric = replace(fabric, origin=origin)
    changes = options(units, fabric)["static routes"].changes
    assert changes
    for change in changes:
        if name == "swp":
            assert re.search(r" via ADDRESS dev swp\d+ \(ADDRESS: that of spine", change)
        else:
            assert name not in change
            assert "the name of the port is left out" in change


def test_what_cannot_be_advised(fabric):
    one = advise(traffic(fabric, [0], [5]), fabric)
    assert one.options == []  # a single flow is on a link, wherever it goes
    local = advise(traffic(fabric, [0], [1]), fabric)
    assert (local.fullest_link, local.busy_ns, local.flows_left_out) == (None, None, 0)
    blind = replace(fabric, hash_settings=(None,) * fabric.switches)
    unknown = advise(traffic(fabric, [0], [5]), blind)
    assert (unknown.fullest_link, unknown.busy_ns, unknown.flows_left_out) == (None, None, 1)
    half = replace(fabric, hash_settings=(*fabric.hash_settings[:1], *([None] * 5)))
    both = advise(traffic(fabric, [0, 0, 5], [5, 6, 0]), half)
    assert both.flows_left_out == 1
