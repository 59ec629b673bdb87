"""A fabric as a YAML file: read with the line of every mistake, and written.

    name: lab
    defaults: {rate: 400G, delay: 500ns}
    hash: {model: crc32, seed: 7}              # of every switch without its own hash
    nodes:
      leaf1: {tier: 1, hash: {model: linux, seed: 12}}
      spine1: {tier: 2}
      host1: {kind: host, addresses: [10.0.1.10]}
    links:
      - [host1, leaf1]
      - {a: leaf1, b: spine1, rate: 100G, delay: 1us, count: 2, up: false}
    down: [leaf1-spine1#2]
    slow: {leaf1>spine1: 50G}
    routes:                                    # leaf1 to host1: these next hops, in this order
      leaf1: {host1: [spine2, {via: spine1, weight: 3}]}   # [] is no route
    routes_ipv6:                               # where IPv6 has others
      leaf1: {host1: [spine1, spine2]}

A fabric read from devices also has, of hosts, `networks: [10.0.1.0/24]` that lead to the host
alone; of switches, `tables:`, what their routes were read from, and `ipv4_only: true` if IPv6 has
another hash or its routes are not known; of links, `ports: [swp1, eth0]` and `evidence:`, what
shows the link. Resilient groups are routes `{hops: [spine1, spine2], buckets: [0, 1, 1, 0]}`.

In place of nodes and links, `fabric: leaf-spine:leaves=4` starts from a spec string.
The order of nodes is the order of hosts; the order of links is the order of ports and next hops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np

from ...analyzer.errors import UsageError
from ...analyzer.words import parse_duration, parse_rate
from ..hashing.keys import packet_keys
from ..hashing.models import bind
from ..hashing.settings import HashSettings
from .build import Cables, build, tiers_by_distance
from .fabric import Address, AddressPlan, Fabric, Network, Origin, parse_address, parse_network
from .parameters import RATE_AND_DELAY, Changes
from .routes import Hop, Route, with_routes
from .sources import Source

# How a switch hashes, as written in a file.

_NUMBERS = {"seed": (0, (1 << 64) - 1), "rotate": (0, 63), "offset": (0, 63)}
_NAMES = tuple(f.name for f in fields(HashSettings) if f.name != "extra")
_SAMPLE = packet_keys(["10.0.0.1"], ["10.0.0.2"], [49152])
"""Settings are checked when they are bound to keys."""


def hash_settings(source: Source) -> HashSettings:
    """The settings `{model: ..., seed: ..., field_set: ...}`; other keys are settings of the model.

    UsageError names file and line.
    """
    values: dict[str, Any] = {}
    extra: dict[str, str | int] = {}
    for key, place in source.mapping("model, seed, field_set, ...").items():
        if key in _NUMBERS:
            values[key] = place.integer(key, *_NUMBERS[key])
        elif key in ("symmetric", "seed_recovered"):
            values[key] = place.boolean(key)
        elif key in _NAMES:
            values[key] = place.text(key)
        else:
            text = place.text(key)
            extra[key] = int(text) if text.isdecimal() else text
    settings = HashSettings(**values, extra=extra)
    try:
        bind(_SAMPLE, settings)
    except UsageError as error:
        raise source.wrong(str(error)) from None
    return settings


KEYS = (
    "name", "fabric", "defaults", "hash", "nodes", "links", "down", "slow", "routes", "routes_ipv6",
)  # fmt: skip
_LINK_KEYS = ("a", "b", "rate", "delay", "count", "up", "ports", "evidence")


class _Node(NamedTuple):
    is_host: bool
    tier: int | None
    plane: int
    hash: HashSettings | None
    addresses: tuple[Address, ...]
    networks: tuple[Network, ...] = ()
    tables: str = ""
    ipv4_only: bool = False


def yaml_fabric(source: Source, parse: Callable[[str], Fabric]) -> tuple[Fabric, Changes]:
    """The fabric of a document, and its changes to links.

    parse: makes the fabric of a spec string. UsageError names file and line.
    """
    top = source.keyed("a fabric", KEYS, "a fabric")
    common = hash_settings(top["hash"]) if "hash" in top else None
    if "fabric" in top:
        fabric = _based_on(top, common, parse)
    elif "nodes" in top and "links" in top:
        fabric = _of_nodes(source, top, common)
    else:
        raise source.wrong("a fabric needs nodes and links, or fabric: with a spec")
    changes = _changes(top, fabric)
    if "routes" in top or "routes_ipv6" in top:
        four, six = (_routes(top[key]) if key in top else [] for key in ("routes", "routes_ipv6"))
        fabric = with_routes(fabric, four, six)
    if "name" in top:
        fabric = replace(fabric, name=top["name"].text("a name"))
    return fabric, changes


def _based_on(
    top: dict[str, Source], common: HashSettings | None, parse: Callable[[str], Fabric]
) -> Fabric:
    if "links" in top:
        raise top["links"].wrong("give links or fabric: with a spec, not both")
    spec = top["fabric"]
    try:
        fabric = parse(spec.text("a spec such as leaf-spine:leaves=4"))
    except UsageError as error:
        raise spec.wrong(str(error)) from None
    settings = list(fabric.hash_settings if common is None else [common] * fabric.switches)
    number = {name: i for i, name in enumerate(fabric.nodes.names[: fabric.switches])}
    for name, place in top["nodes"].mapping("switches").items() if "nodes" in top else ():
        if name not in number:
            raise place.wrong(f"{fabric.name} has no switch {name!r}")
        node = _node(place, None)
        if node.hash is not None:
            settings[number[name]] = node.hash
    return replace(fabric, hash_settings=tuple(settings))


def _of_nodes(source: Source, top: dict[str, Source], common: HashSettings | None) -> Fabric:
    nodes = {n: _node(p, common) for n, p in top["nodes"].mapping("nodes").items()}
    switches = [name for name, node in nodes.items() if not node.is_host]
    hosts = [name for name, node in nodes.items() if node.is_host]
    if not switches or not hosts:
        raise top["nodes"].wrong("a fabric needs at least one switch and one host (kind: host)")
    number = {name: i for i, name in enumerate([*switches, *hosts])}
    wires = _wires(top, number)
    try:
        tiers = [nodes[name].tier for name in switches]
        fabric = build(
            source.path,
            switches,
            tiers_by_distance(tiers, wires, len(switches)),
            hosts,
            wires,
            switch_planes=np.array([nodes[name].plane for name in switches], np.int16),
            hash_settings=[nodes[name].hash for name in switches],
            explicit_addresses=_plan(top["nodes"], nodes, hosts),
        )
        return replace(fabric, origin=_origin(top["links"], [nodes[n] for n in switches]))
    except UsageError as error:
        text = str(error)
        raise UsageError(
            text if text.startswith(source.path) else f"{source.where}: {text}"
        ) from None


def _plan(place: Source, nodes: dict[str, _Node], hosts: list[str]) -> AddressPlan:
    explicit = {i: nodes[n].addresses for i, n in enumerate(hosts) if nodes[n].addresses}
    seen: dict[Address, int] = {}
    for host, addresses in explicit.items():
        for address in addresses:
            if seen.setdefault(address, host) != host:
                both = f"{hosts[seen[address]]} and {hosts[host]}"
                raise place.wrong(f"{both} have the same address {address}")
    subnets = {network: i for i, n in enumerate(hosts) for network in nodes[n].networks}
    return AddressPlan(len(hosts), explicit, subnets)


def _origin(links: Source, switches: Sequence[_Node]) -> Origin | None:
    """What the fabric was read from; None if it was described."""
    if not any(node.tables for node in switches):
        return None
    ports: list[tuple[str, str]] = []
    evidence = []
    for place in links.items("links"):
        values = place.mapping("a link") if place.is_mapping else {}
        count = values["count"].integer("count", 1, 1024) if "count" in values else 1
        names = (
            [p.text("a port") for p in values["ports"].items("ports")] if "ports" in values else []
        )
        if len(names) not in (0, 2):
            raise values["ports"].wrong("a link has two ports")
        ports += [(names[0], names[1]) if names else ("", "")] * count
        evidence += [values["evidence"].text("evidence") if "evidence" in values else ""] * count
    four = tuple(node.ipv4_only for node in switches)
    tables = tuple(node.tables for node in switches)
    return Origin(tuple(ports), tuple(evidence), tables, four if any(four) else ())


def _node(place: Source, common: HashSettings | None) -> _Node:
    keys = ("kind", "tier", "plane", "hash", "addresses", "networks", "tables", "ipv4_only")
    values = place.keyed("kind, tier, plane, hash or addresses", keys, "a node")
    kind = values["kind"].text("host or switch") if "kind" in values else "switch"
    if kind not in ("host", "switch"):
        raise values["kind"].wrong(f"kind must be host or switch, not {kind!r}")
    tier = values["tier"].integer("tier", 0, 100) if "tier" in values else None
    addresses = values["addresses"].items("addresses") if "addresses" in values else ()
    networks = values["networks"].items("networks") if "networks" in values else ()
    return _Node(
        kind == "host",
        tier,
        values["plane"].integer("plane", 0, 1000) if "plane" in values else 0,
        hash_settings(values["hash"]) if "hash" in values else common,
        tuple(item.parsed("an address", parse_address) for item in addresses),
        tuple(item.parsed("a network", parse_network) for item in networks),
        values["tables"].text("what was read") if "tables" in values else "",
        values["ipv4_only"].boolean("ipv4_only") if "ipv4_only" in values else False,
    )


def _wires(top: dict[str, Source], number: dict[str, int]) -> Cables:
    defaults = top["defaults"].mapping("rate and delay") if "defaults" in top else {}
    rate, delay = RATE_AND_DELAY["rate"].default, RATE_AND_DELAY["delay"].default
    assert rate is not None and delay is not None
    rate, delay = _rate_and_delay(defaults, int(rate), int(delay))
    a: list[int] = []
    b: list[int] = []
    rates: list[int] = []
    delays: list[int] = []
    for place in top["links"].items("links"):
        values: dict[str, Source] = {}
        if place.is_list:
            ends = place.items("two nodes")
        else:
            values = place.keyed("a, b, rate, delay, count", _LINK_KEYS, "a link")
            ends = [values[key] for key in ("a", "b") if key in values]
        if len(ends) != 2:
            raise place.wrong("a link has two ends: [leaf1, spine1] or {a: leaf1, b: spine1}")
        names = [end.text("the name of a node") for end in ends]
        for end, name in zip(ends, names, strict=True):
            if name not in number:
                raise end.wrong(f"there is no node {name!r} in nodes")
        own_rate, own_delay = _rate_and_delay(
            {k: v for k, v in values.items() if k in ("rate", "delay")}, rate, delay
        )
        count = values["count"].integer("count", 1, 1024) if "count" in values else 1
        a += [number[names[0]]] * count
        b += [number[names[1]]] * count
        rates += [own_rate] * count
        delays += [own_delay] * count
    return Cables(*(np.array(column, np.int64) for column in (a, b, rates, delays)))


def _rate_and_delay(values: dict[str, Source], rate: int, delay: int) -> tuple[int, int]:
    for key, value in values.items():
        text = value.text(f"a {key}")
        try:
            if key == "rate":
                rate = parse_rate(text, "rate")
            elif key == "delay":
                delay = 0 if text == "0" else parse_duration(text, "delay")
            else:
                raise UsageError(f"unknown key {key!r}; give rate and delay")
        except UsageError as error:
            raise value.wrong(str(error)) from None
    return rate, delay


def _changes(top: dict[str, Source], fabric: Fabric) -> Changes:
    """Links down or slow; UsageError with the line if there is no such link."""
    down: list[str | int] = []
    slow: list[tuple[str, int]] = []
    for place in top["down"].items("links") if "down" in top else ():
        down.append(_known_link(place, place.text("a link"), fabric))
    for link, place in top["slow"].mapping("link: rate").items() if "slow" in top else ():
        slow.append((_known_link(place, link, fabric), _rate_and_delay({"rate": place}, 0, 0)[0]))
    cable = 0
    for place in top["links"].items("links") if "links" in top else ():
        values = place.mapping("a link") if place.is_mapping else {}
        count = values["count"].integer("count", 1, 1024) if "count" in values else 1
        if "up" in values and not values["up"].boolean("up"):
            down += range(2 * cable, 2 * (cable + count))
        cable += count
    return Changes(tuple(down), tuple(slow))


def _known_link(place: Source, link: str, fabric: Fabric) -> str:
    try:
        fabric.find_links(link)
    except UsageError as error:
        raise place.wrong(str(error)) from None
    return link


def _routes(place: Source) -> list[Route]:
    routes = []
    known: dict[int, list[Hop]] = {}
    for switch, destinations in place.mapping("switches").items():
        for destination, hops in destinations.mapping("destination: next hops").items():
            routes.append(_route(switch, destination, hops, known))
    return routes


def _route(switch: str, destination: str, place: Source, known: dict[int, list[Hop]]) -> Route:
    """known: the hops of nodes that were read; a file may name one node many times."""
    if not place.is_mapping:
        if id(place.node) not in known:
            known[id(place.node)] = [_hop(h) for h in place.items("next hops")]
        return Route(switch, destination, known[id(place.node)], place.where)
    values = place.mapping("hops and buckets")
    if set(values) != {"hops", "buckets"}:
        raise place.wrong("a route is a list of next hops, or has hops and buckets")
    hops = [_hop(h) for h in values["hops"].items("next hops")]
    most = max(0, len(hops) - 1)
    buckets = [b.integer("a bucket", 0, most) for b in values["buckets"].items("buckets")]
    if not buckets:
        raise values["buckets"].wrong("a resilient group has at least one bucket")
    return Route(switch, destination, hops, place.where, buckets)


def _hop(place: Source) -> Hop:
    if not place.is_mapping:
        return Hop(place.text("the name of a switch"), 1)
    values = place.mapping("via and weight")
    if "via" not in values:
        raise place.wrong("a next hop needs via: with the name of a switch")
    weight = values["weight"].integer("weight", 1, 1 << 16) if "weight" in values else 1
    return Hop(values["via"].text("the name of a switch"), weight)
