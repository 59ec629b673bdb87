"""A fabric as GraphML, read and written with networkx.

Nodes: kind (host or switch), tier, plane, addresses (separated by spaces). Edges: rate,
delay, up. Without a kind, nodes with one neighbour are hosts.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

import networkx as nx
import numpy as np

from ....analyzer.errors import UsageError
from ....analyzer.units import parse_duration, parse_rate
from ..addressing import Address, AddressPlan, parse_address
from ..build import Cables, build
from ..fabric import HOST, Fabric
from ..parameters import Changes, rate_text
from ..tiers import tiers_by_distance


def read_graphml(path: Path, rate_bits_per_second: int, delay_ns: int) -> tuple[Fabric, Changes]:
    """The fabric of a file; rate and delay: of edges without them. UsageError names the place."""
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
            len(hosts), {i: own for i, n in enumerate(hosts) if (own := _addresses(graph, n, path))}
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
    graph: Any = nx.MultiGraph(name=fabric.name)
    nodes, links = fabric.nodes, fabric.links
    for i, name in enumerate(nodes.names):
        is_host = nodes.kind[i] == HOST
        values: dict[str, Any] = {
            "kind": "host" if is_host else "switch",
            "tier": int(nodes.tier[i]),
        }
        if is_host:
            own = fabric.addresses.explicit.get(i - fabric.switches)
            if own:
                values["addresses"] = " ".join(str(a) for a in own)
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
