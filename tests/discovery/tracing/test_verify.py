"""Predicted bytes against counters of ports, of real routers and with known faults."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from replay_traffic import random_traffic, traffic
from traced_lab import lab, units_of

from rocescope.discovery.port_counters import Bytes, Port, growth, read_counters
from rocescope.discovery.tracing.paths import trace_paths
from rocescope.discovery.tracing.verify import verify_counters, verify_taps
from rocescope.replay.compare.summaries import mapped
from rocescope.replay.fabrics.fabric import Origin
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.hashing.settings import HashSettings
from rocescope.replay.traffic.observed import traffic_from_capture
from rocescope.replay.traffic.traffic import Seen

# Predicted bytes against counters of ports, of real routers and with known faults.

FRAME_BYTES = {4: 14 + 20 + 8 + 16, 6: 14 + 40 + 8 + 16}


@pytest.fixture(scope="module")
def fabric():
    made = parse_fabric("leaf-spine:leaves=2,spines=4,hosts=2")
    names, links = made.nodes.names, made.links
    ports = tuple(
        (f"to-{names[links.target[i]]}", f"to-{names[links.source[i]]}")
        for i in range(0, len(links.source), 2)
    )
    origin = Origin(ports, ("",) * len(ports), ("ip -j route",) * made.switches)
    own = tuple(HashSettings("linux", seed=3 + i) for i in range(made.switches))
    return replace(made, hash_settings=own, origin=origin)


def counted(units, fabric, background=0, devices=("leaf1", "leaf2", "spine1")):
    """The growth of counters, from the paths link by link."""
    grown = {}
    paths = trace_paths(units, fabric).placement.links
    names = fabric.nodes.names
    for link in range(len(fabric.links.source)):
        carried = int(units.wire_bytes[(paths == link).any(1)].sum()) + background
        near, far = (names[int(e[link])] for e in (fabric.links.source, fabric.links.target))
        for device, other, sends in ((near, far, True), (far, near, False)):
            if device in devices:
                port = Port(device, f"to-{other}")
                old = grown.get(port, Bytes(0, 0))
                grown[port] = (
                    old._replace(sent=carried) if sends else old._replace(received=carried)
                )
    return grown


@pytest.mark.parametrize("background", [0, 5000])
def test_counters_of_the_predicted_paths_agree(fabric, background):
    units = random_traffic(fabric, 200)
    grown = counted(units, fabric, background)
    check = verify_counters(units, fabric, trace_paths(units, fabric), grown)
    assert check.links_checked == check.links_agreeing == len(fabric.links.source)
    assert check.background_bytes == background
    assert not check.disagreements
    assert not check.links_not_checked


def test_a_flow_on_another_link_is_named(fabric):
    units = random_traffic(fabric, 40)
    sizes = units.wire_bytes.copy()
    unit = int(np.flatnonzero((trace_paths(units, fabric).placement.links >= 0).sum(1) == 4)[0])
    sizes[unit] = 1_000_000
    units = replace(units, wire_bytes=sizes)
    own = int(trace_paths(units, fabric).placement.links[unit, 1])
    grown = counted(units, fabric, 3000)
    names = fabric.nodes.names
    right, wrong = (
        Port(names[int(fabric.links.source[own])], f"to-spine{spine}")
        for spine in (int(names[int(fabric.links.target[own])][5:]), 4)
    )
    if right == wrong:
        wrong = wrong._replace(name="to-spine3")
    grown[right] = grown[right]._replace(sent=grown[right].sent - 1_000_000)
    grown[wrong] = grown[wrong]._replace(sent=grown[wrong].sent + 1_000_000)
    check = verify_counters(units, fabric, trace_paths(units, fabric), grown)
    assert {(one.device, one.port) for one in check.disagreements} == {right, wrong}
    assert check.links_agreeing == check.links_checked - 2


def test_open_paths_and_devices_that_were_not_read_are_not_checked(fabric):
    blind = replace(fabric, hash_settings=(None, *fabric.hash_settings[1:]))
    units = random_traffic(fabric, 100)
    grown = counted(units, fabric, devices=("leaf1", "leaf2"))
    check = verify_counters(units, blind, trace_paths(units, blind), grown)
    assert {f"leaf1>spine{i}" for i in range(1, 5)} < set(check.links_not_checked)
    assert "leaf2>spine1" not in check.links_not_checked
    assert not check.disagreements
    none = verify_counters(units, fabric, trace_paths(units, fabric), {})
    assert (none.links_checked, none.flows_too_small) == (0, 100)


def test_flows_below_the_limit_are_told(fabric):
    units = random_traffic(fabric, 30)
    units = replace(units, wire_bytes=np.where(np.arange(30) < 20, 300, 9_000_000))
    check = verify_counters(units, fabric, trace_paths(units, fabric), counted(units, fabric))
    assert check.flows_too_small >= 20


def test_a_background_that_could_hide_flows_is_no_agreement(fabric):
    units = random_traffic(fabric, 200)  # of at most 10,000 bytes
    check = verify_counters(
        units, fabric, trace_paths(units, fabric), counted(units, fabric, 500_000)
    )
    assert (check.links_checked, check.links_agreeing) == (0, 0)
    assert len(check.links_not_checked) == len(fabric.links.source)
    assert not check.disagreements
    assert check.flows_too_small == 200


MEGABYTE = 1_000_000


def equal_flows(fabric, flows):
    """Flows of one megabyte each."""
    units = random_traffic(fabric, flows)
    return replace(units, wire_bytes=np.full(flows, MEGABYTE))


@pytest.mark.parametrize("flows", [200, 2000])
@pytest.mark.parametrize("share", [0, 0.5, 0.9])
def test_counters_that_grew_too_little_disagree(fabric, flows, share):
    units = equal_flows(fabric, flows)
    grown = {
        port: Bytes(int(share * one.sent), int(share * one.received))
        for port, one in counted(units, fabric).items()
    }
    check = verify_counters(units, fabric, trace_paths(units, fabric), grown)
    assert check.background_bytes == 0
    assert check.links_agreeing == 0
    assert len(check.disagreements) == check.links_checked == len(fabric.links.source)


@pytest.mark.parametrize("flows", [200, 2000])
@pytest.mark.parametrize("factor", [1.5, 2])
def test_counters_that_grew_too_much_never_agree(fabric, flows, factor):
    """Their excess may be other traffic: no link is said to agree."""
    units = equal_flows(fabric, flows)
    grown = {
        port: Bytes(int(factor * one.sent), int(factor * one.received))
        for port, one in counted(units, fabric).items()
    }
    check = verify_counters(units, fabric, trace_paths(units, fabric), grown)
    assert check.links_agreeing == 0
    assert len(check.links_not_checked) + len(check.disagreements) == len(fabric.links.source)


def test_one_equal_flow_per_link_hides_no_doubled_counters(fabric):
    """The excess of all links is the same, as a background would be."""
    units = equal_flows(fabric, 1)
    paths = trace_paths(units, fabric)
    every = np.arange(len(fabric.links.source), dtype=np.int32)[None, :]
    paths = paths._replace(placement=paths.placement._replace(links=every))
    grown = {port: Bytes(2 * MEGABYTE, 2 * MEGABYTE) for port in counted(units, fabric)}
    assert verify_counters(units, fabric, paths, grown).links_agreeing == 0


@pytest.mark.parametrize("flows", [200, 2000])
@pytest.mark.parametrize("seed", [7, 900])
def test_counters_of_other_seeds_disagree(fabric, flows, seed):
    units = equal_flows(fabric, flows)
    settings = tuple(HashSettings("linux", seed=seed + i) for i in range(fabric.switches))
    grown = counted(units, replace(fabric, hash_settings=settings), 5000)
    check = verify_counters(units, fabric, trace_paths(units, fabric), grown)
    assert check.links_agreeing <= 2 * fabric.hosts  # links of hosts carry the same bytes
    assert len(check.disagreements) >= 4


@pytest.mark.thorough
@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("family", [4, 6])
def test_counters_of_real_routers(family, need_tool, tmp_path):
    need_tool("ip")
    with lab() as routers:
        fabric = routers.fabric(tmp_path / "before")
        keys = routers.flows(12, family)
        routers.ways(keys.take(np.arange(1800) % 12))
        routers.save(tmp_path / "after")
        grown = growth(*(read_counters(tmp_path / name) for name in ("before", "after")))
        units = units_of(keys, fabric, 150 * FRAME_BYTES[family])
        check = verify_counters(units, fabric, trace_paths(units, fabric), grown)
        assert check.links_checked == len(fabric.links.source)
        assert not check.disagreements
        assert not check.flows_too_small
        other = replace(
            fabric,
            hash_settings=tuple(
                own and replace(own, seed=own.seed + 1) for own in fabric.hash_settings
            ),
        )
        wrong = verify_counters(units, other, trace_paths(units, other), grown)
        assert len(wrong.disagreements) >= 2


# Predictions against captures of real routers: agreement, and hops that disagree.

SEED = 305_419_896


def fabric_of(spec, seed=7):
    fabric = parse_fabric(spec)
    own = tuple(HashSettings("linux", seed=seed) for _ in range(fabric.switches))
    return replace(fabric, hash_settings=own)


@pytest.fixture
def fabric_verify_taps():
    return fabric_of("leaf-spine:leaves=2,spines=4,hosts=2")


def with_seen(units, rows):
    taps = tuple(dict.fromkeys(tap for tap, _ in rows))
    unit = np.array([unit for _, unit in rows], np.int32)
    tap = np.array([taps.index(name) for name, _ in rows], np.int32)
    ones = np.ones(len(rows), np.int64)
    return replace(units, seen=Seen(taps, unit, tap, ones, ones))


def captured(units, fabric_verify_taps, keep=lambda name: True):
    """The units on all links between switches, as taps on the links see them."""
    links = trace_paths(units, fabric_verify_taps).placement.links
    rows = [
        (_tap(fabric_verify_taps, link & ~1), unit)
        for unit, row in enumerate(links.tolist())
        for link in row
        if link >= 0
        and max(fabric_verify_taps.links.source[link], fabric_verify_taps.links.target[link])
        < fabric_verify_taps.switches
    ]
    return with_seen(units, [row for row in rows if keep(row[0])])


def _tap(fabric_verify_taps, link):
    name = fabric_verify_taps.link_name(link).replace(">", "-")
    return name if "#" in name else f"{name}#1"


@pytest.mark.parametrize("seed", [SEED, 1])
def test_captures_of_real_routers(data, seed):
    files = sorted(map(str, (data / "leafspine" / "r01_clean_write").glob("*.pcap.*z")))
    fabric = fabric_of("leaf-spine:leaves=2,spines=4,hosts=2,rate=10G", seed)
    units, _ = mapped(traffic_from_capture(files, fabric, "order"), fabric)
    check = verify_taps(units, fabric)
    assert check.hops_checked == 96  # the four uplinks of leaf1
    if seed == SEED:
        assert (check.hops_agreeing, check.disagreeing_flows) == (96, 0)
    else:  # by chance one of four links is the right one
        assert 10 < check.hops_agreeing < 40
        assert check.disagreeing_flows == 96 - check.hops_agreeing
    assert "leaf2>spine1" in check.links_not_checked
    assert [tap.split("-")[0].rpartition("/")[2] for tap in check.taps_not_used] == [
        "H1", "H2", "H3", "H4"
    ]  # fmt: skip


def test_every_hop_agrees_on_parallel_links():
    fabric = fabric_of("leaf-spine:leaves=3,spines=2,hosts=2,uplinks=2")
    units = captured(random_traffic(fabric, 60), fabric)
    check = verify_taps(units, fabric)
    assert check.hops_agreeing == check.hops_checked > 60
    assert not check.disagreements
    assert not check.taps_not_used
    access = [name for name in check.links_not_checked if "host" not in name]
    assert not access


def test_a_flow_on_another_link_is_one_disagreement(fabric_verify_taps):
    units = traffic(fabric_verify_taps, [0, 0], [2, 3])
    own = [
        fabric_verify_taps.link_name(link)
        for link in trace_paths(units, fabric_verify_taps).placement.links[0]
    ]
    other = next(f"leaf1-spine{i}" for i in range(1, 5) if f"leaf1>spine{i}" != own[1])
    rows = [(other, 0), (other.replace("leaf1", "leaf2"), 0)]
    everywhere = [(f"leaf{i}-spine{s}", 1) for i in (1, 2) for s in range(1, 5)]
    check = verify_taps(with_seen(units, rows + everywhere), fabric_verify_taps)
    first, second = check.disagreements
    assert (first.predicted, first.captured) == (own[1], [other.replace("-", ">")])
    # The other flow was on its predicted links and on all others: sprayed.
    assert len(second.captured) == 3
    assert check.disagreeing_flows == 2


def test_a_tap_that_saw_nothing(fabric_verify_taps):
    units = traffic(fabric_verify_taps, [0, 1], [2, 3])
    own = fabric_verify_taps.link_name(
        int(trace_paths(units, fabric_verify_taps).placement.links[0, 1])
    )
    check = verify_taps(with_seen(units, [(own.replace(">", "-"), 1)]), fabric_verify_taps)
    assert ("", own) in [("".join(one.captured), one.predicted) for one in check.disagreements]


def test_only_taps_further_on_show_the_other_way(fabric_verify_taps):
    units = traffic(fabric_verify_taps, [0], [2])
    path = [
        fabric_verify_taps.link_name(link)
        for link in trace_paths(units, fabric_verify_taps).placement.links[0]
    ]
    other = next(f"spine{i}" for i in range(1, 5) if f"leaf1>spine{i}" != path[1])
    check = verify_taps(with_seen(units, [(f"leaf2-{other}", 0)]), fabric_verify_taps)
    assert check.hops_checked == 0
    (one,) = check.disagreements
    assert (one.predicted, one.captured) == (path[2], [f"{other}>leaf2"])


def test_a_path_that_is_not_known_predicts_nothing(fabric_verify_taps):
    blind = replace(fabric_verify_taps, hash_settings=(None,) * fabric_verify_taps.switches)
    units = traffic(fabric_verify_taps, [0], [2])
    check = verify_taps(with_seen(units, [("leaf1-spine1", 0), ("leaf1-spine2", 0)]), blind)
    assert (check.hops_checked, check.disagreeing_flows) == (0, 0)
    assert check.links_not_checked == ["host1>leaf1"]


def test_without_taps_nothing_is_checked(fabric_verify_taps):
    check = verify_taps(traffic(fabric_verify_taps, [0], [2]), fabric_verify_taps)
    assert (check.hops_checked, check.hops_not_checked) == (0, 4)
