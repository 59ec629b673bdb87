"""A fabric as YAML or JSON that `parse_fabric` reads back with order, rates and routes."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import numpy as np
import yaml

from ...hashing.settings import HashSettings
from ..fabric import HOST, Fabric
from ..parameters import rate_text


def fabric_document(fabric: Fabric) -> dict[str, Any]:
    """The content of a fabric file, see yaml_file.py."""
    nodes, links = fabric.nodes, fabric.links
    names = nodes.names
    document: dict[str, Any] = {"name": fabric.name, "nodes": {}, "links": []}
    for i, name in enumerate(names):
        document["nodes"][name] = _node(fabric, i)
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
        document["routes"] = _routes(fabric)
        if (six := fabric.of_ipv6()) is not None:
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


def _node(fabric: Fabric, node: int) -> dict[str, Any]:
    nodes = fabric.nodes
    if nodes.kind[node] == HOST:
        values: dict[str, Any] = {"kind": "host"}
        own = fabric.addresses.explicit.get(node - fabric.switches)
        if own:
            values["addresses"] = [str(a) for a in own]
        host = node - fabric.switches
        networks = [str(n) for n, of in fabric.addresses.subnets.items() if of == host]
        if networks:
            values["networks"] = networks
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
    """How a switch hashes, as hash_options.py reads it: only what differs from the defaults."""
    default = asdict(HashSettings())
    values = {k: v for k, v in asdict(settings).items() if k != "extra" and v != default[k]}
    return {"model": settings.model, **values, **settings.extra}


def _routes(fabric: Fabric) -> dict[str, Any]:
    """Next hops of every switch to every edge, named by the edge's first host; [] is no route."""
    routes: dict[str, Any] = {}
    names, edge = fabric.nodes.names, fabric.attachments.edge
    one_host_each = len(np.unique(edge[edge >= 0])) == np.count_nonzero(edge >= 0)
    for switch in range(fabric.switches):
        found: dict[str, Any] = {}
        for host in range(fabric.hosts):
            attached = fabric.attachments.switch[host]
            if edge[host] < 0 or (attached == switch).any():
                continue
            name = fabric.host_name(host) if one_host_each else names[int(attached.max())]
            links, weights = fabric.group(switch, int(edge[host]))
            hops = [
                _hop(fabric, int(link), int(weight))
                for link, weight in zip(links, weights, strict=True)
            ]
            group = int(fabric.forwarding.group_of[switch, edge[host]])
            buckets = fabric.forwarding.buckets.get(group) if hops else None
            found[name] = hops if buckets is None else {"hops": hops, "buckets": buckets.tolist()}
        if found:
            routes[names[switch]] = found
    return routes


def _differing(six: dict[str, Any], four: dict[str, Any]) -> dict[str, Any]:
    """The next hops of IPv6 that are not those of IPv4."""
    found = {
        switch: {to: hops for to, hops in own.items() if hops != four[switch][to]}
        for switch, own in six.items()
    }
    return {switch: own for switch, own in found.items() if own}


def _hop(fabric: Fabric, link: int, weight: int) -> Any:
    _, _, via = fabric.link_name(link).rpartition(">")
    return via if weight == 1 else {"via": via, "weight": weight}
