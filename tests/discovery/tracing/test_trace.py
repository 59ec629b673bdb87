"""Loads in flows against a count by hand."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from ipaddress import ip_address

import jsonschema
import msgspec
import numpy as np
import pytest
from answers import recorded, routers_of, traffic_of, truth
from eos_answers import eos_answers
from router_namespaces import ip
from switch_lab import check_fabric
from traced_lab import lab, units_of

from rocescope.discovery.asking import COMMAND, Namespaces, Query, Said
from rocescope.discovery.dialects.registry import DIALECTS
from rocescope.discovery.discover import discover_folder
from rocescope.discovery.tracing.asking import (
    MOST_COMMANDS,
    NO_CALCULATOR,
    NOT_ASKED_ON,
    TOO_MANY,
    Asking,
    ports_told,
)
from rocescope.discovery.tracing.paths import ASKED, trace_paths
from rocescope.discovery.tracing.results import TraceResult
from rocescope.discovery.tracing.trace import Verify, changed, flow_loads, read_tables, trace
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.strategies.registry import parse_strategy
from rocescope.replay.traffic.observed import traffic_from_capture
from rocescope.report.files.results import encode, json_schema

# Loads in flows against a count by hand.

# Loads in flows against a count by hand.


def test_flows_per_link_and_layer(tmp_path):
    folder = recorded(tmp_path)
    fabric = discover_folder(folder / "healthy", 10**10, 500).fabric
    result = trace(traffic_of(fabric, truth(folder, "healthy")), fabric, [], ["x"])
    (traced,) = flow_loads(result.loads)
    counts = Counter(link for flow in result.flows for link in flow.links)
    assert {one.name: one.flows for one in traced.links if one.flows} == dict(counts)
    most = [one.flows for one in traced.links]
    assert most == sorted(most, reverse=True)
    assert traced.layers
    for layer in traced.layers:
        own = [one.flows for one in traced.links if one.layer == layer.layer]
        assert (layer.links, layer.flows) == (len(own), sum(own))
        assert layer.flows == sum(device.flows for device in layer.devices)


# Tables of real routers that change while their flows are traced.


@pytest.fixture(scope="module")
def routers(need_tool):
    need_tool("ip")
    with lab() as made:
        yield made


@pytest.mark.usefixtures("root")
def test_flows_through_a_switch_that_changed_are_marked(routers, tmp_path):
    fabric = routers.fabric(tmp_path / "answers")
    real, changes = Namespaces(routers.prefix), []

    def run(requests):
        """The link between leaf1 and spine2 fails when spines are asked."""
        if not changes and requests[0].device == "spine1" and requests[0].stdin:
            ip(["link set down1-1 down"], routers.name("spine2"))
            changes.append(1)
        return real(requests)

    units = units_of(routers.flows(200, 4), fabric)
    result = trace(units, fabric, [], ["x"], asking=Asking(run, "all"), watch=run)
    assert changes
    assert set(result.changed_switches) == {"leaf1", "spine2"}  # both ends lost the link
    assert result.changed_flows == 200  # all begin at leaf1
    assert all(flow.switch_changed for flow in result.flows)
    assert result.unwatched_switches == []
    ip(["link set down1-1 up"], routers.name("spine2"))


@pytest.mark.usefixtures("root")
def test_a_quiet_trace_marks_nothing(routers, tmp_path):
    fabric = routers.fabric(tmp_path / "answers")
    units = units_of(routers.flows(100, 6), fabric)
    result = trace(units, fabric, [], ["x"], watch=Namespaces(routers.prefix))
    assert result.changed_switches == []
    assert result.changed_flows == 0
    assert not any(flow.switch_changed for flow in result.flows)


@pytest.mark.usefixtures("root")
def test_only_flows_through_the_changed_spine_are_marked(routers, tmp_path):
    fabric = routers.fabric(tmp_path / "answers")
    real, calls = Namespaces(routers.prefix), []

    def run(requests):
        calls.append(requests)
        if len(calls) == 2:
            ip(["route add 10.99.0.0/24 dev down1-2"], routers.name("spine1"))
        return real(requests)

    units = units_of(routers.flows(200, 4), fabric)
    result = trace(units, fabric, [], ["x"], watch=run)
    assert result.changed_switches == ["spine1"]
    over = np.array([any(">spine1" in link for link in flow.links) for flow in result.flows])
    marked = np.array([flow.switch_changed for flow in result.flows])
    assert 0 < over.sum() < 200
    assert (over == marked).all()


@pytest.mark.usefixtures("root")
def test_flows_of_which_nothing_was_compared_are_not_called_unchanged(routers, tmp_path):
    fabric = routers.fabric(tmp_path / "answers")
    units = units_of(routers.flows(200, 4), fabric)
    blind = trace(units, fabric, [], ["x"])
    assert {flow.switch_changed for flow in blind.flows} == {None}
    assert (blind.changed_flows, blind.changed_switches) == (None, None)
    real = Namespaces(routers.prefix)

    def run(requests):
        return [
            Said(b"", "no route to host") if one.device == "spine1" else real([one])[0]
            for one in requests
        ]

    result = trace(units, fabric, [], ["x"], watch=run)
    assert result.unwatched_switches == ["spine1"]
    for flow in result.flows:
        over = any(">spine1" in link for link in flow.links)
        assert flow.switch_changed is (None if over else False)


@pytest.mark.usefixtures("root")
def test_idle_times_of_real_buckets_are_no_change(routers):
    leaf1 = routers.name("leaf1")
    cables = [cable for cable in routers.cables if cable.leaf == 1][:2]
    hops = [
        f"nexthop add id {10 + i} via {routers.address(cable, 1, 4)} dev {routers.up(cable)}"
        for i, cable in enumerate(cables)
    ]
    group = "nexthop add id 20 group 10/11 type resilient buckets 8 idle_timer 1000"
    ip([*hops, group], leaf1)
    run = Namespaces(routers.prefix)
    before = read_tables(run, ["leaf1"])
    assert len(before["leaf1"][-1]) == 8
    idle = routers.command("leaf1", "ip", "-j", "nexthop", "bucket")
    now = (routers.command("leaf1", "ip", "-j", "nexthop", "bucket") for _ in range(1000))
    assert any(one != idle for one in now)
    assert changed(before, read_tables(run, ["leaf1"])) == ([], [])
    ip(["nexthop replace id 20 group 10 type resilient idle_timer 1000"], leaf1)
    assert changed(before, read_tables(run, ["leaf1"])) == (["leaf1"], [])
    ip(["nexthop del id 20", "nexthop del id 10", "nexthop del id 11"], leaf1)


RESILIENT = b"""[{"id":10,"group":[{"id":1},{"id":2}],"type":"resilient",
    "resilient_args":{"buckets":2,"unbalanced_time":%d},"flags":[]}]"""
BUCKETS = b"""[{"id":10,"bucket":{"index":0,"idle_time":%d,"nhid":1},"flags":[]},
    {"id":10,"bucket":{"index":1,"idle_time":%d,"nhid":%d},"flags":[]}]"""


def told(groups, buckets):
    """The tables of a device that prints these groups and buckets (iproute2 6.1)."""
    answers = {"ip -j nexthop": groups, "ip -j nexthop bucket": buckets}

    def run(asked):
        return [answers.get(one.command, Said(b"[]", "")) for one in asked]

    return read_tables(run, ["r"])


@pytest.mark.usefixtures("root")
def test_a_bucket_that_moves_is_a_change():
    first = told(Said(RESILIENT % 0, ""), Said(BUCKETS % (1, 1, 1), ""))
    later = told(Said(RESILIENT % 3, ""), Said(BUCKETS % (4, 4, 1), ""))
    moved = told(Said(RESILIENT % 0, ""), Said(BUCKETS % (2, 0, 2), ""))
    assert changed(first, later) == ([], [])
    assert changed(first, moved) == (["r"], [])


@pytest.mark.usefixtures("root")
def test_a_device_without_the_command_for_buckets():
    """It is watched unless a group has buckets."""
    failed = Said(b"", 'exit status 255: Command "bucket" is unknown')
    plain = told(Said(b'[{"id":10,"group":[{"id":1},{"id":2}]}]', ""), failed)
    assert changed(plain, plain) == ([], [])
    blind = told(Said(RESILIENT % 0, ""), failed)
    assert changed(blind, blind) == ([], ["r"])


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("output", [b"{", b"[1]", b"[" * 100_000, b"\xff"])
def test_a_device_without_a_readable_answer_is_not_watched(output):
    before = read_tables(lambda asked: [Said(output, "")] * len(asked), ["leaf1"])
    assert changed(before, before) == ([], ["leaf1"])
    gone = read_tables(lambda asked: [Said(b"[]", "no route to host")] * len(asked), ["leaf1"])
    assert changed(gone, gone) == ([], ["leaf1"])


@pytest.mark.usefixtures("root")
def test_counters_of_routes_are_no_change():
    first, second = (
        read_tables(lambda asked, s=s: [Said(b'[{"dst":"::/0","expires":%d}]' % s, "")] * 4, ["r"])
        for s in (9, 8)
    )
    assert changed(first, second) == ([], [])


# Traced paths of real routers: recorded answers, and captures of a leaf-spine fabric.

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
def routers_trace(run, tmp_path_factory):
    """The fabric of the tables in topology.json."""
    topology = json.loads((run / "topology.json").read_text())
    return parse_fabric(f"linux:{routers_of(topology, tmp_path_factory.mktemp('tables'))},rate=10G")


def test_traced_paths_are_the_captured_ones(run, routers_trace):
    """From captures at the hosts alone, against the captures of the four uplinks of leaf1."""
    files = sorted(map(str, run.glob("H*.pcap.xz")))
    result = trace(traffic_from_capture(files, routers_trace), routers_trace, [], files)
    assert result.complete_flows == len(result.flows) == 96
    assert result.hops["computed, seed read"] == 96
    captured = {
        (flow.src, flow.dst, flow.dest_qp, flow.src_port): f"spine{spine}"
        for spine in range(1, 5)
        for flow in trace(
            traffic_from_capture([str(run / f"leaf1-spine{spine}.pcap.gz")], routers_trace),
            routers_trace, [], ["x"],
        ).flows
    }  # fmt: skip
    assert len(captured) == 96
    for flow in result.flows:
        spine = captured[flow.src, flow.dst, flow.dest_qp, flow.src_port]
        assert [link for link in flow.links if link.endswith(f">{spine}")]


def test_taps_on_the_uplinks_prove_the_paths(run, routers_trace):
    files = sorted(map(str, run.glob("*.pcap.*z")))
    result = trace(traffic_from_capture(files, routers_trace), routers_trace, [], files)
    assert result.complete_flows == 96
    assert result.hops["computed, seed read"] == 48  # at leaf2, whose uplinks are not in the data
    assert result.hops["captured"] == 96
    assert not result.contradicted_flows


# The JSON of a trace.


def test_a_trace_fits_its_schema_and_has_a_row_per_flow(tmp_path):
    folder = recorded(tmp_path)
    fabric = discover_folder(folder / "healthy", 10**10, 500).fabric
    result = trace(traffic_of(fabric, truth(folder, "healthy")), fabric, [], ["x"])
    data = encode(result, "json")
    jsonschema.validate(msgspec.json.decode(data), json_schema("trace"))
    assert msgspec.json.decode(data, type=TraceResult) == result
    rows = encode(result, "csv").decode().splitlines()
    assert len(rows) == 1 + 256
    assert rows[0].startswith("flow,src,dst,src_port,dest_qp,packets,wire_bytes,complete,links")


def test_names_of_devices_are_no_formulas_in_a_spreadsheet(tmp_path):
    folder = recorded(tmp_path)
    fabric = discover_folder(folder / "healthy", 10**10, 500).fabric
    names = ("=1+1" if name == "h1" else name for name in fabric.nodes.names)
    fabric = replace(fabric, nodes=fabric.nodes._replace(names=tuple(names)))
    flows = [flow for flow in truth(folder, "healthy") if flow["src"] == "10.1.1.10"]
    rows = encode(trace(traffic_of(fabric, flows), fabric, [], ["x"]), "csv").decode().splitlines()
    assert all(",'=1+1>leaf1 " in row for row in rows[1:])
    assert len(rows) > 1


# Questions to switches of several dialects at once.


def queries(number):
    src, dst = ip_address("10.1.1.2"), ip_address("10.1.2.2")
    return [Query(src, dst, 2000 + i, 4791, "swp3") for i in range(number)]


def answer(request):
    """Up 1 for even source ports, up 2 for odd ones, in the words of the system."""
    if request.command == COMMAND:
        lines = [line.split() for line in request.stdin.decode().splitlines()]
        return Said(b"".join(
            json.dumps([{"dst": w[2], "from": w[4], "iif": w[6],
                         "dev": f"up{1 + int(w[10]) % 2}"}]).encode() + b"\n" for w in lines
        ), "")  # fmt: skip
    sport = int(request.command.split("src-l4-port ")[1].split()[0])
    return Said(f"Output Interface: Ethernet{1 + sport % 2}\n".encode(), "")


def test_each_in_the_way_of_its_dialect():
    sent = []

    def run(requests):
        sent.extend(requests)
        return [answer(one) for one in requests]

    dialects = {"e": DIALECTS["eos"], "s": DIALECTS["sonic"], "f": DIALECTS["frr"]}
    asked = [(name, queries(3)) for name in ("e", "s", "f", "unknown")]
    told = ports_told(run, asked, dialects)
    assert [one.ports for one in told] == [
        ["Ethernet1", "Ethernet2", "Ethernet1"],
        [None, None, None],
        ["up1", "up2", "up1"],
        ["up1", "up2", "up1"],
    ]
    assert [one.problem for one in told] == ["", NO_CALCULATOR, "", ""]
    assert [one.device for one in sent] == ["f", "unknown", "e", "e", "e"]
    assert ports_told(run, [], dialects) == []


def test_the_zone_of_an_address_never_reaches_a_device():
    sent = []

    def run(requests):
        sent.extend(requests)
        return [Said(b"", "exit status 1") for _ in requests]

    zoned = ip_address("fd01::1%1\nroute del default\n#")
    dialects = {name: dialect for name, dialect in DIALECTS.items() if dialect.calculator}
    asked = [(name, [Query(zoned, zoned, 2000, 4791, "swp3")]) for name in (*dialects, "linux")]
    ports_told(run, asked, dialects)
    assert len(sent) == len(dialects) + 1 > 3
    for request in sent:
        assert "fd01::1 " in request.command + request.stdin.decode()
        assert b"del default" not in request.command.encode() + request.stdin


def test_problems_and_the_limit_of_commands():
    def run(requests):
        assert len(requests) <= MOST_COMMANDS
        said = [answer(one) for one in requests]
        return [Said(b"", "exit status 1"), Said(b"% odd\n", ""), *said[2:]]

    (told,) = ports_told(run, [("e", queries(3))], {"e": DIALECTS["eos"]})
    assert told.ports == [None, None, "Ethernet1"]
    assert told.problem.endswith("src-l4-port 2000 dst-l4-port 4791`: exit status 1")
    (told,) = ports_told(run, [("e", queries(MOST_COMMANDS + 9))], {"e": DIALECTS["eos"]})
    assert told.ports[-9:] == [None] * 9
    assert told.problem == TOO_MANY


def test_the_limit_counts_all_batches_of_a_switch():
    sent = []

    def run(requests):
        sent.extend(requests)
        return [answer(one) for one in requests]

    left = {}
    batches = [("e", queries(MOST_COMMANDS // 2))] * 5
    told = ports_told(run, batches, {"e": DIALECTS["eos"]}, left)
    assert [sum(p is not None for p in one.ports) for one in told] == [256, 256, 0, 0, 0]
    assert [one.problem for one in told] == ["", "", *[TOO_MANY] * 3]
    ports_told(run, batches, {"e": DIALECTS["eos"]}, left)
    assert len(sent) == MOST_COMMANDS
    assert {one.most_bytes for one in sent} == {64 << 10}


def test_a_switch_that_hangs_is_asked_a_few_times():
    sent = []

    def run(requests):
        sent.extend(requests)
        hangs = Said(b"", "not finished within 30 s")
        return [hangs if one.device == "hung" else answer(one) for one in requests]

    dialects = dict.fromkeys(["hung", "e"], DIALECTS["eos"])
    asked = [("hung", queries(100)), ("e", queries(20)), ("hung", queries(100))]
    hung, well, later = ports_told(run, asked, dialects)
    assert sum(one.device == "hung" for one in sent) == 4
    assert hung.ports == later.ports == [None] * 100
    assert hung.problem.endswith("not finished within 30 s")
    assert later.problem == NOT_ASKED_ON
    assert not well.problem
    assert None not in well.ports


def test_paths_that_eos_switches_name_and_those_of_silent_ones(tmp_path):
    fabric = check_fabric(tmp_path, eos_answers).fabric
    flows = [{"src": "10.1.1.2", "dst": "10.1.2.2", "sport": 49152 + i} for i in range(64)]
    traffic = traffic_of(fabric, flows)

    def run(requests):
        return [answer(one) for one in requests]

    eos = dict.fromkeys(fabric.nodes.names[: fabric.switches], DIALECTS["eos"])
    found = trace_paths(traffic, fabric, Asking(run, "all", eos))
    assert not found.placement.dropped.any()
    assert np.count_nonzero(found.evidence == ASKED) == 64
    taken = [fabric.link_name(int(link)) for link in found.placement.links[:, 1]]
    assert taken == [f"leaf1>spine{1 + i % 2}" for i in range(64)]

    sonic = dict.fromkeys(eos, DIALECTS["sonic"])
    asking = Asking(run, "all", sonic)
    found = trace_paths(traffic, fabric, asking)
    assert found.placement.dropped.all()
    assert asking.report().not_asked == {f"{NO_CALCULATOR} (SONiC)": 64}
    assert asking.report().switches == []
