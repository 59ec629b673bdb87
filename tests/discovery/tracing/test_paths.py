"""Paths against a plain twin, and the evidence of taps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from replay_traffic import random_traffic, traffic
from router_namespaces import ip
from traced_lab import lab, units_of, ways_of

from rocescope.discovery.tracing.paths import (
    CAPTURED,
    CIRCLE,
    COMPUTED,
    IPV4_ONLY,
    KNOWN,
    NO_HASH,
    NO_ROUTE,
    NO_TABLES,
    NOT_SEEN,
    RECOVERED,
    SEVERAL_LINKS,
    SEVERAL_PORTS,
    SINGLE,
    trace_paths,
)
from rocescope.replay.fabrics.fabric import Origin
from rocescope.replay.fabrics.forwarding import Forwarding
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.fabrics.routes import edge_per_host
from rocescope.replay.hashing.models import bind
from rocescope.replay.hashing.settings import Group, HashSettings
from rocescope.replay.traffic.traffic import Seen

HASHES = st.one_of(
    st.none(),
    st.builds(lambda seed: HashSettings("linux", seed=seed), st.integers(0, 3)),
    st.builds(lambda seed: HashSettings("crc32", seed=seed), st.integers(0, 1 << 32 - 1)),
)


def twin(fabric, units, i, read):
    """(links, reason, switch) of unit i, by loops."""
    host, edge = int(units.src_host[i]), int(fabric.attachments.edge[units.dst_host[i]])
    if units.keys.ipv6[i] and fabric.forwarding.ipv6_from:
        edge += fabric.forwarding.ipv6_from
    first = int(fabric.attachments.switch[host, 0])
    attached = fabric.attachments.switch[units.dst_host[i], 0] == first
    if not attached and not len(fabric.group(first, edge)[0]):
        return [], NO_ROUTE if read[first] else NO_TABLES, first
    links, visited = [int(fabric.attachments.access_link[host, 0])], set()
    while True:
        at = int(fabric.links.target[links[-1]])
        if at == fabric.switches + units.dst_host[i]:
            return links, KNOWN, -1
        if at in visited:
            return links, CIRCLE, at
        visited.add(at)
        if not read[at]:
            return links, NO_TABLES, at
        if fabric.attachments.switch[units.dst_host[i], 0] == at:
            links.append(int(fabric.attachments.exit_link[units.dst_host[i], 0]))
            continue
        members, weights = fabric.group(at, edge)
        own = fabric.hash_settings[at]
        if len(members) == 0:
            return links, NO_ROUTE, at
        if len(members) == 1:
            links.append(int(members[0]))
        elif own is None or (own.model == "linux" and own.seed == 0):
            return links, NO_HASH, at
        else:
            hashed = bind(units.keys.take(np.array([i])), own)
            links.append(int(members[int(hashed.choose(own.seed, Group(weights))[0, 0])]))


@examples(40)
@given(st.data())
def test_the_walk_and_its_twin(data):
    leaves, spines = data.draw(st.integers(2, 3)), data.draw(st.integers(1, 4))
    uplinks = data.draw(st.integers(1, 2))
    spec = f"leaf-spine:leaves={leaves},spines={spines},hosts=2,uplinks={uplinks}"
    fabric = parse_fabric(spec)
    hashes = data.draw(st.lists(HASHES, min_size=leaves + spines, max_size=leaves + spines))
    read = data.draw(st.lists(st.booleans(), min_size=leaves + spines, max_size=leaves + spines))
    cables = len(fabric.links.source) // 2
    tables = tuple("ip -j route" if told else "" for told in read)
    origin = Origin((("", ""),) * cables, ("",) * cables, tables)
    fabric = replace(fabric, hash_settings=tuple(hashes), origin=origin)
    units = random_traffic(fabric, 30, data.draw(st.integers(0, 1000)))
    found = trace_paths(units, fabric)
    for i in range(len(units)):
        links, reason, switch = twin(fabric, units, i, read)
        row = found.placement.links[i]
        assert row[row >= 0].tolist() == links
        assert (int(found.reason[i]), int(found.switch[i])) == (reason, switch)
        assert found.placement.dropped[i] == (reason != KNOWN)
        assert ((found.evidence[i] > 0) == (row >= 0)).all()


@st.composite
def routed(draw):
    """A fabric of three layers whose switches have any groups: of one member, with weights, with
    parallel links, back where packets came from, in circles, or no route."""
    uplinks = draw(st.integers(1, 2))
    fabric = parse_fabric(
        draw(st.sampled_from([f"leaf-spine:leaves=3,spines=2,hosts=2,uplinks={uplinks}",
                              "fat-tree:k=4"]))
    )  # fmt: skip
    fabric = edge_per_host(fabric)  # a route of its own for every host
    rng = np.random.default_rng(draw(st.integers(0, 1 << 20)))
    changed, none = draw(st.sampled_from([0.05, 0.3, 1.0])), draw(st.sampled_from([0.0, 0.1]))
    source, target = fabric.links.source, fabric.links.target
    start, links, weights = [0], [], []
    edges = fabric.forwarding.group_of.shape[1]
    families = draw(st.sampled_from([1, 2]))
    group_of = np.full((fabric.switches, families * edges), -1, np.int32)
    for switch, column in np.ndindex(*group_of.shape):
        edge = column % edges
        members, shares = fabric.group(switch, edge)
        if rng.random() < none or fabric.attachments.switch[edge, 0] == switch:
            continue
        if rng.random() < changed:
            out = np.flatnonzero((source == switch) & (target < fabric.switches))
            members = rng.permutation(out)[: rng.integers(1, len(out) + 1)]
            shares = rng.integers(1, 4, len(members))
        links += members.tolist()
        weights += shares.tolist()
        start.append(len(links))
        group_of[switch, column] = len(start) - 2
    columns = np.array(start), np.array(links, np.int32), np.array(weights, np.int64)
    own = Forwarding(*columns, group_of, ipv6_from=edges if families == 2 else 0)
    return replace(fabric, forwarding=own, routed=False)


@examples(40)
@given(routed(), st.data())
def test_the_walk_over_any_tables_and_its_twin(fabric, data):
    n = fabric.switches
    hashes = data.draw(st.lists(HASHES, min_size=n, max_size=n))
    read = data.draw(st.lists(st.sampled_from([True, True, True, False]), min_size=n, max_size=n))
    cables = len(fabric.links.source) // 2
    tables = tuple("ip -j route" if told else "" for told in read)
    origin = Origin((("", ""),) * cables, ("",) * cables, tables)
    fabric = replace(fabric, hash_settings=tuple(hashes), origin=origin)
    units = random_traffic(fabric, 12, data.draw(st.integers(0, 1000)))
    six = np.array(data.draw(st.lists(st.booleans(), min_size=12, max_size=12)))
    units = replace(units, keys=units.keys._replace(ipv6=six))
    found = trace_paths(units, fabric)
    for i in range(len(units)):
        links, reason, switch = twin(fabric, units, i, read)
        row = found.placement.links[i]
        assert (row[row >= 0].tolist(), int(found.reason[i])) == (links, reason)
        assert int(found.switch[i]) == switch
        assert found.placement.dropped[i] == (reason != KNOWN)
        assert ((found.evidence[i] > 0) == (row >= 0)).all()


@pytest.fixture
def fabric():
    """Two leaves, four spines, one host each; all seeds known."""
    made = parse_fabric("leaf-spine:leaves=2,spines=4,hosts=1")
    own = tuple(HashSettings("linux", seed=7 + i) for i in range(made.switches))
    return replace(made, hash_settings=own)


def spines(found, fabric):
    return [fabric.link_name(link) for link in found.placement.links[:, 1].tolist()]


def with_seen(units, *rows):
    """rows: (tap, unit)."""
    taps = tuple(dict.fromkeys(tap for tap, _ in rows))
    unit = np.array([unit for _, unit in rows], np.int32)
    tap = np.array([taps.index(name) for name, _ in rows], np.int32)
    ones = np.ones(len(rows), np.int64)
    return replace(units, seen=Seen(taps, unit, tap, ones, ones))


def test_evidence_of_single_and_computed_hops(fabric):
    found = trace_paths(traffic(fabric, [0], [1]), fabric)
    assert found.evidence.tolist() == [[SINGLE, COMPUTED, SINGLE, SINGLE]]


def test_a_recovered_seed_is_named_and_changes_no_path(fabric):
    units = traffic(fabric, [0, 1, 0], [1, 0, 1])
    plain = trace_paths(units, fabric)
    own = [replace(one, seed_recovered=True) for one in fabric.hash_settings]
    found = trace_paths(units, replace(fabric, hash_settings=tuple(own)))
    assert (found.placement.links == plain.placement.links).all()
    assert COMPUTED in plain.evidence
    assert (found.evidence == np.where(plain.evidence == COMPUTED, RECOVERED, plain.evidence)).all()


def test_a_tap_is_the_best_evidence_and_decides(fabric):
    units = traffic(fabric, [0, 0], [1, 1])
    computed = spines(trace_paths(units, fabric), fabric)
    other = next(f"leaf1>spine{i}" for i in range(1, 5) if f"leaf1>spine{i}" != computed[0])
    tap = other.replace(">", "-") + ".pcap"
    found = trace_paths(with_seen(units, (tap, 0)), fabric)
    assert spines(found, fabric)[0] == other
    assert found.evidence[0].tolist() == [SINGLE, CAPTURED, SINGLE, SINGLE]
    assert found.contradicted.tolist() == [True, False]
    blind = replace(fabric, hash_settings=(None,) * fabric.switches)
    found = trace_paths(with_seen(units, (tap, 0)), blind)
    assert not found.contradicted.any()
    assert found.reason.tolist() == [KNOWN, NO_HASH]


def test_a_tap_shows_the_way_through_a_switch_without_tables(fabric):
    cables = len(fabric.links.source) // 2
    tables = ("", *["ip -j route"] * (fabric.switches - 1))
    origin = Origin((("", ""),) * cables, ("",) * cables, tables)
    fabric = replace(fabric, origin=origin)
    units = traffic(fabric, [0, 0], [1, 1])
    found = trace_paths(with_seen(units, ("leaf1-spine3", 0)), fabric)
    assert found.reason.tolist() == [KNOWN, NO_TABLES]
    assert spines(found, fabric)[0] == "leaf1>spine3"


def test_packets_that_taps_should_have_seen(fabric):
    """A tap on the computed link did not see the unit: the computed link is not shown as a path."""
    units = traffic(fabric, [0, 0], [1, 1])
    computed = spines(trace_paths(units, fabric), fabric)[0].replace(">", "-")
    found = trace_paths(with_seen(units, (computed, 1)), fabric)
    assert found.reason[0] == NOT_SEEN
    assert fabric.nodes.names[found.switch[0]] == "leaf1"
    assert found.placement.dropped[0]


def test_a_single_next_hop_whose_tap_saw_nothing(fabric):
    """Taps of the spines' links only: the unit passed another spine than the computed one."""
    units = traffic(fabric, [0, 0], [1, 1])
    spine = spines(trace_paths(units, fabric), fabric)[0].split(">")[1]
    other = next(f"spine{i}" for i in range(1, 5) if f"spine{i}" != spine)
    found = trace_paths(with_seen(units, (f"{spine}-leaf2", 1), (f"{other}-leaf2", 0)), fabric)
    assert (found.reason[0], fabric.nodes.names[found.switch[0]]) == (NOT_SEEN, spine)
    one_way = with_seen(units, (f"{spine}-leaf2 in", 1), (f"{other}-leaf2", 0))
    found = trace_paths(one_way, fabric)  # it tells only that they came to leaf2 by another spine
    assert (found.reason[0], fabric.nodes.names[found.switch[0]]) == (SEVERAL_LINKS, "leaf2")


