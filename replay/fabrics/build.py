"""Builds a fabric link by link."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...analyzer.errors import UsageError
from ...kernels.kernel import Ints, NamedTuple
from .fabric import (
    HOST,
    MAX_HOSTS,
    SWITCH,
    AddressPlan,
    Fabric,
    Links,
    Nodes,
    attach,
    forward,
    tier_name,
)

if TYPE_CHECKING:
    from ..hashing.settings import HashSettings


MAX_LINKS = 1 << 26
"""Maximum number of one-way links of a fabric, limited by memory."""


MAX_GROUP_TABLE = 1 << 29
"""Maximum of switches times edges; each pair takes four bytes."""


def numbered(prefix: str, count: int) -> list[str]:
    """`leaf1`, `leaf2`, ..."""
    return [f"{prefix}{i}" for i in range(1, count + 1)]


def check_size(name: str, hosts: int, two_way_links: int, switches: int, edges: int) -> None:
    """UsageError for a fabric that is too large, before memory is allocated."""
    if hosts > MAX_HOSTS:
        raise UsageError(f"{name}: {hosts:,} hosts exceed the maximum of {MAX_HOSTS:,}")
    if 2 * two_way_links > MAX_LINKS or switches * edges > MAX_GROUP_TABLE:
        raise UsageError(
            f"{name}: {switches:,} switches with {two_way_links:,} links do not "
            "fit into memory; use a smaller fabric"
        )


class Cables(NamedTuple):
    """Two-way links, equally long columns, in the order of the ports of every node."""

    a: Ints
    b: Ints
    rate_bits_per_second: Ints
    delay_ns: Ints


def cables(a: Ints, b: Ints, rate_bits_per_second: int, delay_ns: int) -> Cables:
    """Cables of one rate and delay."""
    n = len(a)
    return Cables(a, b, np.full(n, rate_bits_per_second, np.int64), np.full(n, delay_ns, np.int64))


def joined(*parts: Cables) -> Cables:
    """All cables, in that order."""
    return Cables(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def build(
    name: str,
    switch_names: Sequence[str],
    switch_tiers: NDArray[np.int8],
    host_names: Sequence[str],
    wires: Cables,
    *,
    switch_planes: NDArray[np.int16] | None = None,
    hash_settings: Sequence[HashSettings | None] | None = None,
    explicit_addresses: AddressPlan | None = None,
) -> Fabric:
    """A fabric with shortest-path forwarding.

    Cables name nodes by number: switches first, then hosts in port order. UsageError
    for invalid nodes: no switch, a duplicate name, two cables from a host to
    the same switch, hosts wired to hosts.
    """
    switches, hosts = len(switch_names), len(host_names)
    if not switches or not hosts:
        raise UsageError(f"{name}: a fabric needs at least one switch and one host")
    names = (*switch_names, *host_names)
    if len(set(names)) < len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise UsageError(f"{name}: two nodes have the name {twice!r}; node names must be unique")
    planes = np.full(switches + hosts, -1, np.int16)
    planes[:switches] = 0 if switch_planes is None else switch_planes
    nodes = Nodes(
        names,
        np.repeat(np.array([SWITCH, HOST], np.uint8), [switches, hosts]),
        np.concatenate([switch_tiers.astype(np.int8), np.zeros(hosts, np.int8)]),
        planes,
    )
    _check_hosts(name, nodes, wires, switches)
    links, layers = links_of(wires, nodes)
    attachments = attach(links, switches, hosts)
    return Fabric(
        name=name,
        nodes=nodes,
        links=links,
        layers=layers,
        attachments=attachments,
        forwarding=forward(links, attachments, switches),
        hash_settings=tuple(hash_settings or [None] * switches),
        addresses=explicit_addresses or AddressPlan(hosts),
    )


def links_of(wires: Cables, nodes: Nodes) -> tuple[Links, tuple[str, ...]]:
    """Both directions of every cable (2i from a to b, 2i+1 back), and the layers' names."""
    source = np.stack([wires.a, wires.b], 1).reshape(-1).astype(np.int32)
    target = np.stack([wires.b, wires.a], 1).reshape(-1).astype(np.int32)
    key = nodes.tier[source].astype(np.int64) * 256 + nodes.tier[target]
    keys, layer = np.unique(key, return_inverse=True)
    layers = tuple(f"{tier_name(int(k) >> 8)}-{tier_name(int(k) & 255)}" for k in keys)
    return (
        Links(
            source,
            target,
            np.repeat(wires.rate_bits_per_second, 2).astype(np.int64),
            np.repeat(wires.delay_ns, 2).astype(np.int64),
            np.ones(len(source), np.bool_),
            layer.reshape(-1).astype(np.uint8),
        ),
        layers,
    )


def _check_hosts(name: str, nodes: Nodes, wires: Cables, switches: int) -> None:
    low, high = np.minimum(wires.a, wires.b), np.maximum(wires.a, wires.b)
    wrong = np.flatnonzero(low >= switches)
    if len(wrong):
        a, b = (nodes.names[int(end[wrong[0]])] for end in (wires.a, wires.b))
        raise UsageError(f"{name}: {a} and {b} are both hosts; wire a host to a switch")
    wrong = np.flatnonzero(low == high)
    if len(wrong):
        raise UsageError(f"{name}: {nodes.names[int(low[wrong[0]])]} is wired to itself")
    key = high[high >= switches] * switches + low[high >= switches]
    values, counts = np.unique(key, return_counts=True)
    if len(values) and counts.max() > 1:
        at = int(values[counts.argmax()])
        host, switch = nodes.names[at // switches], nodes.names[at % switches]
        raise UsageError(
            f"{name}: {host} has {counts.max()} cables to {switch}; "
            "a host has one cable per switch (use one cable with the total rate)"
        )


# Tiers of switches without a tier in the description, by distance to hosts.


def tiers_by_distance(
    tiers: Sequence[int | None], wires: Cables, switches: int
) -> NDArray[np.int8]:
    """int8[switches]: given tiers stay; a switch with hosts is a leaf (1), its neighbours 2, ..."""
    distance = np.full(switches, 127, np.int64)
    low, high = np.minimum(wires.a, wires.b), np.maximum(wires.a, wires.b)
    distance[low[(high >= switches) & (low < switches)]] = 1
    between = (high < switches) & (low != high)
    a, b = low[between], high[between]
    while True:
        before = distance.copy()
        np.minimum.at(distance, a, before[b] + 1)
        np.minimum.at(distance, b, before[a] + 1)
        if (distance == before).all():
            break
    given = [distance[i] if tier is None else tier for i, tier in enumerate(tiers)]
    return np.minimum(given, 126).astype(np.int8)
