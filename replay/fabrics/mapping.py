"""Mapping of addresses of a capture to hosts of a fabric.

`exact`: the addresses and subnets of the fabric. `order`: sorted addresses on the hosts in port
order. `subnets`: addresses of one /24 (IPv6: /64) on one leaf, sorted subnets on the leaves
in order; larger subnets if there are more than leaves, as where every host has its own, and as
`order` if no size fits those. A YAML file: `address: host` or `subnet: leaf` or `subnet: host`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import ip_address, ip_network
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...analyzer.errors import UsageError
from ...kernels.kernel import Int32s, Ints
from ..results import EXACT
from .fabric import Address, Fabric, Network, edge_switches
from .sources import Source, load_yaml

RULES = ("exact", "order", "subnets")
_PREFIXES = {4: (24, 16, 8), 6: (64, 56, 48, 32)}
"""Prefix lengths of the subnets of leaves, by IP version; the first that fits."""


class HostMap(NamedTuple):
    """The hosts of addresses."""

    hosts: Int32s
    """int32[n]: the host of each address, -1 for none."""
    rule: str
    """The rule in words."""


def map_hosts(addresses: Sequence[str], fabric: Fabric, mapping: str = "exact") -> HostMap:
    """The host of each address.

    mapping: one of RULES or the path of a YAML file. UsageError if the rule or file is
    invalid, or if the addresses do not fit into the fabric.
    """
    parsed = [ip_address(a) for a in addresses]
    if mapping == "order":
        return HostMap(_in_order(parsed, fabric), "sorted addresses on the hosts in order")
    if mapping == "subnets":
        return _by_subnet(parsed, fabric)
    hosts = [fabric.addresses.host_of(a) for a in parsed]
    if mapping != "exact":
        by_file = _from_file(parsed, fabric, mapping)
        hosts = [
            given if given is not None else host for given, host in zip(by_file, hosts, strict=True)
        ]
    rule = EXACT if mapping == "exact" else f"by {mapping}"
    return HostMap(np.array([-1 if host is None else host for host in hosts], np.int32), rule)


def _key(address: Address) -> tuple[int, int]:
    return address.version, int(address)


def _in_order(addresses: list[Address], fabric: Fabric) -> Int32s:
    ordered = sorted(set(addresses), key=_key)
    if len(ordered) > fabric.hosts:
        raise UsageError(
            f"the capture has {len(ordered)} addresses, {fabric.name} only {fabric.hosts} hosts; "
            "use a larger fabric or a mapping file"
        )
    number = {address: i for i, address in enumerate(ordered)}
    return np.array([number[a] for a in addresses], np.int32)


def _by_subnet(addresses: list[Address], fabric: Fabric) -> HostMap:
    edge = fabric.attachments.edge
    leaves = [np.flatnonzero(edge == e) for e in range(int(edge.max(initial=-1)) + 1)]
    versions = sorted({a.version for a in addresses})
    groupings = [_subnets(addresses, dict(zip(versions, lengths, strict=True)))
             for lengths in product(*(_PREFIXES[version] for version in versions))]  # fmt: skip
    fits = (
        subnets
        for subnets in groupings
        if len(subnets) <= len(leaves)
        and all(len(m) <= len(leaf) for m, leaf in zip(subnets.values(), leaves, strict=False))
    )
    subnets = next(fits, groupings[0])
    if len(subnets) > len(leaves) and len(subnets) == len(set(addresses)):
        rule = "sorted addresses, each of its own subnet, on the hosts in order"
        return HostMap(_in_order(addresses, fabric), rule)
    if len(subnets) > len(leaves):
        raise UsageError(
            f"the capture has addresses in {len(subnets)} subnets, {fabric.name} only "
            f"{len(leaves)} leaves; use --map order or a mapping file"
        )
    number: dict[Address, int] = {}
    for subnet, hosts in zip(subnets, leaves, strict=False):
        _fill(number, subnets[subnet], hosts, f"{subnet}", fabric)
    of_leaf = edge_switches(fabric.attachments)
    placements = (
        f"{subnet} on {fabric.nodes.names[int(of_leaf[edge, 0])]}"
        for edge, subnet in enumerate(subnets)
    )
    return HostMap(np.array([number[a] for a in addresses], np.int32), ", ".join(placements))


def _subnets(addresses: list[Address], prefixes: Mapping[int, int]) -> dict[Network, list[Address]]:
    """The sorted addresses of every subnet, in the order of the subnets."""
    subnets: dict[Network, list[Address]] = {}
    for address in sorted(set(addresses), key=_key):
        network = ip_network((address, prefixes[address.version]), strict=False)
        subnets.setdefault(network, []).append(address)
    return subnets


def _fill(
    number: dict[Address, int],
    addresses: list[Address],
    hosts: Sequence[int] | Ints,
    what: str,
    fabric: Fabric,
) -> None:
    """Addresses of one subnet on the hosts of a leaf, in order."""
    if len(addresses) > len(hosts):
        raise UsageError(
            f"{len(addresses)} addresses of the capture are in {what}, but its leaf in "
            f"{fabric.name} has only {len(hosts)} hosts"
        )
    number.update((a, int(host)) for a, host in zip(addresses, hosts, strict=False))


def _from_file(addresses: list[Address], fabric: Fabric, path: str) -> list[int | None]:
    source = load_yaml(Path(path), f"one of {', '.join(RULES)} or a YAML file")
    by_name = {name: i for i, name in enumerate(fabric.nodes.names)}
    exact: dict[Address, int] = {}
    for network, name, where in _entries(source):
        node = by_name.get(name)
        if node is None:
            raise UsageError(f"{where}: {fabric.name} has no host or leaf {name!r}")
        inside = sorted({a for a in addresses if a.version == network.version and a in network},
                        key=_key)  # fmt: skip
        if node >= fabric.switches:
            exact.update((a, node - fabric.switches) for a in inside if a not in exact)
            continue
        leaf = np.flatnonzero((edge_switches(fabric.attachments) == node).any(1))
        hosts = np.flatnonzero(np.isin(fabric.attachments.edge, leaf))
        _fill(exact, [a for a in inside if a not in exact], hosts, f"{network} ({where})", fabric)
    return [exact.get(a) for a in addresses]


def _entries(source: Source) -> list[tuple[Network, str, str]]:
    """(network, node, place in the file), the longest networks first."""
    entries = []
    value: Mapping[str, Source] = source.mapping("addresses: host names")
    for text, node in value.items():
        try:
            network = ip_network(text, strict=False)
        except ValueError:
            raise UsageError(f"{node.where}: {text!r} is not an address or subnet") from None
        entries.append((network, node.text("the name of a host or leaf"), node.where))
    return sorted(entries, key=lambda entry: -entry[0].prefixlen)
