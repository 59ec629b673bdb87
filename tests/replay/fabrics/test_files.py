"""Topologies of containerlab."""

from __future__ import annotations

import json
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from fabric_texts import LAB
from fabric_texts import SPECS as CONVERT_SPECS
from fabric_walking import next_nodes

from rocescope.analyzer.errors import UsageError
from rocescope.replay.fabrics.files import graphml_bytes, json_bytes, yaml_bytes
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.fabrics.routes import edge_per_host
from rocescope.replay.fabrics.sources import load_json, load_yaml

# Topologies of containerlab.

# Topologies of containerlab.

CLAB = """\
name: srl02
topology:
  kinds: {nokia_srlinux: {image: ghcr.io/nokia/srlinux}}
  nodes:
    leaf1: {kind: nokia_srlinux}
    leaf2: {kind: nokia_srlinux, group: leaf}
    spine1: {kind: nokia_srlinux, labels: {tier: spine}}
    client1: {kind: linux}
    gpu: {kind: linux, group: server}
  links:
    - endpoints: ["leaf1:e1-49", "spine1:e1-1"]
    - endpoints: ["leaf2:e1-49", "spine1:e1-2"]
    - endpoints: ["client1:eth1", "leaf1:e1-1"]
    - endpoints: ["gpu:eth1", "leaf2:e1-1"]
    - endpoints: ["leaf1:e1-9", "host:leaf1-e9"]
"""


def test_containerlab(parse):
    fabric = parse(CLAB, "srl02.clab.yml", ",rate=25G,down=leaf2-spine1")
    assert fabric.nodes.names == ("leaf1", "leaf2", "spine1", "client1", "gpu")
    assert fabric.nodes.tier.tolist() == [1, 1, 2, 0, 0]
    assert set(fabric.links.rate_bits_per_second.tolist()) == {25 * 10**9}
    assert next_nodes(fabric, "leaf1", "gpu") == []
    assert next_nodes(parse(CLAB, "x.yml"), "leaf1", "gpu") == ["spine1"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("leaf1:e1-49", "leaf7:e1-49", r"clab.yml:11: there is no node 'leaf7'"),
        ('"leaf1:e1-49", ', "", r"clab.yml:11: a link has two endpoints"),
        ("endpoints", "ends", r"clab.yml:11: a link needs endpoints"),
        ("  links:", "  wires:", r"clab.yml:\d+: the topology has no links"),
    ],
)
def test_mistakes_in_containerlab(old, new, message, parse):
    with pytest.raises(UsageError, match=message):
        parse(CLAB.replace(old, new, 1), "x.clab.yml")


def test_containerlab_without_hosts(parse):
    with pytest.raises(UsageError, match="no node is a host: give hosts the group 'host'"):
        parse(CLAB.replace("client1", "a").replace("gpu", "b").replace("server", "x"))


# GraphML, as networkx reads and writes it.

SPECS = (
    "leaf-spine:leaves=3,spines=2,hosts=2,uplinks=2,down=leaf1-spine2#2",
    "fat-tree:k=4,down=spine3",
    "multi-plane:planes=2,leaves=2,spines=2,hosts=2",
    "rail:rails=2,servers=2,pods=2,spines=3,delay=2us",
)


@pytest.mark.parametrize("spec", SPECS)
def test_graphml_is_what_networkx_reads(spec, tmp_path):
    fabric = parse_fabric(spec)
    file = tmp_path / "f.graphml"
    file.write_bytes(graphml_bytes(fabric))
    graph = nx.read_graphml(file)
    assert set(graph.nodes) == set(fabric.nodes.names)
    assert graph.number_of_edges() == len(fabric.links.source) // 2
    again = parse_fabric(str(file))
    assert again.nodes.names == fabric.nodes.names
    assert again.nodes.tier.tolist() == fabric.nodes.tier.tolist()
    assert np.count_nonzero(again.links.up) == np.count_nonzero(fabric.links.up)
    for switch in fabric.nodes.names[: fabric.switches]:
        for host in fabric.nodes.names[fabric.switches :]:
            if fabric.attachments.edge[fabric.nodes.names.index(host) - fabric.switches] >= 0:
                assert next_nodes(again, switch, host) == next_nodes(fabric, switch, host)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<graphml>", r"f.graphml:1: not GraphML"),
        ("", r"f.graphml:1: not GraphML"),
        ("<html></html>", "f.graphml: "),
    ],
)
def test_mistakes_in_graphml(text, message, parse):
    with pytest.raises(UsageError, match=message):
        parse(text, "f.graphml")