def test_a_unit_on_several_links_has_no_path(fabric):
    units = traffic(fabric, [0], [1])
    found = trace_paths(with_seen(units, ("leaf1-spine1", 0), ("leaf1-spine2", 0)), fabric)
    assert (found.reason[0], fabric.nodes.names[found.switch[0]]) == (SEVERAL_LINKS, "leaf1")


def test_a_unit_also_on_a_link_that_left_the_group(fabric):
    """As after a reroute: the tables have one link, the capture two."""
    units = traffic(fabric, [0], [1])
    fabric = fabric.down(["leaf1-spine2"])
    found = trace_paths(with_seen(units, ("leaf1-spine1", 0), ("leaf1-spine2", 0)), fabric)
    assert (found.reason[0], fabric.nodes.names[found.switch[0]]) == (SEVERAL_LINKS, "leaf1")
    # Both ends of one way are no second link.
    both = with_seen(units, ("leaf1-spine1", 0), ("leaf2-spine1", 0))
    found = trace_paths(both, fabric)
    assert found.reason[0] == KNOWN
    assert found.evidence[0].tolist() == [SINGLE, CAPTURED, CAPTURED, SINGLE]


def test_hosts_with_several_ports_choose_themselves():
    planes = parse_fabric("multi-plane:planes=2,leaves=2,spines=2,hosts=1")
    found = trace_paths(traffic(planes, [0], [1]), planes)
    assert (found.reason.tolist(), found.switch.tolist()) == ([SEVERAL_PORTS], [-1])
    assert (found.placement.links < 0).all()


