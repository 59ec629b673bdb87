"""Fabrics in files of other tools: containerlab, GraphML."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

import numpy as np
import yaml

from ...analyzer.errors import UsageError
from ...analyzer.words import parse_duration, parse_rate
from ...kernels.kernel import Bools, Int32s
from ..hashing.settings import HashSettings
from .build import Cables, build, cables, tiers_by_distance
from .fabric import HOST, TIER_NAMES, Address, AddressPlan, Fabric, parse_address
from .parameters import Changes, rate_text
from .sources import Source

# A containerlab topology as a fabric (https://containerlab.dev/manual/topo-def-file/).
#
# Hosts are nodes with the label or group `host` (or server, gpu, nic, client), otherwise nodes
# whose name starts with one of these words. Tiers come from a label `tier`, a group leaf, spine or
# core, otherwise from the distance to hosts. Rates come from the options of the spec, because
# topologies have none.

_HOST = re.compile(r"(host|server|srv|gpu|nic|client|h)s?([-_.]?\d+)?", re.IGNORECASE)
_NOT_NODES = ("host", "mgmt-net", "macvlan", "dummy", "vxlan", "vxlan-stitch")
"""Node names of endpoints outside the topology."""


def is_containerlab(source: Source) -> bool:
    """Whether a document has the `topology` of a containerlab file."""
    return source.is_mapping and "topology" in source.mapping("keys")


def containerlab(source: Source, rate_bits_per_second: int, delay_ns: int) -> Fabric:
    """The fabric of a topology. UsageError names file and line."""
    top = source.mapping("a containerlab file")
    topology = top["topology"].mapping("nodes and links")
    for key in ("nodes", "links"):
        if key not in topology:
            raise top["topology"].wrong(f"the topology has no {key}")
    nodes = topology["nodes"].mapping("nodes")
    roles = {name: _role(name, place) for name, place in nodes.items()}
    hosts = [name for name, role in roles.items() if role == "host"]
    switches = [name for name, role in roles.items() if role != "host"]
    if not hosts:
        raise topology["nodes"].wrong(
            "no node is a host: give hosts the group 'host' (group: host) or a name like host1"
        )
    if not switches:
        raise topology["nodes"].wrong("every node is a host: give switches a group such as leaf")
    number = {name: i for i, name in enumerate([*switches, *hosts])}
    ends = [e for link in topology["links"].items("links") if (e := _ends(link, number))]
    if not ends:
        raise topology["links"].wrong("no link connects two nodes")
    a, b = np.array(ends, np.int64).T
    wires = cables(a, b, rate_bits_per_second, delay_ns)
    tiers = [_tier(roles[name]) for name in switches]
    name = top["name"].text("a name") if "name" in top else source.path
    try:
        return build(name, switches, tiers_by_distance(tiers, wires, len(switches)), hosts, wires)
    except UsageError as error:
        raise topology["links"].wrong(str(error)) from None


def _tier(role: str) -> int | None:
    if role in TIER_NAMES:
        return TIER_NAMES.index(role)
    return int(role) if role.isdecimal() and int(role) <= 100 else None


def _role(name: str, place: Source) -> str:
    """`host`, the name or number of a tier, or "" if unknown."""
    values = place.mapping("the settings of a node")
    labels = values["labels"].mapping("labels") if "labels" in values else {}
    for source, key in ((labels, "tier"), (labels, "role"), (values, "group")):
        if key in source and not source[key].is_empty:
            text = source[key].text(key).lower()
            if _HOST.fullmatch(text):
                return "host"
            return text.removesuffix("s") if text.removesuffix("s") in TIER_NAMES else text
    return "host" if _HOST.fullmatch(name) else ""


def _ends(link: Source, number: dict[str, int]) -> tuple[int, int] | None:
    """The two nodes of a link; None for a link that leaves the topology."""
    values = link.mapping("endpoints")
    if "endpoints" in values:
        texts = values["endpoints"].items('two endpoints such as "leaf1:eth1"')
        names = [(t, t.text("an endpoint").partition(":")[0]) for t in texts]
    else:
        raise link.wrong('a link needs endpoints: ["leaf1:eth1", "spine1:eth1"]')
    if len(names) != 2:
        raise link.wrong("a link has two endpoints")
    ends = []
    for place, name in names:
        if name in number:
            ends.append(number[name])
        elif name not in _NOT_NODES:
            raise place.wrong(f"there is no node {name!r} in nodes")
    return (ends[0], ends[1]) if len(ends) == 2 else None


# A fabric as GraphML, read and written with networkx.
#
# Nodes: kind (host or switch), tier, plane, addresses (separated by spaces). Edges: rate,
# delay, up. Without a kind, nodes with one neighbour are hosts.


def read_graphml(path: Path, rate_bits_per_second: int, delay_ns: int) -> tuple[Fabric, Changes]:
    """The fabric of a file; rate and delay: of edges without them. UsageError names the place."""
    import networkx as nx

    try:
        graph: Any = nx.read_graphml(path, force_multigraph=True)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from None
    except ParseError as error:
        raise UsageError(f"{path}:{error.position[0]}: not GraphML: {error.msg}") from None
    except (nx.NetworkXError, ValueError, KeyError, AttributeError) as error:
        raise UsageError(f"{path}: not GraphML: {error}") from None
    if graph.is_directed():
        raise UsageError(f'{path}: the graph is directed; write edgedefault="undirected"')
    kinds = {node: _kind(graph, node, path) for node in graph.nodes}
    switches = [n for n, kind in kinds.items() if kind == "switch"]
    hosts = [n for n, kind in kinds.items() if kind == "host"]
    if not switches or not hosts:
        raise UsageError(f"{path}: the graph needs hosts and switches; set kind = host or switch")
    number = {node: i for i, node in enumerate([*switches, *hosts])}
    down: list[int] = []
    rows = []
    for a, b, values in graph.edges(data=True):
        rate, delay, up = _edge(path, a, b, values, rate_bits_per_second, delay_ns)
        rows.append((number[a], number[b], rate, delay))
        if not up:
            down += [2 * len(rows) - 2, 2 * len(rows) - 1]
    wires = Cables(*np.array(rows, np.int64).reshape(-1, 4).T.copy())
    tiers = [_integer(graph, n, "tier", path) for n in switches]
    planes = [_integer(graph, n, "plane", path) or 0 for n in switches]
    fabric = build(
        str(graph.graph.get("name") or path),
        [str(n) for n in switches],
        tiers_by_distance(tiers, wires, len(switches)),
        [str(n) for n in hosts],
        wires,
        switch_planes=np.array(planes, np.int16),
        explicit_addresses=AddressPlan(
            len(hosts),
            {i: known for i, n in enumerate(hosts) if (known := _addresses(graph, n, path))},
        ),
    )
    return fabric, Changes(tuple(down))


def _kind(graph: Any, node: Any, path: Path) -> str:
    kind = graph.nodes[node].get("kind")
    if kind is None:
        return "host" if graph.degree(node) == 1 else "switch"
    if kind not in ("host", "switch"):
        raise UsageError(f"{path}: node {node}: kind must be host or switch, not {kind!r}")
    return str(kind)


def _integer(graph: Any, node: Any, key: str, path: Path) -> int | None:
    value = graph.nodes[node].get(key)
    try:
        number = None if value is None else int(value)
    except ValueError:
        number = -1
    if number is not None and not 0 <= number <= 100:
        raise UsageError(f"{path}: node {node}: {key} must be 0 to 100, not {value!r}")
    return number


def _addresses(graph: Any, node: Any, path: Path) -> tuple[Address, ...]:
    text = str(graph.nodes[node].get("addresses", ""))
    try:
        return tuple(parse_address(part) for part in text.split())
    except ValueError:
        raise UsageError(f"{path}: node {node}: {text!r} are not addresses") from None


def _edge(
    path: Path, a: Any, b: Any, values: dict[str, Any], rate: int, delay: int
) -> tuple[int, int, bool]:
    try:
        if "rate" in values:
            rate = parse_rate(str(values["rate"]), "rate")
        if "delay" in values:
            text = str(values["delay"])
            delay = 0 if text == "0" else parse_duration(text, "delay")
    except UsageError as error:
        raise UsageError(f"{path}: edge {a}-{b}: {error}") from None
    return rate, delay, str(values.get("up", "true")).lower() not in ("false", "0")


def graphml_bytes(fabric: Fabric) -> bytes:
    """The fabric as GraphML: nodes and cables, without forwarding."""
    import networkx as nx

    graph: Any = nx.MultiGraph(name=fabric.name)
    nodes, links = fabric.nodes, fabric.links
    for i, name in enumerate(nodes.names):
        is_host = nodes.kind[i] == HOST
        values: dict[str, Any] = {
            "kind": "host" if is_host else "switch",
            "tier": int(nodes.tier[i]),
        }
        if is_host:
            addresses = fabric.addresses.explicit.get(i - fabric.switches)
            if addresses:
                values["addresses"] = " ".join(str(a) for a in addresses)
        else:
            values["plane"] = int(nodes.plane[i])
        graph.add_node(name, **values)
    for link in range(0, len(links.source), 2):
        graph.add_edge(
            nodes.names[int(links.source[link])],
            nodes.names[int(links.target[link])],
            rate=rate_text(int(links.rate_bits_per_second[link])),
            delay=f"{int(links.delay_ns[link])}ns",
            up=bool(links.up[link] and links.up[link + 1]),
        )
    file = io.BytesIO()
    nx.write_graphml(graph, file)
    return file.getvalue()


# A fabric as YAML or JSON that `parse_fabric` reads back with order, rates and routes.


def fabric_document(fabric: Fabric) -> dict[str, Any]:
    """The content of a fabric file, see `yaml_file.py`."""
    nodes, links = fabric.nodes, fabric.links
    names = nodes.names
    document: dict[str, Any] = {"name": fabric.name, "nodes": {}, "links": []}
    networks: dict[int, list[str]] = {}
    for network, host in fabric.addresses.subnets.items():
        networks.setdefault(host, []).append(str(network))
    for i, name in enumerate(names):
        document["nodes"][name] = _node(fabric, i, networks)
    for link in range(0, len(links.source), 2):
        cable: dict[str, Any] = {
            "a": names[int(links.source[link])],
            "b": names[int(links.target[link])],
            "rate": rate_text(int(links.rate_bits_per_second[link])),
            "delay": f"{int(links.delay_ns[link])}ns",
        }
        if not links.up[link] and not links.up[link + 1]:
            cable["up"] = False
        if fabric.origin is not None:
            cable["ports"] = list(fabric.origin.ports[link // 2])
            cable["evidence"] = fabric.origin.links[link // 2]
        document["links"].append(cable)
    both = links.up[0::2] | links.up[1::2]
    one_way = np.flatnonzero(~links.up & np.repeat(both, 2))
    if len(one_way):
        document["down"] = [fabric.link_name(int(link)) for link in one_way]
    rates = links.rate_bits_per_second
    slow = 2 * np.flatnonzero(rates[0::2] != rates[1::2]) + 1
    if len(slow):
        document["slow"] = {fabric.link_name(int(i)): rate_text(int(rates[i])) for i in slow}
    if not fabric.routed:
        six = fabric.of_ipv6()
        large = fabric.switches * fabric.hosts > _MOST_PER_HOST
        document["routes"] = _routes(fabric, by_leaf=large and six is None)
        if six is not None:
            document["routes_ipv6"] = _differing(_routes(six), document["routes"])
    return document


def yaml_bytes(fabric: Fabric) -> bytes:
    document = fabric_document(fabric)
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text = yaml.dump(document, Dumper=dumper, sort_keys=False, default_flow_style=None, width=100)
    return str(text).encode()


def json_bytes(fabric: Fabric) -> bytes:
    """The fabric as JSON, with the same content."""
    return json.dumps(fabric_document(fabric), indent=1).encode() + b"\n"


def _node(fabric: Fabric, node: int, networks: Mapping[int, list[str]]) -> dict[str, Any]:
    nodes = fabric.nodes
    if nodes.kind[node] == HOST:
        values: dict[str, Any] = {"kind": "host"}
        addresses = fabric.addresses.explicit.get(node - fabric.switches)
        if addresses:
            values["addresses"] = [str(a) for a in addresses]
        if of_host := networks.get(node - fabric.switches):
            values["networks"] = of_host
        return values
    values = {"kind": "switch", "tier": int(nodes.tier[node]), "plane": int(nodes.plane[node])}
    settings = fabric.hash_settings[node]
    if settings is not None:
        values["hash"] = hash_document(settings)
    if fabric.origin is not None and fabric.origin.tables[node]:
        values["tables"] = fabric.origin.tables[node]
        if fabric.origin.ipv4_only and fabric.origin.ipv4_only[node]:
            values["ipv4_only"] = True
    return values


def hash_document(settings: HashSettings) -> dict[str, Any]:
    """How a switch hashes, as `hash_settings` reads it: only what differs from the defaults."""
    default = asdict(HashSettings())
    values = {k: v for k, v in asdict(settings).items() if k != "extra" and v != default[k]}
    return {"model": settings.model, **values, **settings.extra}


_MOST_REPEATED = 4
"""Next hops of a group that YAML repeats for every destination: short ones stay readable."""


_MOST_PER_HOST = 20_000
"""Routes that are written host by host: with more, a leaf stands for its hosts."""


def _routes(fabric: Fabric, by_leaf: bool = False) -> dict[str, Any]:
    """Next hops of every switch to every edge, named by the edge's first host; [] is no route.

    by_leaf: hosts of one leaf that a switch reaches alike are named by the leaf. Large groups with
    equal names are one object, which YAML writes once.
    """
    names, group_of = fabric.nodes.names, fabric.forwarding.group_of
    edge = fabric.attachments.edge
    edges, first = np.unique(edge, return_index=True)
    hosts = np.sort(first[edges >= 0])
    attached = fabric.attachments.switch[hosts]
    leaf = attached.max(1)
    is_leaf = np.full(len(hosts), len(hosts) < np.count_nonzero(edge >= 0))
    alone = _leaf_alone(fabric)[hosts]
    routes: dict[str, Any] = {}
    large: dict[str, Any] = {}
    for switch in range(fabric.switches):
        away = np.flatnonzero(~(attached == switch).any(1))
        groups = group_of[switch, edge[hosts[away]]]
        named_by_leaf = is_leaf[away]
        if by_leaf and not named_by_leaf.any():
            named_by_leaf = _alike(alone[away], groups)
            _, once = np.unique(alone[away][named_by_leaf], return_index=True)
            kept = ~named_by_leaf
            kept[np.flatnonzero(named_by_leaf)[once]] = True
            away, groups, named_by_leaf = away[kept], groups[kept], named_by_leaf[kept]
        hops_of = {
            group: _group(fabric, switch, group, large) for group in np.unique(groups).tolist()
        }
        hops_to: dict[str, Any] = {}
        for i, group, of_leaf in zip(
            away.tolist(), groups.tolist(), named_by_leaf.tolist(), strict=True
        ):
            hops = hops_of[group]
            is_short = isinstance(hops, list) and len(hops) <= _MOST_REPEATED
            name = names[int(leaf[i])] if of_leaf else fabric.host_name(int(hosts[i]))
            hops_to[name] = list(hops) if is_short else hops
        if hops_to:
            routes[names[switch]] = hops_to
    return routes


def _leaf_alone(fabric: Fabric) -> Int32s:
    """int32[hosts]: the only switch of each host; -1 where it or another host of that switch has
    several."""
    attached = fabric.attachments.switch
    several = (attached >= 0).sum(1) > 1
    shares = np.zeros(fabric.switches + 1, np.bool_)  # the last serves -1
    shares[attached[several]] = True
    leaf = attached.max(1)
    alone: Int32s = np.where(several | shares[leaf], -1, leaf).astype(np.int32)
    return alone


def _alike(leaf: Int32s, groups: Int32s) -> Bools:
    """bool[hosts]: whether all hosts of the leaf of a host have its group; not without a leaf."""
    most = int(leaf.max(initial=-1)) + 2  # the last serves -1
    low, high = np.full(most, np.iinfo(np.int32).max), np.full(most, -2)
    np.minimum.at(low, leaf, groups)
    np.maximum.at(high, leaf, groups)
    alike: Bools = (low == high)[leaf] & (leaf >= 0)
    return alike


def _group(fabric: Fabric, switch: int, group: int, large: dict[str, Any]) -> Any:
    """The next hops of a group; large: those that were written, by content."""
    forwarding = fabric.forwarding
    part = slice(*forwarding.group_start[group : group + 2].tolist()) if group >= 0 else slice(0)
    pairs = zip(
        forwarding.group_links[part].tolist(), forwarding.group_weights[part].tolist(), strict=True
    )
    hops = [_hop(fabric, link, weight) for link, weight in pairs]
    buckets = forwarding.buckets.get(group) if hops else None
    written = hops if buckets is None else {"hops": hops, "buckets": buckets.tolist()}
    return large.setdefault(str(written), written) if len(hops) > _MOST_REPEATED else written


def _differing(six: dict[str, Any], four: dict[str, Any]) -> dict[str, Any]:
    """The next hops of IPv6 that are not those of IPv4."""
    differing = {
        switch: {to: hops for to, hops in routes.items() if hops != four[switch][to]}
        for switch, routes in six.items()
    }
    return {switch: routes for switch, routes in differing.items() if routes}


def _hop(fabric: Fabric, link: int, weight: int) -> Any:
    _, _, via = fabric.link_name(link).rpartition(">")
    return via if weight == 1 else {"via": via, "weight": weight}