# Fabrics written as files and read again.


def same(a, b):
    """Whether two fabrics are alike but for their names."""
    assert a.nodes.names == b.nodes.names
    for x, y in zip((*a.nodes[1:], *a.links), (*b.nodes[1:], *b.links), strict=True):
        assert x.tolist() == y.tolist()
    for x, y in zip(a.attachments, b.attachments, strict=True):
        assert x.tolist() == y.tolist()
    for s in range(a.switches):
        for edge in range(a.forwarding.group_of.shape[1]):
            assert [v.tolist() for v in a.group(s, edge)] == [v.tolist() for v in b.group(s, edge)]
    assert a.hash_settings == b.hash_settings
    assert a.layers == b.layers


@pytest.mark.parametrize("spec", CONVERT_SPECS)
@pytest.mark.parametrize(("write", "suffix"), [(yaml_bytes, "yaml"), (json_bytes, "json")])
def test_written_and_read_again(spec, write, suffix, tmp_path):
    fabric = parse_fabric(spec)
    file = tmp_path / f"f.{suffix}"
    file.write_bytes(write(fabric))
    same(parse_fabric(str(file)), fabric)


@pytest.mark.parametrize(("write", "suffix"), [(yaml_bytes, "yaml"), (json_bytes, "json")])
def test_no_route_stays_no_route(parse, write, suffix, tmp_path):
    """Read again, the shortest path is not assumed in its place."""
    fabric = parse(LAB + "routes: {leaf1: {host2: []}}\n")
    assert len(fabric.group(0, int(fabric.attachments.edge[1]))[0]) == 0
    file = tmp_path / f"again.{suffix}"
    file.write_bytes(write(fabric))
    again = parse_fabric(str(file))
    same(again, fabric)
    assert len(again.group(0, int(again.attachments.edge[1]))[0]) == 0


def test_yaml_writes_the_large_groups_of_a_switch_once(tmp_path):
    """Six next hops to each of 35 hosts: in one list for all leaves, and in a group of each when
    read."""
    spec = "leaf-spine:leaves=6,spines=6,hosts=7"
    routed = replace(edge_per_host(parse_fabric(spec)), routed=False)
    file = tmp_path / "fabric.yaml"
    file.write_bytes(yaml_bytes(routed))
    text = file.read_text()
    assert text.count("[spine1, spine2, spine3, spine4, spine5, spine6]") == 1
    again = parse_fabric(str(file))
    assert json_bytes(again) == json_bytes(routed)
    assert yaml_bytes(again) == file.read_bytes()
    leaf = again.forwarding.group_of[0]
    assert len(set(leaf[leaf >= 0].tolist())) == 1


@pytest.mark.parametrize("spec", ["leaf-spine:leaves=10", "multi-plane:leaves=5,planes=2"])
@pytest.mark.parametrize("exceptions", [(), ((0, 999), (3, 7))])
def test_a_large_file_names_a_leaf_for_hosts_that_are_reached_alike(spec, exceptions, tmp_path):
    """exceptions: (switch, edge) of lost routes. Hosts with two leaves keep their names."""
    spec += ",spines=5,hosts=200"
    routed = replace(edge_per_host(parse_fabric(spec)), routed=False)
    group_of = routed.forwarding.group_of.copy()
    for switch, edge in exceptions:
        assert group_of[switch, edge] >= 0 or spec.startswith("multi"), "a route that can be lost"
        group_of[switch, edge] = -1
    routed = replace(routed, forwarding=routed.forwarding._replace(group_of=group_of))
    file = tmp_path / "fabric.yaml"
    file.write_bytes(yaml_bytes(routed))
    again = edge_per_host(parse_fabric(str(file)))
    for switch in range(routed.switches):
        for edge in range(0, group_of.shape[1], 7):
            before, after = routed.group(switch, edge), again.group(switch, edge)
            assert [part.tolist() for part in before] == [part.tolist() for part in after]
    for switch, edge in exceptions:
        assert not len(again.group(switch, edge)[0])
    routes = json.loads(json_bytes(routed))["routes"]
    of_leaf1 = routes[routed.nodes.names[0]]
    if spec.startswith("leaf-spine"):
        assert {name[:4] for name in of_leaf1} == ({"leaf", "host"} if exceptions else {"leaf"})
        assert len(of_leaf1) == (208 if exceptions else 9)
    else:
        assert {name[:4] for name in of_leaf1} == {"host"}