def test_a_switch_that_treats_ipv6_otherwise(fabric):
    cables = len(fabric.links.source) // 2
    tables = ("ip -j route",) * fabric.switches
    four = tuple(name == "leaf1" for name in fabric.nodes.names[: fabric.switches])
    fabric = replace(fabric, origin=Origin((("", ""),) * cables, ("",) * cables, tables, four))
    units = traffic(fabric, [0, 1], [1, 0])
    assert trace_paths(units, fabric).reason.tolist() == [KNOWN, KNOWN]
    six = replace(units, keys=units.keys._replace(ipv6=np.ones(2, np.bool_)))
    found = trace_paths(six, fabric)
    assert found.reason.tolist() == [IPV4_ONLY, KNOWN]
    assert fabric.nodes.names[found.switch[0]] == "leaf1"
    # leaf1 is the last switch of the second unit: the host is attached there.
    assert not found.placement.dropped[1]
    found = trace_paths(with_seen(six, ("leaf1-spine2", 0)), fabric)
    assert (found.reason[0], spines(found, fabric)[0]) == (KNOWN, "leaf1>spine2")


def test_no_route(fabric):
    down = fabric.down([f"leaf2-spine{i}" for i in range(1, 5)])
    found = trace_paths(traffic(down, [0], [1]), down)
    assert found.reason.tolist() == [NO_ROUTE]
    assert found.placement.dropped.all()


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("policy", [0, 1, 2, 3])
def test_paths_are_those_that_real_routers_take(policy, routers, tmp_path):
    """512 flows of each family, both directions, over weighted parallel links."""
    routers.set_routes(weight=lambda cable: 1 + 2 * (cable.parallel - 1))
    for number, node in enumerate(routers.routers):
        routers.hash_by(node, policy, 50 + 7 * number)
    fabric = routers.fabric(tmp_path / "answers")
    for family, source in ((4, 1), (4, 2), (6, 1), (6, 2)):
        keys = routers.flows(256, family, seed=policy, source=source)
        found = trace_paths(units_of(keys, fabric), fabric)
        assert not found.placement.dropped.any()
        taken = routers.ways(keys, source)
        assert ways_of(found.placement.links, fabric) == taken
        assert len({way[0] for way in taken}) == 4


@pytest.mark.usefixtures("root")
def test_the_next_hops_of_ipv6_may_come_in_another_order(routers, tmp_path):
    """As with BGP over numbered links: by link-local address. Paths of both families are exact."""
    routers.set_routes()
    for node in routers.routers:
        routers.hash_by(node, 1, 11)
    route, *hops = routers._route("leaf1", 2, 1, 6, lambda _: 1).split(" nexthop ")
    another = " nexthop ".join([route.replace("replace", "add"), *hops[::-1]])
    ip([route.replace("replace", "del"), another], routers.name("leaf1"))
    try:
        fabric = routers.fabric(tmp_path / "answers")
        assert fabric.origin.ipv4_only == ()
        for family in (4, 6):
            keys = routers.flows(256, family, seed=5)
            found = trace_paths(units_of(keys, fabric), fabric)
            assert not found.placement.dropped.any()
            assert ways_of(found.placement.links, fabric) == routers.ways(keys)
    finally:
        ip([route.replace("replace", "del")], routers.name("leaf1"))
        routers.set_routes()


@pytest.fixture(scope="module")
def routers(need_tool):
    need_tool("ip")
    with lab() as made:
        yield made
