"""Traced paths of real routers: recorded answers, and captures of a leaf-spine fabric."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from answers import recorded, routers_of, traffic_of, truth

from rocescope.discovery.discover import discover_folder
from rocescope.discovery.tracing.trace import Verify, trace
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.strategies.registry import parse_strategy
from rocescope.replay.traffic.observed import traffic_from_capture

SINGLE = [["spine2", "swp2"]]
"""The way from spine2 to leaf1 without swp1."""


@pytest.mark.parametrize("name", ["healthy", "flapped"])
def test_paths_of_a_discovered_fabric(name, tmp_path):
    folder = recorded(tmp_path)
    fabric = discover_folder(folder / name, 10**10, 500).fabric
    flows = truth(folder, name)
    result = trace(traffic_of(fabric, flows), fabric, [parse_strategy("static")], ["x"])
    assert result.complete_flows == len(result.flows) == 256
    assert not result.open_ends
    # Leaves choose one of four uplinks and spines one of two; after the flap spine2 has one left.
    single = [f for f in flows if name == "flapped" and f["path"][1:] == [*SINGLE, f["path"][2]]]
    assert bool(single) == (name == "flapped")
    assert result.hops == {
        "captured": 0,
        "asked": 0,
        "single next hop": 512 + len(single),
        "computed, seed read": 512 - len(single),
        "computed, seed recovered": 0,
    }
    numbers = {fabric.link_name(i): i for i in range(len(fabric.links.source))}
    used: Counter[str] = Counter()
    for flow, expected in zip(result.flows, flows, strict=True):
        assert (flow.src, flow.dst, flow.src_port) == tuple(
            expected[key] for key in ("src", "dst", "sport")
        )
        ports = [
            fabric.origin.ports[numbers[link] // 2][numbers[link] % 2] for link in flow.links[1:]
        ]
        assert ports == [port for _, port in expected["path"]]
        used.update(flow.links)
    traced, static = result.loads.strategies
    assert {link.name: link.flows for link in traced.links} == {
        link.name: used[link.name] for link in traced.links
    }
    assert traced.fim_percent > static.fim_percent


def test_a_switch_without_a_seed_ends_the_paths(tmp_path):
    folder = recorded(tmp_path)
    (folder / "healthy" / "leaf1.sysctl").unlink()
    fabric = discover_folder(folder / "healthy", 10**10, 500).fabric
    flows = truth(folder, "healthy")
    result = trace(traffic_of(fabric, flows), fabric, [], ["x"])
    from_leaf1 = sum(flow["path"][0][0] == "leaf1" for flow in flows)
    (end,) = result.open_ends
    assert (end.switch, end.flows) == ("leaf1", from_leaf1)
    assert result.complete_flows == 256 - from_leaf1
    assert result.loads.traffic.flows == result.complete_flows


def test_counters_of_which_nothing_is_known_are_not_checked(tmp_path):
    """Two readings without a common port, or all counters began again."""
    folder = recorded(tmp_path)
    fabric = discover_folder(folder / "healthy", 10**10, 500).fabric
    units = traffic_of(fabric, truth(folder, "healthy"))
    result = trace(units, fabric, [], ["x"], verify=Verify(grown={}))
    assert result.counters.links_checked == 0
    used = {link for flow in result.flows for link in flow.links}
    assert set(result.counters.links_not_checked) == used
    assert trace(units, fabric, [], ["x"]).counters is None


@pytest.fixture(scope="module")
def run(data):
    return data / "leafspine" / "r01_clean_write"


@pytest.fixture(scope="module")
def routers(run, tmp_path_factory):
    """The fabric of the tables in topology.json."""
    topology = json.loads((run / "topology.json").read_text())
    return parse_fabric(f"linux:{routers_of(topology, tmp_path_factory.mktemp('tables'))},rate=10G")


def test_traced_paths_are_the_captured_ones(run, routers):
    """From captures at the hosts alone, against the captures of the four uplinks of leaf1."""
    files = sorted(map(str, run.glob("H*.pcap.xz")))
    result = trace(traffic_from_capture(files, routers), routers, [], files)
    assert result.complete_flows == len(result.flows) == 96
    assert result.hops["computed, seed read"] == 96
    captured = {
        (flow.src, flow.dst, flow.dest_qp, flow.src_port): f"spine{spine}"
        for spine in range(1, 5)
        for flow in trace(
            traffic_from_capture([str(run / f"leaf1-spine{spine}.pcap.gz")], routers),
            routers, [], ["x"],
        ).flows
    }  # fmt: skip
    assert len(captured) == 96
    for flow in result.flows:
        spine = captured[flow.src, flow.dst, flow.dest_qp, flow.src_port]
        assert [link for link in flow.links if link.endswith(f">{spine}")]


def test_taps_on_the_uplinks_prove_the_paths(run, routers):
    files = sorted(map(str, run.glob("*.pcap.*z")))
    result = trace(traffic_from_capture(files, routers), routers, [], files)
    assert result.complete_flows == 96
    assert result.hops["computed, seed read"] == 48  # at leaf2, whose uplinks are not in the data
    assert result.hops["captured"] == 96
    assert not result.contradicted_flows