def test_routes_and_hash_settings_are_written_too(parse, tmp_path):
    fabric = parse(LAB + "routes: {leaf1: {host2: [spine2, {via: spine1#2, weight: 3}]}}\n")
    file = tmp_path / "again.yaml"
    file.write_bytes(yaml_bytes(fabric))
    again = parse_fabric(str(file))
    same(again, fabric)
    assert str(again.address_of(0)) == "10.0.1.10" and not again.routed


@pytest.mark.parametrize(("write", "suffix"), [(yaml_bytes, "yaml"), (json_bytes, "json")])
def test_a_recovered_seed_stays_recovered(write, suffix, tmp_path):
    text = "fabric: leaf-spine:leaves=2\nnodes:\n"
    text += "  leaf1: {hash: {model: linux, policy: 1, seed: 7, seed_recovered: true}}\n"
    text += "  leaf2: {hash: {model: linux, policy: 1, seed: 7}}\n"
    (tmp_path / "lab.yaml").write_text(text)
    first = parse_fabric(str(tmp_path / "lab.yaml"))
    (tmp_path / f"again.{suffix}").write_bytes(write(first))
    for fabric in (first, parse_fabric(str(tmp_path / f"again.{suffix}"))):
        one, other = fabric.hash_settings[:2]
        assert (one.seed_recovered, other.seed_recovered) == (True, False)
        assert one == other  # they hash alike


# JSON with places.

DOCUMENT = [{"dst": "10.0.0.0/8", "metric": 20, "flags": [], "nexthops": [{"weight": 2}]}, None]


def test_values_are_those_of_the_yaml_reader(tmp_path):
    """JSON is YAML: both readers see the same."""
    file = tmp_path / "r.json"
    file.write_text(json.dumps(DOCUMENT))
    for load in (load_json, load_yaml):
        first, second = load(file).items("routes")
        entry = first.mapping("a route")
        assert list(entry) == list(DOCUMENT[0])
        assert entry["dst"].text("a network") == "10.0.0.0/8"
        assert entry["metric"].integer("metric", 0, 99) == 20
        assert entry["flags"].is_list
        assert entry["flags"].items("flags") == []
        (hop,) = entry["nexthops"].items("hops")
        assert hop.is_mapping
        assert hop.mapping("a hop")["weight"].integer("weight", 1, 9) == 2
        assert second.is_empty
        assert second.mapping("a route") == {}


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda top: top.mapping("x"), "r.json: expected x (key: value), found a list"),
        (lambda top: top.items("x")[0].items("y"), "r.json: [0]: expected a list of y, found keys"),
        (lambda top: top.items("x")[1].text("y"), "r.json: [1]: expected y, found nothing"),
        (
            lambda top: top.items("x")[0].mapping("y")["dst"].integer("z", 0, 9),
            "r.json: [0].dst: z '10.0.0.0/8' is not a whole number",
        ),
    ],
)
def test_errors_name_the_place(ask, message, tmp_path):
    file = tmp_path / "r.json"
    file.write_text(json.dumps(DOCUMENT))
    with pytest.raises(UsageError) as caught:
        ask(load_json(file))
    assert str(caught.value).endswith(message)


@pytest.mark.parametrize("content", [b"", b"[", b"\xff", b'{"a"', b"[" * 100_000])
def test_other_content(content, tmp_path):
    file = tmp_path / "r.json"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=r"r.json: not JSON"):
        load_json(file)


def test_no_file(tmp_path):
    with pytest.raises(UsageError, match="cannot read"):
        load_json(tmp_path / "none.json")
